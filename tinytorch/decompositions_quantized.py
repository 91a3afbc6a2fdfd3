"""What a product with quantized weights means, in terms of the other ops.

Importing this module attaches it to the op table by name, as `decompositions.py` does. Kernels
compute the same with integers; they round activations by the formulas that are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinytorch import ops
from tinytorch.decompositions import decomposition
from tinytorch.dispatch import apply
from tinytorch.functions.conversion import to
from tinytorch.functions.elementwise import clip, maximum, round as round_
from tinytorch.functions.movement import cat, in_shape, narrow, reshape
from tinytorch.functions.reductions import amax, sum as sum_
from tinytorch.shapes_quantized import BLOCK, DYNAMIC_STEPS, LEAST, MOST_STATIC

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


@decomposition
def quantized_linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    range_: Tensor | None = None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> Tensor:
    """x @ (codes * scale).T + bias, where x may be rounded to 8 bits first.

    Args:
        x: (..., in)
        weight: codes (out, stored); of 4 bits two in a byte, see `unpack`.
        scale: (out, groups)
        bias: (out,), or None.
        range_: scale and zero point of x (2,), for the activation "static".
        bits: 16, 8 or 4; those of 16 bits are bfloat16.
        group_size: columns that share a scale; 0 for the whole row.
        activation: "float" leaves x as it is, "dynamic" rounds each row by its own range
            (`rounded_rows`), "static" all by `range_` (`rounded_to`). Gradients pass the rounding
            unchanged.

    Returns:
        (..., out)

    Source: B. Jacob et al., "Quantization and training of neural networks for efficient
    integer-arithmetic-only inference", 2018, equations 1 to 4.
    """
    x = _as_it_is_used(x, range_, activation)
    w = dequantized(weight, scale, x.shape[-1], bits)
    return apply(ops.linear, x, w) if bias is None else apply(ops.linear, x, w, bias)


def _as_it_is_used(x: Tensor, range_: Tensor | None, activation: str) -> Tensor:
    """x, rounded where the activation says so; its gradient is that of x."""
    if activation == "dynamic":
        return straight_through(x, rounded_rows(x))
    return x if range_ is None else straight_through(x, rounded_to(x, range_))


def scale_gradient(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    range_: Tensor | None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> Tensor:
    """The gradient (out, groups): that of the weight times the codes, summed over each group."""
    of_weight = apply(ops.linear_weight, g, _as_it_is_used(x, range_, activation))
    codes = unpack(weight, scale) if bits == 4 else to(weight, scale.dtype)
    rows, stored = codes.shape
    rest = apply(ops.full, shape=(rows, stored - x.shape[-1]), value=0.0, dtype=x.dtype)
    of_weight = cat([of_weight, rest], 1)
    groups = (*scale.shape, stored // scale.shape[1])
    return sum_(in_shape(of_weight * codes, groups), -1)


def dequantized(weight: Tensor, scale: Tensor, columns: int, bits: int) -> Tensor:
    """codes * scale as floats (out, columns), from codes (out, stored) and scale (out, groups)."""
    codes = unpack(weight, scale) if bits == 4 else to(weight, scale.dtype)
    rows, groups = scale.shape
    if groups == 1:
        values = codes * scale
    else:
        size = codes.shape[1] // groups
        values = codes.reshape(rows, groups, size) * scale.reshape(rows, groups, 1)
        values = values.reshape(rows, codes.shape[1])
    return values if values.shape[1] == columns else narrow(values, 1, 0, columns)


def unpack(packed: Tensor, like: Tensor) -> Tensor:
    """Codes of 4 bits, two's complement, from bytes (out, n) as floats (out, 2 n) of like's dtype.

    Byte j of a block of 16 has code j in its low half, and code j + 16 in its high half.
    """
    half = BLOCK // 2
    low = apply(ops.bitwise_and, packed, 15)
    high = apply(ops.floor_divide, packed, 16)
    blocks = packed.numel() // half
    parts = [
        reshape(to(apply(ops.bitwise_xor, nibble, 8), like.dtype) - 8, (blocks, half))
        for nibble in (low, high)
    ]
    return reshape(cat(parts, 1), (packed.shape[0], 2 * packed.shape[1]))


def rounded_rows(x: Tensor) -> Tensor:
    """Each row as codes times a scale of its own: 127 steps from its smallest value, or 0, to its
    largest, or 0.

    That is 7 bits, as PyTorch's dynamic quantization has them (`reduce_range`), on every machine:
    less the code of the smallest value, codes are 0 to 128, and sums of two products with weights
    of 8 bits fit into 16 bits exactly. Processors without VNNI multiply bytes only so. Rows without
    negative values, as after a ReLU, lose nothing by it: their steps are those of 8 signed bits.
    """
    x = x.detach()
    high, low = (maximum(amax(y, -1, True), 0.0) for y in (x, -x))
    scale = maximum(high / DYNAMIC_STEPS + low / DYNAMIC_STEPS, LEAST)
    return round_(x * (1 / scale)) * scale


def rounded_to(x: Tensor, range_: Tensor) -> Tensor:
    """(code - zero) * scale with code = round(x / scale) + zero, bounded to 0 to 255: affine."""
    scale, zero = range_[0], range_[1]
    codes = clip(round_(x.detach() * (1 / scale)) + zero, 0.0, MOST_STATIC)
    return (codes - zero) * scale


def straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` with the gradient of x: the straight-through estimator.

    Source: Y. Bengio, N. Leonard and A. Courville, "Estimating or propagating gradients through
    stochastic neurons for conditional computation", 2013.
    """
    return x + (rounded - x).detach() if x.requires_grad else rounded.detach()
