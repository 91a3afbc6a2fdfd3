"""Linear layers, with what follows them, over weights packed for TinyTorch's own product."""

from __future__ import annotations

from importlib.util import find_spec

import torch.fx

from tinytorch.fx.passes.layers import UNARY, Layer, LayerPass
from tinytorch.fx.passes.onednn import onednn_layer
from tinytorch.fx.passes.packed import PackedLayer, PrepackedLinear
from tinytorch.graph.passes.base import register_pass


@register_pass
class PrepackedLinears(LayerPass):
    """Multiplies by constant weights in TinyTorch's product, which reads them ahead of their use.

    For linear layers in float32, on the CPU, with relu, gelu, silu, sigmoid, tanh or a residual
    addition done on the way. Weights of a model that is larger than the caches come from memory at
    each call; oneDNN's product waits for them (`backends.optimized.gemm.prepacked`). It belongs
    before "onednn": a layer is changed only where that beats both the layer as it is and oneDNN's
    packed one. Without numba nothing changes.

    Args:
        only_if_faster: time it; otherwise change all layers that can be.
    """

    name = "prepacked-linear"
    unary = frozenset(UNARY.values())

    def analyze(self, graph: torch.fx.Graph) -> list[Layer]:
        return super().analyze(graph) if find_spec("numba") else []

    def accepts(self, layer: Layer) -> bool:
        return layer.window is None and layer.weight.numel() > 0

    def packed(self, layer: Layer) -> PackedLayer:
        return PrepackedLinear(layer.weight, layer.bias, layer.epilogue)

    def rivals(self, layer: Layer) -> list[PackedLayer | None]:
        return [None, onednn_layer(layer)]
