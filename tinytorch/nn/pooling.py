"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.nn import functional as F
from tinytorch.nn.functional.arguments import Size
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class _MaxPool(Module):
    """The largest element of every window; arguments and shapes as for `functional.max_pool2d`."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _settings(self) -> tuple[Any, ...]:
        return (
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of every window of a signal; arguments as for `functional.max_pool1d`."""

    def forward(self, input: Tensor) -> Any:
        """(n, c, length) gives (n, c, olength)."""
        return F.max_pool1d(input, *self._settings())


class MaxPool2d(_MaxPool):
    """The largest element of every window of an image; arguments as for `functional.max_pool2d`."""

    def forward(self, input: Tensor) -> Any:
        """(n, c, h, w) gives (n, c, oh, ow)."""
        return F.max_pool2d(input, *self._settings())


class MaxUnpool2d(Module):
    """Elements put back where `MaxPool2d(..., return_indices=True)` took them; 0 elsewhere."""

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Two of (n, c, oh, ow) give (n, c, h, w)."""
        return F.max_unpool2d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """The mean of every window of a signal; arguments as for `functional.avg_pool1d`."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, length) gives (n, c, olength)."""
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(AvgPool1d):
    """The mean of every window of an image; arguments as for `functional.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, h, w) gives (n, c, oh, ow)."""
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class _Adaptive(Module):
    """Windows that split the input into `output_size` parts, whatever its size."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size: Any = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """Means of windows that split the signal into `output_size` parts, whatever its size."""

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, length) gives (n, c, output_size)."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Means of windows that split the image into `output_size` parts, whatever its size."""

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, h, w) gives (n, c, *output_size)."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class _AdaptiveMax(_Adaptive):
    """Largest elements; with `return_indices=True` also where they come from."""

    def __init__(
        self, output_size: int | Sequence[int | None], return_indices: bool = False
    ) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest elements of windows that split the signal into `output_size` parts."""

    def forward(self, input: Tensor) -> Any:
        """(n, c, length) gives (n, c, output_size)."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest elements of windows that split the image into `output_size` parts."""

    def forward(self, input: Tensor) -> Any:
        """(n, c, h, w) gives (n, c, *output_size)."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)
