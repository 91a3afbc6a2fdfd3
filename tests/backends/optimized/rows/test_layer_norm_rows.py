"""Rows of any length, in memory that has something else before and behind them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends.optimized.rows import layer_norm, layer_norm_rows
from tinytorch.backends.optimized.rows.layer_norm_rows import add_weight, differentiate, normalise
from tinytorch.jit.library import kernel

EPS, GUARD = 1e-5, 7.5
reals = st.sampled_from([np.float32, np.float64])


def _compiled(real):
    @kernel
    def forward(row: int, count: int, w: int, b: int, eps: float, streamed: int, to: int) -> None:
        normalise(real, row, count, w, b, real(eps), streamed, to)

    @kernel
    def weight(upper: int, row: int, count: int, eps: float, dw: int) -> None:
        add_weight(real, upper, row, count, real(eps), dw)

    @kernel
    def gradients(
        upper: int, row: int, count: int, w: int, eps: float, add: int, streamed: int, to: int,
        dw: int, db: int,
    ) -> None:  # fmt: skip
        differentiate(real, upper, row, count, w, real(eps), add, streamed, to, dw, db)

    return forward, weight, gradients


KERNELS = {real: _compiled(real) for real in (np.float32, np.float64)}


class Row:
    """Numbers in memory with a guard on both sides, aligned to vectors or to nothing."""

    def __init__(self, numbers, is_aligned=False):
        lanes = 64 // numbers.itemsize
        self.memory = np.full(numbers.size + 3 * lanes, GUARD, numbers.dtype)
        to_line = -self.memory.ctypes.data // numbers.itemsize % lanes
        self.first = to_line + (lanes if is_aligned else 1)
        self.stop = self.first + numbers.size
        self.memory[self.first : self.stop] = numbers
        self.address = self.memory[self.first :].ctypes.data
        assert (self.address % 64 == 0) is is_aligned

    def read(self):
        assert (self.memory[: self.first] == GUARD).all()
        assert (self.memory[self.stop :] == GUARD).all()
        return self.memory[self.first : self.stop]


def exact(g, x, w):
    """The normalised row, and the gradient for x."""
    g, x, w = (a.astype(np.longdouble) for a in (g, x, w))
    scale = 1 / np.sqrt(x.var() + EPS)
    normal, h = (x - x.mean()) * scale, g * w
    return normal, scale * (h - h.mean() - normal * (h * normal).mean())


@settings(deadline=None)  # the first draws compile
@given(
    real=reals,
    count=st.integers(1, 300),
    add=st.booleans(),
    streamed=st.booleans(),
    is_aligned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_and_its_gradients(real, count, add, streamed, is_aligned, seed):
    rng = np.random.default_rng(seed)
    forward, weight, gradients = KERNELS[real]
    g, x, w, b, start = (rng.standard_normal(count).astype(real) for _ in range(5))
    x += real(rng.choice([0, 10]))
    rows = [Row(a, is_aligned) for a in (g, x, w, b, start, start, start, start, start)]
    upper, row, factor, shift, out, dx, dw, db, only_dw = rows
    forward(row.address, count, factor.address, shift.address, EPS, int(streamed), out.address)
    places = int(streamed), *[r.address for r in (dx, dw, db)]
    gradients(upper.address, row.address, count, factor.address, EPS, int(add), *places)
    weight(upper.address, row.address, count, EPS, only_dw.address)
    normal, change = exact(g, x, w)
    # an error eps |x| of the mean is magnified by 1 / sqrt(var + eps)
    scale = float(1 / np.sqrt(x.astype(float).var() + EPS))
    bound = 100 * float(np.finfo(real).eps) * (1 + np.abs(x).max()) * scale
    for found, wanted, more in (
        (out, normal * w + b, 1),
        (dx, change + (start if add else 0), 10 * scale),
        (dw, start + g * normal, 1),
        (db, start + g, 1),
        (only_dw, start + g * normal, 1),
    ):
        np.testing.assert_allclose(found.read(), wanted.astype(float), atol=4 * bound * more)
    for kept, wanted in ((upper, g), (row, x), (factor, w), (shift, b)):
        np.testing.assert_array_equal(kept.read(), wanted)


@pytest.mark.parametrize("real", KERNELS)
def test_a_twin_does_what_the_kernel_does(real, rng):
    numbers = [rng.standard_normal(37).astype(real) for _ in range(4)]
    found = []
    for run in (KERNELS[real][0], partial(layer_norm_rows._normalise_twin, real)):
        x, w, b, out = rows = [Row(a) for a in numbers]
        run(x.address, 37, w.address, b.address, real(EPS), 0, out.address)
        found.append([row.read() for row in rows])
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("real", KERNELS)
@pytest.mark.parametrize("count", [7, 64, 150])
def test_a_row_that_goes_past_the_caches_has_the_same_bits(real, count, rng):
    forward, _, gradients = KERNELS[real]
    numbers = [rng.standard_normal(count).astype(real) for _ in range(7)]
    found = []
    for streamed in (0, 1):
        rows = [Row(a, is_aligned=True) for a in numbers]
        x, w, b, g, dx, dw, db = (row.address for row in rows)
        gradients(g, x, count, w, EPS, 0, streamed, dx, dw, db)
        forward(x, count, w, b, EPS, streamed, g)
        found.append([row.read() for row in rows])
    np.testing.assert_array_equal(*found)
    assert not np.array_equal(found[1][3], numbers[3])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_nan_and_no_other(bad, rng):
    x = rng.standard_normal((5, 20)).astype(np.float32)
    x[2, 19] = bad
    ones = np.ones(20, np.float32)
    out = layer_norm.layer_norm(x, ones, ones, eps=EPS)
    assert np.isnan(out[2]).all() and np.isfinite(np.delete(out, 2, 0)).all()


def test_equal_numbers_are_at_the_mean():
    x = np.full((3, 49), 0.1, np.float32)
    zeros = np.zeros(49, np.float32)
    assert np.abs(layer_norm.layer_norm(x, zeros + 1, zeros, eps=EPS)).max() < 1e-5
