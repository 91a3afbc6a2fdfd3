"""Products with quantized weights, by a product of floats.

What it computes is said in `decompositions_quantized`, in ops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinytorch.dtypes import Array, bfloat16_values
from tinytorch.shapes_quantized import BLOCK, DYNAMIC_STEPS, LEAST, MOST_STATIC


def linear_by(
    matmul: Callable[[Array, Array], Array],
    x: Array,
    weight: Array,
    scale: Array,
    bias: Array | None = None,
    range_: Array | None = None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> Array:
    """x @ (codes * scale).T + bias by `matmul`; all of the weight becomes floats for it."""
    (n, groups), k = scale.shape, x.shape[-1]
    codes = codes_of(weight, bits)
    floats = codes.reshape(n, groups, codes.shape[1] // groups) * scale[..., None]
    floats = floats.reshape(codes.shape)[:, :k].astype(x.dtype, copy=False)
    rows = rounded(x.reshape(int(np.prod(x.shape[:-1])), k), range_, activation)
    out = matmul(rows, floats.T).reshape(*x.shape[:-1], n)
    return out if bias is None else out + bias


def rounded(x: Array, range_: Array | None, activation: str) -> Array:
    """Rows (m, k) as their codes say them; as they are where the activation is "float"."""
    result: Array = x
    with np.errstate(all="ignore"):  # of NaN and infinity come NaN
        if range_ is not None:
            codes = np.clip(np.rint(x * (1 / range_[0])) + range_[1], 0, MOST_STATIC)
            result = (codes - range_[1]) * range_[0]
        elif activation == "dynamic" and x.size:
            high, low = (np.maximum(y.max(1, keepdims=True), 0) for y in (x, -x))
            scale = high / DYNAMIC_STEPS + low / DYNAMIC_STEPS
            scale = np.maximum(scale, x.dtype.type(LEAST))
            result = np.rint(x * (1 / scale)) * scale
    return result


def codes_of(weight: Array, bits: int) -> Array:
    """The codes (rows, columns) as numbers that NumPy has."""
    if bits == 8:
        return weight
    return unpacked(weight) if bits == 4 else bfloat16_values(weight)


def unpacked(packed: Array) -> Array:
    """The codes (rows, 2 n), int8, of bytes (rows, n): see `decompositions_quantized.unpack`."""
    rows, size = packed.shape
    half = BLOCK // 2
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(rows, size // half, half, 2)
    codes = halves.swapaxes(-1, -2).reshape(rows, 2 * size).view(np.int8)
    signed: Array = (codes ^ 8) - 8
    return signed
