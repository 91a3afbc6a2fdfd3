"""Rows of scores of any length, in memory that has something else before and behind them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends.optimized.attention.row_kernels import (
    ROOM,
    differentiate,
    exponentiate,
    find_largest,
    scale,
)
from tinytorch.jit.cpu import MOST_ROWS
from tinytorch.jit.library import kernel

WIDER = {np.float32: np.float64, np.float64: np.longdouble}
reals = st.sampled_from([np.float32, np.float64])


def _compiled(real):
    @kernel
    def largest(row: int, count: int, to: int) -> None:
        find_largest(real, row, count, to)

    @kernel
    def exponential(row: int, count: int, shift: float, to: int) -> None:
        exponentiate(real, row, count, real(shift), to)

    @kernel
    def gradient(weights: int, change: int, count: int, factor: float) -> None:
        differentiate(real, weights, change, count, real(factor))

    @kernel
    def product(row: int, count: int, factor: float, to: int) -> None:
        scale(real, row, count, real(factor), to)

    return largest, exponential, gradient, product


KERNELS = {real: _compiled(real) for real in WIDER}


class Row:
    """Numbers in memory, with ROOM behind them and a guard on both sides."""

    GUARD = 7.5

    def __init__(self, numbers):
        self.size, itemsize = numbers.size, numbers.itemsize
        self.room = ROOM // itemsize
        self.memory = np.full(2 + self.size + self.room, self.GUARD, numbers.dtype)
        self.memory[1 : 1 + self.size] = numbers
        self.memory[1 + self.size : -1] = np.nan  # whatever was there before
        self.address = self.memory.ctypes.data + itemsize

    def read(self, beyond=0):
        assert self.memory[0] == self.memory[-1] == self.GUARD
        return self.memory[1 : 1 + self.size + beyond]


def exponentials(x, shift):
    row, total = Row(x), np.zeros(1, x.dtype)
    KERNELS[x.dtype.type][1](row.address, x.size, shift, total.ctypes.data)
    found = row.read(MOST_ROWS)
    np.testing.assert_array_equal(found[x.size :], 0)
    return found[: x.size], total[0]


@settings(max_examples=40)
@given(real=reals, size=st.integers(0, 150), seed=st.integers(0, 2**32 - 1))
def test_the_largest_of_a_row(real, size, seed):
    rng = np.random.default_rng(seed)
    x, to = rng.standard_normal(size).astype(real), np.zeros(1, real)
    row = Row(x)
    KERNELS[real][0](row.address, size, to.ctypes.data)
    assert to[0] == x.max(initial=-np.inf)
    if size:
        x[rng.integers(size)] = np.nan
        row = Row(x)
        KERNELS[real][0](row.address, size, to.ctypes.data)
        assert to[0] == np.fmax.reduce(x, initial=-np.inf)


@settings(max_examples=40)
@given(real=reals, size=st.integers(0, 150), seed=st.integers(0, 2**32 - 1))
def test_exponentials_of_a_row_and_their_sum(real, size, seed):
    rng = np.random.default_rng(seed)
    x = (30 * rng.standard_normal(size)).astype(real)
    found, total = exponentials(x, x.max(initial=0))
    exact = np.exp((x - x.max(initial=0)).astype(WIDER[real]))
    np.testing.assert_allclose(found, exact, rtol=30 * np.finfo(real).eps, atol=1e-37)
    np.testing.assert_allclose(total, found.sum(), rtol=200 * np.finfo(real).eps)


@pytest.mark.parametrize("real", WIDER)
def test_the_error_of_exponentials_is_what_is_said(real):
    x = -np.concatenate([np.linspace(0, 1, 4001), np.linspace(0, 85, 4001)]).astype(real)
    found, _ = exponentials(x, 0.0)
    exact = np.exp(x.astype(WIDER[real]))
    ulps = np.abs(found - exact) / np.spacing(exact.astype(real))
    assert (ulps <= 2.5 + np.abs(x) / 5).all(), x[(ulps - np.abs(x) / 5).argmax()]


@pytest.mark.parametrize("real", WIDER)
def test_edges_of_exponentials(real):
    info = np.finfo(real)
    far = np.log(info.smallest_normal) - 1
    x = np.array([0, -0.0, -np.inf, info.min, far, 2 * far, -info.tiny], real)
    found, _ = exponentials(x, 0.0)
    np.testing.assert_array_equal(found, [1, 1, 0, 0, 0, 0, 1])
    (last,), _ = exponentials(np.array([far + 0.9], real), 0.0)
    assert 0 <= last <= info.smallest_normal  # subnormal, or 0


@pytest.mark.parametrize("position", [0, 3, 36])
def test_nan_of_any_bits_stays_where_it_is(position):
    for pattern in (0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0x7F800001, 0x7FC001FF):
        x = np.zeros(37, np.float32)
        x.view(np.uint32)[position] = pattern
        found, total = exponentials(x, 0.0)
        assert np.isnan(total)
        assert np.isnan(found).nonzero()[0].tolist() == [position]


def test_nothing_is_certain_about_an_infinite_score():
    found, total = exponentials(np.array([0, np.inf], np.float32), np.inf)
    assert found[0] == 0
    assert np.isnan(found[1])
    assert np.isnan(total)


@settings(max_examples=40)
@given(real=reals, size=st.integers(0, 150), seed=st.integers(0, 2**32 - 1))
def test_gradients_of_a_row(real, size, seed):
    rng = np.random.default_rng(seed)
    weights, change = rng.random(size).astype(real), rng.standard_normal(size).astype(real)
    factor = real(1 / max(weights.sum(), 1))
    first, second = Row(weights), Row(change)
    first.memory[1 + size : -1] = 0
    KERNELS[real][2](first.address, second.address, size, factor)
    w, g = weights.astype(WIDER[real]) * factor, change.astype(WIDER[real])
    tolerance = {"rtol": 100 * np.finfo(real).eps, "atol": 100 * np.finfo(real).eps}
    np.testing.assert_allclose(first.read(), w, **tolerance)
    found = second.read(MOST_ROWS)
    np.testing.assert_allclose(found[:size], w * (g - (w * g).sum()), **tolerance)
    np.testing.assert_array_equal(found[size:], 0)


def test_a_sum_that_is_nan_stays_in_its_row():
    weights, change = np.ones(5, np.float32), np.full(5, np.nan, np.float32)
    first, second = Row(weights), Row(change)
    KERNELS[np.float32][2](first.address, second.address, 5, np.nan)
    assert np.isnan(second.read()).all()
    np.testing.assert_array_equal(second.read(MOST_ROWS)[5:], 0)


@settings(max_examples=40)
@given(real=reals, size=st.integers(0, 150), seed=st.integers(0, 2**32 - 1))
def test_a_row_times_a_factor(real, size, seed):
    x = np.random.default_rng(seed).standard_normal(size).astype(real)
    x[: size // 8] = np.nan
    source, target = Row(x), Row(np.zeros_like(x))
    KERNELS[real][3](source.address, size, 0.3, target.address)
    np.testing.assert_array_equal(source.read(), x)
    np.testing.assert_array_equal(target.read(), x * real(0.3))
    assert np.isnan(target.read(target.room)[size:]).all()  # what is behind it stays
    KERNELS[real][3](source.address, size, 0.3, source.address)
    np.testing.assert_array_equal(source.read(), x * real(0.3))
