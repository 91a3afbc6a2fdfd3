"""Convolutional layers."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getdoc
from typing import Any, ClassVar

from tinytorch.creation import zeros
from tinytorch.dtypes import Shape
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.arguments import Size, pair, single
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate",
          "circular": "circular"}  # fmt: skip


class _Conv(Module):
    """What all convolutions share: channels, windows and parameters.

    Attributes:
        weight: (out_channels, in_channels / groups, *kernel_size), and for transposed convolutions
            (in_channels, out_channels / groups, *kernel_size); at first uniform over
            +-1 / sqrt(weight.shape[1] * area of the window).
        bias: (out_channels,), at first likewise; or None.
    """

    dims: ClassVar[int]
    transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: in_channels {in_channels} and out_channels {out_channels} "
                f"must be multiples of groups, {groups}"
            )
        if padding_mode not in (["zeros"] if self.transposed else _MODES):
            raise ValueError(f"{type(self).__name__}: padding_mode {padding_mode!r} is not there")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._sizes(kernel_size, "kernel_size")
        self.stride = self._sizes(stride, "stride")
        self.padding = padding if isinstance(padding, str) else self._sizes(padding, "padding")
        self.dilation = self._sizes(dilation, "dilation")
        self.groups = groups
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *self.kernel_size)
        kind = parameter_dtype(device, dtype)
        self.weight = Parameter(zeros(shape, dtype=kind))
        self.bias = Parameter(zeros(out_channels, dtype=kind)) if bias else None
        self.reset_parameters()

    def _sizes(self, value: Size, what: str) -> Shape:
        return pair(value, what) if self.dims == 2 else (single(value, what),)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.reset_weight_and_bias(self.weight, self.bias)

    def _padded(self, x: Tensor) -> tuple[Tensor, Any]:
        """x with the border that is not of zeros, and the padding that is left to do."""
        if self.padding_mode == "zeros":
            return x, self.padding
        if self.padding == "valid":
            return x, (0,) * self.dims
        if isinstance(self.padding, str):
            reach = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            sides = [(r // 2, r - r // 2) for r in reach]
        else:
            sides = [(p, p) for p in self.padding]
        border = [p for side in reversed(sides) for p in side]
        return F.pad(x, border, _MODES[self.padding_mode]), (0,) * self.dims

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        if self.padding != (0,) * self.dims:
            parts.append(f"padding={self.padding!r}")
        if self.dilation != (1,) * self.dims:
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode!r}")
        return ", ".join(parts)


class _Convolution(_Conv):
    """The constructor of `Conv1d` and `Conv2d`."""

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
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip


class Conv2d(_Convolution):
    """Cross-correlation of images with trained kernels, plus a bias; see `functional.conv2d`.

    Args:
        in_channels, out_channels: of x and of the result.
        kernel_size: one number, or (height, width), as for the next three.
        stride: step of the window.
        padding: border on each side, or "valid" (none) or "same" (as much as keeps the size).
        dilation: distance between the elements that a window takes.
        groups: the channels are split into so many parts that do not see each other.
        bias: False to go without.
        padding_mode: what the border is made of: "zeros", "reflect", "replicate", "circular".
        device, dtype: of the parameters.

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

    dims = 2

    def forward(self, input: Tensor) -> Tensor:
        """input (n, in_channels, h, w) gives (n, out_channels, oh, ow)."""
        input, padding = self._padded(input)
        return F.conv2d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Convolution):
    """Cross-correlation of signals with trained kernels, plus a bias.

    Arguments, attributes and errors are those of `Conv2d`, with one number where it has pairs.

    Shapes: (n, in_channels, length) gives (n, out_channels, olength).

    >>> import tinytorch
    >>> Conv1d(2, 4, 3, stride=2)(tinytorch.ones(5, 2, 9)).shape
    (5, 4, 4)
    """

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """input (n, in_channels, length) gives (n, out_channels, olength)."""
        input, padding = self._padded(input)
        return F.conv1d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class _Transposed(_Conv):
    """The adjoint of a convolution: each element of the input spreads a kernel over the result.

    Args:
        in_channels, out_channels: of x and of the result.
        kernel_size: one number, or one for each dimension, as for those below.
        stride: distance between the positions of the kernels.
        padding: how much is cut off at each side.
        output_padding: how much the result has more of at its end.
        groups, bias, device, dtype: as for `Conv2d`.
        dilation: distance between the elements of a kernel.
        padding_mode: only "zeros".

    Attributes:
        weight: (in_channels, out_channels / groups, *kernel_size).
        bias: (out_channels,); or None.
    """

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip
        self.output_padding = self._sizes(output_padding, "output_padding")

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """(n, in_channels, ...) gives (n, out_channels, ...).

        Args:
            output_size: of the result's last dimensions, in place of `output_padding`.
        """
        more = self.output_padding
        if output_size is not None:
            more = self._padding_for(input, [int(n) for n in output_size][-self.dims :])
        function = F.conv_transpose2d if self.dims == 2 else F.conv_transpose1d
        assert not isinstance(self.padding, str)
        return function(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups,
            self.dilation,
        )  # fmt: skip

    def _padding_for(self, x: Tensor, wanted: list[int]) -> Shape:
        """The `output_padding` that gives a size; the functions refuse what is not possible."""
        assert not isinstance(self.padding, str)
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                x.shape[-self.dims :], self.stride, self.padding, self.dilation, self.kernel_size,
                strict=True,
            )
        ]  # fmt: skip
        if any(not 0 <= w - n < s for w, n, s in zip(wanted, least, self.stride, strict=True)):
            raise ValueError(
                f"{type(self).__name__}: output_size {tuple(wanted)} must be from {tuple(least)} "
                f"to less than a stride {self.stride} more"
            )
        return tuple(w - n for w, n in zip(wanted, least, strict=True))


class ConvTranspose1d(_Transposed):
    __doc__ = (
        f"{getdoc(_Transposed)}\n\nShapes: (n, in_channels, length) gives "
        f"(n, out_channels, olength).\n"
    )
    dims = 1


class ConvTranspose2d(_Transposed):
    __doc__ = (
        f"{getdoc(_Transposed)}\n\nShapes: (n, in_channels, h, w) gives "
        f"(n, out_channels, oh, ow).\n"
    )
    dims = 2
