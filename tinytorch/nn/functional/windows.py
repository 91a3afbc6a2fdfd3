"""Windows of images as columns, and columns added up to images."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions import movement
from tinytorch.functions.movement import narrow, permute, reshape, squeeze, unsqueeze
from tinytorch.nn.functional.arguments import Pair, Size, pair
from tinytorch.shapes_conv import window_positions
from tinytorch.tensor import Tensor


def windows(x: Tensor, kernel: Pair, stride: Pair, dilation: Pair) -> Tensor:
    """(..., h, w) as (..., oh, ow, kh, kw): all windows, as a view."""
    for i in range(2):
        reach = dilation[i] * (kernel[i] - 1) + 1
        x = movement.unfold(x, -2, reach, stride[i])
    return x[..., :: dilation[0], :: dilation[1]]


def unfold(
    input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """The windows of images as columns.

    Args:
        input: (n, c, h, w) or (c, h, w).
        kernel_size, dilation, padding, stride: as for `conv2d`.

    Returns:
        (n, c * kh * kw, windows): a convolution is a matrix product with it.

    Raises:
        ShapeError: the window does not fit into the image.
    """
    if input.ndim == 3:
        batch = unfold(unsqueeze(input, 0), kernel_size, dilation, padding, stride)
        return squeeze(batch, 0)
    if input.ndim != 4:
        raise ShapeError(f"unfold: the input must be (n, c, h, w), not {input.shape}")
    kernel, (top, left) = pair(kernel_size, "kernel_size"), pair(padding, "padding")
    padded = movement.pad(input, (left, left, top, top)) if top or left else input
    all_of = windows(padded, kernel, pair(stride, "stride"), pair(dilation, "dilation"))
    n, c, oh, ow = all_of.shape[:4]
    columns = permute(all_of, 0, 1, 4, 5, 2, 3)
    # windows of one number, or of the whole image, would be a view of it
    return reshape(apply(ops.copy, columns), (n, c * kernel[0] * kernel[1], oh * ow))


def fold(
    input: Tensor,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
) -> Tensor:
    """The adjoint of `unfold`: columns as windows of an image, added up where they overlap.

    Args:
        input: (n, c * kh * kw, windows) or (c * kh * kw, windows).
        output_size: of the images.
        kernel_size, dilation, padding, stride: as for `unfold`.

    Returns:
        (n, c, h, w)

    Raises:
        ShapeError: images of that size do not have these columns; the message says how many. Or a
            window has no elements, or a step or a dilation is below 1.
    """
    if input.ndim == 2:
        batch = fold(unsqueeze(input, 0), output_size, kernel_size, dilation, padding, stride)
        return squeeze(batch, 0)
    size, kernel = pair(output_size, "output_size"), pair(kernel_size, "kernel_size")
    spread, border = pair(dilation, "dilation"), pair(padding, "padding")
    step = pair(stride, "stride")
    if min(*kernel, *spread, *step) < 1 or min(border) < 0:
        raise ShapeError(
            f"fold: windows of {kernel} in steps of {step}, dilation {spread}, padding {border}"
        )
    counts = [window_positions(size[i], kernel[i], step[i], border[i], spread[i]) for i in range(2)]
    area = kernel[0] * kernel[1]
    if input.ndim != 3 or input.shape[1] % area or input.shape[2] != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: for images {size} and windows {kernel} the input must be (n, c * {area}, "
            f"{counts[0] * counts[1]}), not {input.shape}"
        )
    x = reshape(input, (input.shape[0], input.shape[1] // area, *kernel, *counts))
    for i in range(2):  # (n, c, kh, kw, oh, ow), then (n, c, kw, ow, h)
        order = (0, 1, 3, 5, 4, 2) if i == 0 else (0, 1, 4, 3, 2)
        x = _gathered(permute(x, *order), size[i] + 2 * border[i], step[i], spread[i])
    for i in range(2):
        x = narrow(x, 2 + i, border[i], size[i]) if border[i] else x
    return x


def _gathered(x: Tensor, length: int, step: int, dilation: int) -> Tensor:
    """(..., windows, k) added up to (..., length)."""
    reach = dilation * (x.shape[-1] - 1) + 1
    if dilation > 1:
        bounds = (*((0, n, 1) for n in x.shape[:-1]), (0, reach, dilation))
        x = apply(ops.unslice, x, shape=(*x.shape[:-1], reach), bounds=bounds)
    return apply(ops.fold, x, length=length, step=step)
