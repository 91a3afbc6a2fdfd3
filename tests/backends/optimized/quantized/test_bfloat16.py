"""Products with weights in bfloat16: those of float32, and nothing is read beyond a row's end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from tests.backends.optimized.child import run_script
from tests.backends.optimized.quantized.test_quantized import AVX2
from tinytorch.backends.optimized.quantized.linear import quantized_linear
from tinytorch.dtypes import Array, bfloat16_values, bits_of_bfloat16
from tinytorch.shapes_quantized import stored_columns

NAN = np.uint16(0x7FC0)


def halves(values: Array) -> Array:
    """Rows in bfloat16; what a row is filled up with, and the memory after the last, is NaN."""
    n, k = values.shape
    stored = stored_columns(k, 16, 0)
    memory = np.full(n * stored + 64, NAN)
    rows = memory[: n * stored].reshape(n, stored)
    rows[:, :k] = bits_of_bfloat16(values)
    return rows


def product(x: Array, codes: Array, bias: Array | None = None) -> Array:
    scale = np.ones((len(codes), 1), x.dtype)
    return quantized_linear(x, codes, scale, bias, bits=16, group_size=0, activation="float")


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 20])
def test_each_number_of_columns(rows: int, rng: np.random.Generator) -> None:
    """Whole steps, parts of one, and none; more rows than the kernel takes."""
    for k in (*range(1, 36), 127, 128, 129, 255, 256, 257):
        x = rng.standard_normal((rows, k)).astype(np.float32)
        codes, bias = halves(rng.standard_normal((7, k))), rng.standard_normal(7).astype(np.float32)
        weight = bfloat16_values(codes[:, :k]).astype(np.float64)
        exact = x.astype(np.float64) @ weight.T
        bound = 2.0**-22 * k * (np.abs(x) @ np.abs(weight).T + 1)
        assert (np.abs(product(x, codes) - exact) <= bound).all(), k
        assert (np.abs(product(x, codes, bias) - exact - bias) <= bound).all(), k


def test_special_values_stay_in_their_row_and_column(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 40)).astype(np.float32)
    x[1, 3], x[2, 39] = np.nan, np.inf
    weight = np.abs(rng.standard_normal((6, 40))) + 1
    weight[4, 0] = np.inf
    x[:, 0] = np.abs(x[:, 0]) + 1
    out = product(x, halves(weight))
    assert np.isnan(out[1]).all() and np.isposinf(out[2]).all()
    assert np.isposinf(out[[0, 3, 4], 4]).all()
    assert np.isfinite(out[[0, 3, 4]][:, [0, 1, 2, 3, 5]]).all()


def test_float64_is_exact_to_its_own_precision(rng: np.random.Generator) -> None:
    x, codes = rng.standard_normal((3, 70)), halves(rng.standard_normal((9, 70)))
    exact = x @ bfloat16_values(codes[:, :70]).astype(np.float64).T
    np.testing.assert_allclose(product(x, codes), exact, rtol=1e-13, atol=1e-13)


SCRIPT = """
import numpy as np
from tests.backends.optimized.quantized.test_bfloat16 import test_each_number_of_columns as test
test(1, np.random.default_rng(0)), test(8, np.random.default_rng(1))
print("same")
"""


@pytest.mark.slow
def test_without_the_jit() -> None:
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1") == "same"


@pytest.mark.slow
@pytest.mark.parametrize("features", ["+sse,+sse2", AVX2])
def test_on_other_vector_units(features: str, tmp_path: Path) -> None:
    here = binding.get_host_cpu_features()
    if missing := [f for f in features.split(",") if not here.get(f[1:])]:
        pytest.skip(f"this processor has no {' '.join(missing)}")
    assert run_script(
        SCRIPT, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features,
        TINYTORCH_CACHE_DIR=str(tmp_path),
    ) == "same"  # fmt: skip
