"""Layers that give their input a border."""

from __future__ import annotations

from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tinytorch.nn.functional.arguments import Size
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class _Pad(Module):
    """A border around the last dimensions.

    Args:
        padding: one number for all sides, or (left, right) or (left, right, top, bottom).
    """

    mode = "constant"
    dims: int

    def __init__(self, padding: Size) -> None:
        super().__init__()
        sides = [padding] * (2 * self.dims) if isinstance(padding, int) else padding
        self.padding = tuple(int(p) for p in sides)
        self.value = 0.0
        if len(self.padding) != 2 * self.dims:
            raise ValueError(
                f"{type(self).__name__}: padding must be one number or {2 * self.dims}, not "
                f"{padding}"
            )

    def forward(self, input: Tensor) -> Tensor:
        """(..., c, *size) gives a larger size.

        Raises:
            ShapeError: the input has no channels in front of its size.
        """
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ShapeError(
                f"{type(self).__name__}: the input must have {self.dims + 1} or {self.dims + 2} "
                f"dimensions, not shape {input.shape}"
            )
        if self.mode == "constant":
            return F.pad(input, self.padding, value=self.value)
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}" + (f", value={self.value}" if self.value else "")


class _ConstantPad(_Pad):
    def __init__(self, padding: Size, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ConstantPad1d(_ConstantPad):
    """A border of `value` around each signal."""

    dims = 1


class ZeroPad1d(_Pad):
    """A border of zeros around each signal."""

    dims = 1


class ReflectionPad1d(_Pad):
    """A border of what is next to the edge, in reverse order, around each signal."""

    mode, dims = "reflect", 1


class ReplicationPad1d(_Pad):
    """A border of the elements at the edge around each signal."""

    mode, dims = "replicate", 1


class CircularPad1d(_Pad):
    """A border of what is at the other end around each signal."""

    mode, dims = "circular", 1


class ConstantPad2d(_ConstantPad):
    """A border of `value` around each image."""

    dims = 2


class ZeroPad2d(_Pad):
    """A border of zeros around each image."""

    dims = 2


class ReflectionPad2d(_Pad):
    """A border of what is next to the edge, in reverse order, around each image."""

    mode, dims = "reflect", 2


class ReplicationPad2d(_Pad):
    """A border of the elements at the edge around each image."""

    mode, dims = "replicate", 2


class CircularPad2d(_Pad):
    """A border of what is at the other end around each image."""

    mode, dims = "circular", 2
