"""Convolutional layers."""

from __future__ import annotations

from typing import Any

from tinytorch.creation import zeros
from tinytorch.dtypes import DEFAULT_FLOAT, Shape
from tinytorch.nn import functional as F, init
from tinytorch.nn.functional.arguments import Size, pair, single
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class _Conv(Module):
    """What convolutions of one and of two dimensions share.

    Attributes:
        weight: (out_channels, in_channels / groups, *kernel_size), at first uniform over
            +-1 / sqrt(fan_in).
        bias: (out_channels,), at first likewise; or None.
    """

    kernel_size: Shape
    stride: Size
    padding: Size | str
    dilation: Size

    def __init__(
        self, in_channels: int, out_channels: int, groups: int, bias: bool, dtype: Any
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: in_channels {in_channels} and out_channels {out_channels} "
                f"must be multiples of groups, {groups}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(zeros(shape, dtype=dtype))
        self.bias = Parameter(zeros(out_channels, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.reset_weight_and_bias(self.weight, self.bias)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        usual = len(self.kernel_size)
        if self.padding not in (0, (0,) * usual):
            parts.append(f"padding={self.padding!r}")
        if self.dilation not in (1, (1,) * usual):
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


class Conv2d(_Conv):
    """Cross-correlation of images with trained kernels, plus a bias; see `functional.conv2d`.

    Args:
        in_channels, out_channels: of x and of the result.
        kernel_size: one number, or (height, width), as for the next three.
        stride: step of the window.
        padding: zeros on each side, or "valid" (none) or "same" (as many as keep the size).
        dilation: distance between the elements that a window takes.
        groups: the channels are split into so many parts that do not see each other.
        bias: False to go without.
        dtype: of the parameters.

    Attributes:
        weight: (out_channels, in_channels / groups, kh, kw), at first uniform over
            +-1 / sqrt(fan_in).
        bias: (out_channels,), at first likewise; or None.

    Shapes: (n, in_channels, h, w) gives (n, out_channels, oh, ow).

    Raises:
        ValueError: the channels are no multiples of groups.

    >>> import tinytorch
    >>> Conv2d(1, 4, 3, padding="same")(tinytorch.ones(2, 1, 8, 8)).shape
    (2, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        self.kernel_size = pair(kernel_size, "kernel_size")
        self.stride = pair(stride, "stride")
        self.padding = padding if isinstance(padding, str) else pair(padding, "padding")
        self.dilation = pair(dilation, "dilation")
        super().__init__(in_channels, out_channels, groups, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, in_channels, h, w) gives (n, out_channels, oh, ow)."""
        return F.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """Cross-correlation of signals with trained kernels, plus a bias.

    Arguments, attributes and errors are those of `Conv2d`, with one number where it has pairs.

    Shapes: (n, in_channels, length) gives (n, out_channels, olength).

    >>> import tinytorch
    >>> Conv1d(2, 4, 3, stride=2)(tinytorch.ones(5, 2, 9)).shape
    (5, 4, 4)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        self.kernel_size = (single(kernel_size, "kernel_size"),)
        self.stride = single(stride, "stride")
        self.padding = padding if isinstance(padding, str) else single(padding, "padding")
        self.dilation = single(dilation, "dilation")
        super().__init__(in_channels, out_channels, groups, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, in_channels, length) gives (n, out_channels, olength)."""
        return F.conv1d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )
