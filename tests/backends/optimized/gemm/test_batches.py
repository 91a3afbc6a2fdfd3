"""Products of a batch, whether they fit into L1 or not, with and without requests for the next."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends.optimized.gemm.batches import LEAST, fits_l1
from tinytorch.backends.optimized.gemm.blocking import KC_BYTES, L1_BYTES
from tinytorch.backends.optimized.gemm.panels import SCRATCH_BYTES
from tinytorch.backends.optimized.symbols import symbol
from tinytorch.backends.optimized.symbols.records import BatchRecord
from tinytorch.jit.library import kernel

GUARD = 7.5
_SCRATCH = np.empty(SCRATCH_BYTES, np.uint8)


def _make(real):
    gemm_batch = symbol("gemm_batch", real)[1]

    @kernel
    def run(record: int, a: int, b: int, c: int, scratch: int) -> None:
        gemm_batch(record, a, b, c, scratch)

    return run


RUN = {real: _make(real) for real in (np.float32, np.float64)}


@kernel
def compiled_fits(m: int, n: int, k: int, itemsize: int) -> bool:
    return fits_l1(m, n, k, itemsize)


def matrices(rng, real, outer, inner, rows, columns, layout):
    """(outer, inner, rows, columns): by rows, by columns, as heads of wider rows, or repeated."""
    if layout == "columns":
        x = rng.standard_normal((outer, inner, columns, rows)).astype(real)
        return x.swapaxes(-1, -2)
    if layout == "heads":  # (outer, rows, inner, columns)
        x = rng.standard_normal((outer, rows, inner + 1, columns + 3)).astype(real)
        return x[:, :, :inner, 1 : 1 + columns].transpose(0, 2, 1, 3)
    if layout == "repeated":
        x = rng.standard_normal((1, inner, rows, columns)).astype(real)
        return np.broadcast_to(x, (outer, inner, rows, columns))
    return rng.standard_normal((outer, inner, rows, columns)).astype(real)


layouts = st.sampled_from(["rows", "columns", "heads", "repeated"])
sizes = st.one_of(st.integers(1, 70), st.sampled_from([16, 32, 64, 100]))


@pytest.mark.slow
@settings(max_examples=80)
@given(
    real=st.sampled_from([np.float32, np.float64]),
    batch=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    shape=st.tuples(sizes, sizes, sizes),
    kinds=st.tuples(layouts, layouts),
    wide=st.booleans(),
    is_far=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_batch_of_products(real, batch, shape, kinds, wide, is_far, seed):
    rng, (m, n, k), (outer, inner) = np.random.default_rng(seed), shape, batch
    a = matrices(rng, real, outer, inner, m, k, kinds[0])
    b = matrices(rng, real, outer, inner, k, n, kinds[1])
    pitch = n + 5 if wide else n
    c = np.full((outer, m, inner, pitch), GUARD, real)  # the heads of a row side by side
    target = c.transpose(0, 2, 1, 3)
    record = BatchRecord(
        outer=outer, inner=inner, m=m, n=n, k=k,
        a_row=a.strides[2], a_column=a.strides[3], b_row=b.strides[2], b_column=b.strides[3],
        c_row=target.strides[2], a_outer=a.strides[0], a_inner=a.strides[1],
        b_outer=b.strides[0], b_inner=b.strides[1],
        c_outer=target.strides[0], c_inner=target.strides[1], is_far=int(is_far),
    )  # fmt: skip
    words = np.array(record, np.int64)
    addresses = [x.ctypes.data for x in (words, a, b, c, _SCRATCH)]
    RUN[real](*addresses)
    tolerance = 4 * k * np.finfo(real).eps * math.sqrt(k)
    np.testing.assert_allclose(target[..., :n], a @ b, rtol=tolerance, atol=tolerance)
    assert (target[..., n:] == GUARD).all()


@pytest.mark.parametrize("itemsize", [4, 8])
def test_which_products_fit(itemsize):
    assert compiled_fits(32, 32, 32, itemsize)
    assert not compiled_fits(LEAST - 1, 32, 32, itemsize)
    assert not compiled_fits(32, LEAST - 1, 32, itemsize)
    assert not compiled_fits(LEAST, LEAST, KC_BYTES // itemsize + 1, itemsize)
    side = math.isqrt(L1_BYTES // itemsize)
    assert not compiled_fits(side, side, LEAST, itemsize)
