"""Layers whose weights are packed for a kernel, as functions that a node can call.

oneDNN multiplies blocks of a weight that lie in the order in which it reads them, and applies relu,
gelu or a residual addition to a block of the result while it is in the cache. PyTorch has these
kernels (`mkldnn::*_pointwise`) but uses them only in its own compiler.

A packed weight is an opaque tensor: it cannot be compared or copied as others are, so it is no
buffer of the graph's module but belongs to the function.

Source: Intel, "oneDNN developer guide", "Memory format propagation" and "Post-ops".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Epilogue(NamedTuple):
    """The functions that are applied to a result.

    Attributes:
        adds: another tensor of the same shape is added first.
        unary: then this function: oneDNN's name for it, or "none".
        algorithm: of gelu, "none" or "tanh"; "" for others.
    """

    adds: bool = False
    unary: str = "none"
    algorithm: str = ""


class Window(NamedTuple):
    """Stride, padding and dilation of a convolution: a row and a column figure each, and groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class PackedLinear:
    """epilogue(x W^T + b).

    Args:
        weight: (O, I).
        bias: (O,) or None.
        sizes: of the input that it is packed for, (..., I); others are correct, too.
    """

    is_pure = True

    def __init__(
        self, weight: Tensor, bias: Tensor | None, sizes: Sequence[int], epilogue: Epilogue
    ) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, math.prod(sizes[:-1]))
        self.bias = bias
        self.epilogue = epilogue
        self.__name__ = f"packed_linear_{epilogue.unary}"
        self.__module__ = __name__

    def __call__(self, x: Tensor, *other: Tensor) -> Tensor:
        kernels = torch.ops.mkldnn._linear_pointwise
        _, unary, algorithm = self.epilogue
        if other:
            result: Tensor = kernels.binary(x, other[0], self.weight, self.bias, "add")
        else:
            result = kernels.default(x, self.weight, self.bias, unary, [], algorithm)
        return result


def _allocate(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that is aligned to cache lines."""
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return torch.empty(shape, dtype=kind).numpy()


def as_array(x: Tensor) -> Any:
    """The array on the memory of a tensor."""
    return (x.detach() if x.requires_grad else x).numpy()


@cache
def scalar_kernel(unary: str, algorithm: str) -> Callable[..., Any] | None:
    """A function of an epilogue as a kernel on numbers; None for "none"."""
    # here, because it needs numba
    from tinytorch import ops
    from tinytorch.backends.optimized.elementwise import activations
    from tinytorch.backends.optimized.elementwise.scalars import compile_scalar

    if unary == "none":
        return None
    gelu = activations.gelu_tanh_scalar if algorithm == "tanh" else activations.gelu_scalar
    definition = {
        "relu": activations.relu_scalar, "gelu": gelu, "swish": activations.silu_scalar,
        "sigmoid": ops.sigmoid.scalar, "tanh": ops.tanh.scalar,
    }[unary]  # fmt: skip
    assert definition is not None  # both ops of the table are elementwise
    return compile_scalar(definition, np.float32)


class PrepackedLinear:
    """epilogue(x W^T + b) by TinyTorch's kernel, on no more threads than PyTorch has.

    Args:
        weight: (O, I), not empty.
        bias: (O,) or None.
    """

    is_pure = True

    def __init__(self, weight: Tensor, bias: Tensor | None, epilogue: Epilogue) -> None:
        # here, because it needs numba
        from tinytorch.backends.optimized.gemm.prepacked import PrepackedWeight

        b = None if bias is None else bias.detach().numpy()
        self.weight = PrepackedWeight(
            weight.detach().numpy(), b, function=scalar_kernel(*epilogue[1:]), allocate=_allocate
        )
        self.epilogue = epilogue
        self.__name__ = f"prepacked_linear_{epilogue.unary}"
        self.__module__ = __name__

    def __call__(self, x: Tensor, *other: Tensor) -> Tensor:
        result = torch.empty((*x.shape[:-1], self.weight.shape[0]), dtype=x.dtype)
        added = as_array(other[0]) if other else None
        self.weight.multiply(as_array(x), result.numpy(), added, torch.get_num_threads())
        return result


class PackedConvolution:
    """epilogue(conv2d(x, W) + b), which comes out in channels-last.

    Args:
        weight: (O, I / groups, H, W).
        bias: (O,) or None.
        sizes: of the images that it is packed for, (N, I, H, W); others are correct, too.
        in_place: the result is written over the tensor that is added, which is in channels-last.

    Attributes:
        is_pure: it writes nothing.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        sizes: Sequence[int],
        window: Window,
        epilogue: Epilogue,
        in_place: bool = False,
    ) -> None:
        stride, padding, dilation, groups = window
        self.weight = torch.ops.mkldnn._reorder_convolution_weight(
            weight, padding, stride, dilation, groups, list(sizes)
        )
        self.bias = bias
        self.window = [list(padding), list(stride), list(dilation), groups]
        self.epilogue = epilogue
        self.in_place = in_place
        self.is_pure = not in_place
        self.__name__ = f"packed_convolution_{epilogue.unary}{'_' if in_place else ''}"
        self.__module__ = __name__

    def __call__(self, x: Tensor, *other: Tensor) -> Tensor:
        kernels = torch.ops.mkldnn._convolution_pointwise
        _, unary, algorithm = self.epilogue
        operands = (self.weight, self.bias, *self.window)
        last = None if unary == "none" else unary
        result: Tensor
        if self.in_place:
            writer = torch.ops.mkldnn._convolution_pointwise_.binary
            result = writer(other[0], x, *operands, "add", 1.0, last, [], algorithm)
        elif other:
            result = kernels.binary(x, other[0], *operands, "add", 1.0, last, [], algorithm)
        else:
            result = kernels.default(x, *operands, unary, [], algorithm)
        return result


class WinogradConvolution:
    """epilogue(conv2d(x, W) + b) by Winograd's F(m, 3), which comes out in channels-last.

    Stride and padding are 1. W is transformed once, to (m + 2)^2 matrices. It takes no more threads
    than PyTorch has.

    Args:
        weight: (O, I, 3, 3).
        bias: (O,) or None.
        m: 2 or 4.
        epilogue: with relu, or without a function.
    """

    is_pure = True

    def __init__(self, weight: Tensor, bias: Tensor | None, m: int, epilogue: Epilogue) -> None:
        # here, because it needs numba
        from tinytorch.backends.optimized.conv.winograd import WinogradFilter

        b = None if bias is None else bias.detach().numpy()
        self.filter = WinogradFilter(weight.detach().numpy(), b, m=m, allocate=_allocate)
        self.epilogue = epilogue
        self.__name__ = f"winograd_convolution_{epilogue.unary}"
        self.__module__ = __name__

    def __call__(self, x: Tensor, *other: Tensor) -> Tensor:
        n, _, height, width = x.shape
        sizes = (n, self.filter.shape[0], height, width)
        result = torch.empty(sizes, dtype=x.dtype, memory_format=torch.channels_last)
        if result.numel():
            self.filter.convolve(x.detach().numpy(), result.numpy(), torch.get_num_threads())
        for each in other:
            result.add_(each)
        return result.relu_() if self.epilogue.unary == "relu" else result


PackedLayer = PackedLinear | PrepackedLinear | PackedConvolution | WinogradConvolution
IMAGE_LAYERS = (PackedConvolution, WinogradConvolution)  # whose results are in channels-last
