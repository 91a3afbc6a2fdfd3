"""3x3 convolutions by Winograd's algorithm: with fewer multiplications, for who asks for it."""

from __future__ import annotations

from tinytorch.backends import find_backend
from tinytorch.fx.passes.layers import Layer, LayerPass
from tinytorch.fx.passes.onednn import onednn_layer
from tinytorch.fx.passes.packed import PackedLayer, Window, WinogradConvolution
from tinytorch.graph.passes.base import register_pass
from tinytorch.graph.semantics import Semantics

WINDOW = Window(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)


@register_pass
class Winograd(LayerPass):
    """Runs 3x3 convolutions of stride 1 and padding 1 by Winograd's F(m, 3), in TinyTorch's kernel.

    F(2, 3) multiplies 4 times for a result instead of 9, F(4, 3) 2.25 times. How large the rounding
    errors are in `tinytorch.backends.optimized.conv.winograd`: those of F(2, 3) were no
    larger than those of the direct sum, of F(4, 3) several times as large. Not among the default
    passes; it belongs before "onednn". A layer is changed only where that beats oneDNN's packed
    convolution.

    Args:
        only_if_faster: time it; otherwise change all layers that can be.
        m: 2 or 4.

    Raises:
        MissingExtraError: numba is not installed.

    Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015.
    """

    name = "winograd"
    unary = frozenset({"relu"})

    def __init__(self, semantics: Semantics, only_if_faster: bool = True, m: int = 2) -> None:
        super().__init__(semantics, only_if_faster)
        find_backend("optimized")  # says what is missing, if it is not there
        self.m = m

    def accepts(self, layer: Layer) -> bool:
        return layer.window == WINDOW and layer.weight.shape[2:] == (3, 3)

    def packed(self, layer: Layer) -> PackedLayer:
        return WinogradConvolution(layer.weight, layer.bias, self.m, layer.epilogue)

    def rivals(self, layer: Layer) -> list[PackedLayer | None]:
        return [onednn_layer(layer)]
