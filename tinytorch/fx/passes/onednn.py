"""Convolution and linear layers, with what follows them, over weights packed for oneDNN."""

from __future__ import annotations

from tinytorch.fx.passes.layers import UNARY, Layer, LayerPass
from tinytorch.fx.passes.packed import PackedConvolution, PackedLayer, PackedLinear
from tinytorch.graph.passes.base import register_pass


@register_pass
class OneDnn(LayerPass):
    """Packs constant weights, and lets relu, gelu and residual additions be done on the way.

    For convolutions of images and for linear layers, in float32, on the CPU. Each kind of layer is
    timed on its shapes and changed only where that is faster; and the whole is kept only if the
    graph is. Results of the graph have the memory layout they had.

    Args:
        only_if_faster: time it; otherwise change all layers.
    """

    name = "onednn"
    unary = frozenset(UNARY.values())

    def accepts(self, layer: Layer) -> bool:
        return True

    def packed(self, layer: Layer) -> PackedLayer:
        return onednn_layer(layer)


def onednn_layer(layer: Layer) -> PackedLayer:
    """A layer over oneDNN's kernels."""
    weight, bias, sizes = layer.weight, layer.bias, layer.sizes
    if layer.window is None:
        return PackedLinear(weight, bias, sizes, layer.epilogue)
    return PackedConvolution(weight, bias, sizes, layer.window, layer.epilogue, layer.in_place)
