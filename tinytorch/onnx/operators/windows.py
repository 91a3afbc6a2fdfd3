"""What convolution and pooling share: the positions of windows along each spatial dimension."""

from __future__ import annotations

import math
from typing import NamedTuple

from tinytorch.functions import movement as m
from tinytorch.onnx.operators.registry import refuse
from tinytorch.tensor import Tensor


class Windows(NamedTuple):
    """The windows over the spatial dimensions of an (n, c, ...) tensor; one entry for each.

    Attributes:
        before, after: elements that are added to both ends.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def is_symmetric(self) -> bool:
        """Whether as much is added before as after, as our ops have it."""
        return self.before == self.after


def place_windows(
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """The windows that ONNX's attributes mean.

    `SAME_UPPER` and `SAME_LOWER` give ceil(extent / stride) windows, an odd element of padding
    going after or before; `ceil_mode` adds a window that begins inside and ends outside.
    """
    rank = len(kernel)
    stride, dilation = strides or (1,) * rank, dilations or (1,) * rank
    before, after = list((pads or (0,) * 2 * rank)[:rank]), list((pads or (0,) * 2 * rank)[rank:])
    for i, extent in enumerate(extents):
        reach = dilation[i] * (kernel[i] - 1) + 1
        if auto_pad.startswith("SAME"):
            total = max((math.ceil(extent / stride[i]) - 1) * stride[i] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            before[i], after[i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        elif auto_pad not in ("NOTSET", "VALID"):
            raise refuse(f"auto_pad {auto_pad!r}")
        elif ceil_mode:
            padded = extent + before[i] + after[i]
            missing = -(padded - reach) % stride[i]
            starts_inside = padded - reach + missing < extent + before[i]
            after[i] += missing if starts_inside else 0
    return Windows(kernel, stride, tuple(before), tuple(after), dilation)


def pad_spatial(x: Tensor, windows: Windows, value: float = 0) -> Tensor:
    """x with what the windows add to its ends."""
    pairs = zip(reversed(windows.before), reversed(windows.after), strict=True)
    amounts = tuple(amount for pair in pairs for amount in pair)
    return m.pad(x, amounts, value=value) if any(amounts) else x


def gather_windows(x: Tensor, windows: Windows) -> Tensor:
    """(n, c, *positions, *kernel): the elements of each window of the padded x."""
    for i, size in enumerate(windows.kernel):
        dilation = windows.dilation[i]
        x = m.unfold(x, 2 + i, dilation * (size - 1) + 1, windows.stride[i])[..., ::dilation]
    return x
