"""Layers that change the size of images: resampling, pixels and channels, windows as columns."""

from __future__ import annotations

from tinytorch.nn import functional as F
from tinytorch.nn.functional.arguments import Size
from tinytorch.nn.functional.resampling import Scales, Sizes
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class Upsample(Module):
    """Resizes the last dimensions; arguments and shapes as for `functional.interpolate`."""

    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: Scales | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, ...) gives (n, c, ...) of another size."""
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        given = "scale_factor" if self.size is None else "size"
        return f"{given}={getattr(self, given)}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` by the nearest pixel."""

    def __init__(self, size: Sizes | None = None, scale_factor: Scales | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` by mixing the four pixels around, with the corners kept."""

    def __init__(self, size: Sizes | None = None, scale_factor: Scales | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Module):
    """Channels as pixels: (..., c * r * r, h, w) gives (..., c, h * r, w * r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(..., c * r * r, h, w) gives (..., c, h * r, w * r)."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels as channels: the inverse of `PixelShuffle`."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(..., c, h * r, w * r) gives (..., c * r * r, h, w)."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels so that each group gives one in turn."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, ...), and so the result."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """The windows of images as columns; arguments and shapes as for `functional.unfold`."""

    def __init__(
        self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, h, w) gives (n, c * kh * kw, windows)."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Unfold):
    """Columns added up to images; arguments and shapes as for `functional.fold`."""

    def __init__(
        self,
        output_size: Size,
        kernel_size: Size,
        dilation: Size = 1,
        padding: Size = 0,
        stride: Size = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """(n, c * kh * kw, windows) gives (n, c, *output_size)."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
