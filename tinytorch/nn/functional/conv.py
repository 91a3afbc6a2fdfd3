"""Convolution."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import narrow, pad, reshape, squeeze, unsqueeze
from tinytorch.nn.functional.arguments import Pair, Size, pair, single
from tinytorch.tensor import Tensor


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """out[n, o, i, j] = bias[o] + sum over c, k, l of weight[o, c, k, l] * x[n, c, i + k, j + l]

    (for stride and dilation 1; a cross-correlation, which the field calls convolution).

    Args:
        x: (n, in, h, w), or (in, h, w) for one image.
        weight: (out, in / groups, kh, kw)
        bias: (out,)
        stride: step of the window: one number, or (height, width), as for those below.
        padding: zeros on each side; "valid" for none; "same" for as many as keep the size.
        dilation: distance between the elements that a window takes.
        groups: the channels are split into so many parts that do not see each other.

    Returns:
        (n, out, oh, ow) with oh = (h + 2 * padding - dilation * (kh - 1) - 1) // stride + 1.

    Raises:
        ShapeError: the shapes do not fit; the message gives them.
        ValueError: padding is another word, or "same" with a stride.
    """
    if x.ndim == 3:
        batch = conv2d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups)
        return squeeze(batch, 0)
    step, spread = pair(stride, "stride"), pair(dilation, "dilation")
    if isinstance(padding, str):
        x, border = _pad_by_name(x, weight, padding, step, spread)
    else:
        border = pair(padding, "padding")
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return apply(ops.conv2d, *inputs, stride=step, padding=border, dilation=spread, groups=groups)


def _pad_by_name(
    x: Tensor, weight: Tensor, padding: str, stride: Pair, dilation: Pair
) -> tuple[Tensor, Pair]:
    """The zeros that "same" needs: split evenly, an odd one below or right."""
    if padding == "valid" or weight.ndim != 4:  # the op's rule speaks of a wrong weight
        return x, (0, 0)
    if padding != "same":
        raise ValueError(f"padding must be numbers, 'same' or 'valid', not {padding!r}")
    if stride != (1, 1):
        raise ValueError(f"padding='same' needs a stride of 1, not {stride}")
    rows, cols = (d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True))
    if rows % 2 == 0 and cols % 2 == 0:
        return x, (rows // 2, cols // 2)
    top, left = rows // 2, cols // 2
    return pad(x, (left, cols - left, top, rows - top)), (0, 0)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`conv2d` of images that are one pixel high.

    Args:
        x: (n, in, length), or (in, length) for one signal.
        weight: (out, in / groups, k)
        bias: (out,)
        stride, padding, dilation, groups: as for `conv2d`, one number each.

    Returns:
        (n, out, olength)

    Raises:
        ShapeError: the shapes do not fit; the message gives them.
        ValueError: as `conv2d`.
    """
    if x.ndim not in (2, 3) or weight.ndim != 3:
        raise ShapeError(
            f"conv1d: input {x.shape} must be (n, channels, length) or (channels, length), and "
            f"weight {weight.shape} (out_channels, in_channels / groups, size)"
        )
    out = conv2d(
        unsqueeze(x, -2),
        unsqueeze(weight, -2),
        bias,
        (1, single(stride, "stride")),
        padding if isinstance(padding, str) else (0, single(padding, "padding")),
        (1, single(dilation, "dilation")),
        groups,
    )
    return squeeze(out, -2)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The adjoint of `conv2d`: each element of the input spreads a kernel over the result.

    Args:
        input: (n, in, h, w), or (in, h, w) for one image.
        weight: (in, out / groups, kh, kw)
        bias: (out,)
        stride: distance between the positions of the kernels.
        padding: how much is cut off at each side.
        output_padding: rows and columns that the result has more of, below and right: fewer than
            the stride or than the dilation.
        groups, dilation: as for `conv2d`.

    Returns:
        (n, out, oh, ow) with oh = (h - 1) * stride - 2 * padding + dilation * (kh - 1) + 1 +
        output_padding.

    Raises:
        ShapeError: the shapes do not fit; the message gives them.

    Source: M. Zeiler et al., "Deconvolutional networks", 2010.
    """
    if input.ndim == 3:
        batch = conv_transpose2d(
            unsqueeze(input, 0), weight, bias, stride, padding, output_padding, groups, dilation
        )
        return squeeze(batch, 0)
    if input.ndim != 4 or weight.ndim != 4 or input.shape[1] != weight.shape[0]:
        raise ShapeError(
            f"conv_transpose2d: input {input.shape} must be (n, in, h, w), and weight "
            f"{weight.shape} (in, out / groups, height, width)"
        )
    step, border = pair(stride, "stride"), pair(padding, "padding")
    more, spread = pair(output_padding, "output_padding"), pair(dilation, "dilation")
    size = tuple(
        (input.shape[2 + i] - 1) * step[i]
        + spread[i] * (weight.shape[2 + i] - 1)
        + 1
        - 2 * border[i]
        + more[i]
        for i in range(2)
    )
    if any(m >= max(step[i], spread[i]) for i, m in enumerate(more)) or min(size) < 1:
        raise ShapeError(
            f"conv_transpose2d: output_padding {more} must be below the stride {step} or the "
            f"dilation {spread}, and padding {border} leave something of the result, whose size "
            f"would be {size}"
        )
    # a convolution of that size has this input's shape only where the stride is above what is added
    whole = any(m >= s for m, s in zip(more, step, strict=True))
    reach = tuple(n + 2 * b - m for n, b, m in zip(size, border, more, strict=True))
    out = apply(
        ops.conv2d_input, input, weight, stride=step, padding=(0, 0) if whole else border,
        dilation=spread, groups=groups, input_size=reach if whole else size,
    )  # fmt: skip
    if whole:  # all that the kernels reach, and zeros after it; the padding is cut off
        out = pad(out, (0, more[1], 0, more[0]))
        for d in (0, 1):
            out = narrow(out, 2 + d, border[d], size[d])
    return out if bias is None else out + reshape(bias, (-1, 1, 1))


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """`conv_transpose2d` of images that are one pixel high, with one number for each pair."""
    if input.ndim not in (2, 3) or weight.ndim != 3:
        raise ShapeError(
            f"conv_transpose1d: input {input.shape} must be (n, channels, length) or (channels, "
            f"length), and weight {weight.shape} (in_channels, out_channels / groups, size)"
        )
    out = conv_transpose2d(
        unsqueeze(input, -2),
        unsqueeze(weight, -2),
        bias,
        (1, single(stride, "stride")),
        (0, single(padding, "padding")),
        (0, single(output_padding, "output_padding")),
        groups,
        (1, single(dilation, "dilation")),
    )
    return squeeze(out, -2)
