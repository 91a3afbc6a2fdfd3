"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence

from tinytorch.nn import functional as F
from tinytorch.nn.functional.arguments import Size
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class MaxPool2d(Module):
    """The largest element of every window; arguments and shapes as for `functional.max_pool2d`."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, h, w) gives (n, c, oh, ow)."""
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}"
        )


class AvgPool2d(Module):
    """The mean of every window; arguments and shapes as for `functional.avg_pool2d`."""

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, h, w) gives (n, c, oh, ow)."""
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of windows that split the image into `output_size` parts, whatever its size."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, h, w) gives (n, c, *output_size)."""
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
