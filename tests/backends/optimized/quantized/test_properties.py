"""Products with quantized weights against sums in float64: all sizes, at the ends of the ranges.

Rows of x are whole numbers as far apart as their codes. So nothing is rounded, and what a product
gives is its sum of integers, times scales.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from tinytorch.backends.optimized.quantized.linear import LARGEST, quantized_linear
from tinytorch.backends.optimized.quantized.nibbles import STEP
from tinytorch.backends.optimized.quantized.vectors import MOST_ROWS
from tinytorch.compression import pack_int4
from tinytorch.shapes_quantized import DYNAMIC_STEPS, stored_columns

ENDS = {8: (-128, 127), 4: (-8, 7)}


def operands(seed, rows, k, n, bits, activation, extreme):
    """x, codes (n, k), scales for groups of 32 columns; `extreme` takes only ends of the ranges."""
    rng = np.random.default_rng(seed)
    largest = 255 if activation == "static" else int(LARGEST[activation])
    least = -largest
    if activation == "dynamic":  # its ends are DYNAMIC_STEPS apart, one of them perhaps at 0
        largest = int(rng.choice([0, 1, 63, 126, DYNAMIC_STEPS]))
        least = largest - DYNAMIC_STEPS
    low, high = ENDS[bits]
    if extreme:
        x = rng.choice([least, largest], (rows, k))
        codes = rng.choice([low, high], (n, k))
        if extreme == "same":
            x, codes = np.full_like(x, x[0, 0]), np.full_like(codes, codes[0, 0])
    else:
        x = rng.integers(least, largest + 1, (rows, k))
        codes = rng.integers(low, high + 1, (n, k))
    x[:, -1] = largest
    if activation == "dynamic":
        x[:, 0] = least if k > 1 else -DYNAMIC_STEPS  # of one value the other end is 0
    stored = stored_columns(k, bits, 32 if bits == 4 else 0)
    padded = np.zeros((n, stored), np.int8)
    padded[:, :k] = codes
    scale = np.float32(2.0) ** rng.integers(-3, 4, (n, stored // 32 if bits == 4 else 1))
    return x.astype(np.float32), padded, scale.astype(np.float32)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(0, 1, 96, 5, 4, "float", "same")
@example(0, MOST_ROWS, STEP + 32, 4, 4, "float", "same")
@example(0, MOST_ROWS + 1, 130, 33, 8, "dynamic", "same")
@example(0, 5, 9000, 4, 8, "float", "same")
@given(
    st.integers(0, 2**32),
    st.integers(1, 2 * MOST_ROWS),
    st.integers(1, 4 * STEP),
    st.integers(1, 70),
    st.sampled_from([4, 8]),
    st.sampled_from(["float", "dynamic", "static"]),
    st.sampled_from(["", "ends", "same"]),
)
def test_a_product_is_its_sum_of_integers(seed, rows, k, n, bits, activation, extreme):
    x, codes, scale = operands(seed, rows, k, n, bits, activation, extreme)
    bias = np.arange(n, dtype=np.float32)
    zero = np.float32(seed % 256)
    range_ = np.array([1, zero], np.float32) if activation == "static" else None
    used = x.astype(np.float64)
    if activation == "static":
        used = np.clip(used + zero, 0, 255) - zero
    columns = codes.shape[1] // scale.shape[1]
    weight = (codes * np.repeat(scale, columns, 1).astype(np.float64))[:, :k]
    weight_given = pack_int4(codes) if bits == 4 else codes
    out = quantized_linear(
        x, weight_given, scale, bias, range_, bits=bits, group_size=32 if bits == 4 else 0,
        activation=activation,
    )  # fmt: skip
    most = np.abs(used) @ np.abs(weight).T + bias
    # the inputs' rounding, and that of a sum of k floats, one after the other
    assert (np.abs(out - (used @ weight.T + bias)) <= (2e-6 + k * 2.0**-24) * most).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("activation", ["float", "dynamic", "static"])
def test_each_number_of_columns(bits, activation):
    """Whole steps, parts of one, and none: from 1 to 130."""
    for k in range(1, 131):
        x, codes, scale = operands(k, 3, k, 4, bits, activation, "")
        range_ = np.array([1, 0], np.float32) if activation == "static" else None
        used = np.maximum(x, 0) if activation == "static" else x
        weight = codes * np.repeat(scale, codes.shape[1] // scale.shape[1], 1).astype(np.float64)
        out = quantized_linear(
            x, pack_int4(codes) if bits == 4 else codes, scale, np.zeros(4, np.float32), range_,
            bits=bits, group_size=32 if bits == 4 else 0, activation=activation,
        )  # fmt: skip
        exact = used.astype(np.float64) @ weight[:, :k].T
        np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("activation", ["float", "dynamic"])
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS, MOST_ROWS + 3])
def test_a_row_that_is_not_finite_leaves_the_others_as_they_are(bits, activation, rows):
    x, codes, scale = operands(1, rows, 70, 9, bits, activation, "")
    given = pack_int4(codes) if bits == 4 else codes
    options = {"bits": bits, "group_size": 32 if bits == 4 else 0, "activation": activation}
    before = quantized_linear(x, given, scale, **options)
    for value in (np.nan, np.inf, -np.inf):
        wrong = x.copy()
        wrong[rows // 2, 7] = value
        out = quantized_linear(wrong, given, scale, **options)
        is_wrong = np.arange(rows) == rows // 2
        assert not np.isfinite(out[is_wrong]).all()
        np.testing.assert_allclose(out[~is_wrong], before[~is_wrong], rtol=1e-5, atol=1e-2)
