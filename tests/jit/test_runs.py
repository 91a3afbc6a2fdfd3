"""Copies by rows are those that NumPy makes, and write nothing else."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from tinytorch.jit import runs
from tinytorch.jit.caches import Cache
from tinytorch.jit.contiguous import contiguous, in_order
from tinytorch.jit.library import JIT
from tinytorch.jit.runs import copied_by_rows, copy_into

DTYPES = [np.bool_, np.uint8, np.int16, np.float16, np.float32, np.int64, np.float64, np.complex128]


@pytest.fixture(autouse=True, scope="module")
def every_copy_by_rows():
    """Also a few rows, which NumPy would copy; and in small blocks."""
    with patch.multiple(runs, FEW=1, FEWEST=1, NEAR=64, SHORT=8, FEW_NUMBERS=1000):
        runs._plan.cache_clear()
        yield
    runs._plan.cache_clear()


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


def numbers(shape, dtype, seed=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype is np.bool_ else 256, size, np.uint8)
    return raw.view(dtype).reshape(shape)


@st.composite
def views(draw, shape):
    """A function of a dtype: a view of that shape, of an array of which it may be a part."""
    ndim = len(shape)
    order = draw(st.permutations(range(ndim)))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2])) for _ in shape]
    before = [draw(st.integers(0, 2)) for _ in shape]
    after = [draw(st.integers(0, 2)) for _ in shape]
    shift = draw(st.sampled_from([0, 0, 1]))

    def make(dtype):
        lengths = [
            abs(s) * n + b + a for n, s, b, a in zip(shape, steps, before, after, strict=True)
        ]
        dtype = np.dtype(dtype)
        memory = np.zeros(int(np.prod(lengths)) * dtype.itemsize + 16, np.uint8)
        end = len(memory) - 16 + shift
        memory = memory[shift:end].view(dtype)
        whole = memory.reshape([lengths[d] for d in order]).transpose(np.argsort(order))
        keys = []
        for n, s, b in zip(shape, steps, before, strict=True):
            part = range(b, b + abs(s) * n, abs(s)) if s > 0 else range(b + -s * n - 1, b - 1, s)
            part = part[:n]
            stop = part.stop if part.stop >= 0 else None
            keys.append(slice(part.start, stop, part.step) if n else slice(0, 0))
        return whole, (*keys, ...)

    return make


@st.composite
def copies(draw):
    longest = st.one_of(st.integers(0, 7), st.integers(2, 3), st.sampled_from([7, 17, 33, 70]))
    shape = tuple(draw(st.lists(longest, max_size=4)))
    while np.prod(shape) > 20_000:
        shape = shape[1:]
    repeated = [draw(st.integers(0, 4)) == 0 for _ in shape]
    dtype = draw(st.sampled_from(DTYPES))
    small = tuple(1 if r and n else n for n, r in zip(shape, repeated, strict=True))
    return shape, dtype, draw(views(small)), draw(views(shape))


@given(copies())
@settings(max_examples=300)
def test_any_strides(given):
    shape, dtype, of_source, of_target = given
    whole, key = of_source(dtype)
    whole[...] = numbers(whole.shape, dtype)
    x = np.broadcast_to(whole[key], shape)
    whole, key = of_target(dtype)
    whole[...] = numbers(whole.shape, dtype, seed=1)
    expected = whole.copy()
    expected[key] = x
    copy_into(whole[key], x)
    np.testing.assert_array_equal(bits(whole), bits(expected))
    for copy in (contiguous(x), in_order(x)):
        assert copy.flags.c_contiguous and copy.dtype == dtype and copy.shape == shape
        assert copy is x or not np.shares_memory(copy, x)
        np.testing.assert_array_equal(bits(copy), bits(x))


@given(
    st.integers(1, 140), st.integers(1, 40), st.sampled_from(DTYPES), st.booleans(), st.booleans()
)
@example(1, 1, np.uint8, False, False)
@settings(max_examples=200)
def test_rows_of_any_length(n, rows, dtype, is_reversed, is_part):
    """Of the bytes beside a row none is written."""
    x = numbers((rows, n + 1), dtype)[:, 1:]
    x = x[:, ::-1] if is_reversed else x
    out = numbers((rows, n + 2), dtype, seed=1)[:, 1:-1] if is_part else np.empty((rows, n), dtype)
    whole = out if out.base is None else out.base.view(np.uint8).copy()
    copy_into(out, x)
    np.testing.assert_array_equal(bits(out), bits(x))
    if is_part:
        width = (n + 2) * out.itemsize
        after, before = out.base.view(np.uint8).reshape(rows, width), whole.reshape(rows, width)
        for edge in (slice(0, out.itemsize), slice(width - out.itemsize, width)):
            np.testing.assert_array_equal(after[:, edge], before[:, edge])


def test_read_only_and_unaligned():
    memory = numbers((1 + 4 * 600,), np.uint8)
    x = memory[1:].view(np.float32).reshape(200, 3)[:, :2]
    x.flags.writeable = False
    assert not x.flags.aligned
    out = np.empty(x.shape, x.dtype)
    assert copied_by_rows(out, x)
    np.testing.assert_array_equal(bits(out), bits(x))


def test_what_broadcasts_or_is_cast():
    x, out = numbers((300, 1), np.uint8), np.zeros((300, 3), np.int64)
    copy_into(out, x)
    np.testing.assert_array_equal(out, np.broadcast_to(x, out.shape))
    with pytest.raises(ValueError, match="broadcast"):
        copy_into(out, numbers((300, 2), np.int64))


@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
def test_numpy_copies_what_it_copies_as_fast():
    with patch.multiple(runs, FEW=128, FEWEST=4096, SHORT=16, NEAR=2**14, FEW_NUMBERS=5):
        runs._plan.cache_clear()
        for shape, is_ours in [
            ((4096, 3), True),
            ((100, 3), False),  # few rows
            ((4096, 600), False),  # long ones
            ((64, 64, 0), False),
            ((200, 20), True),
        ]:
            x = np.zeros((*shape[:-1], shape[-1] + 1), np.float32)[..., 1:]
            assert copied_by_rows(np.empty(shape, np.float32), x) == is_ours
        x = np.zeros((4096, 64), np.float32)
        assert not copied_by_rows(np.empty((64, 4096), np.float32), x.T)
        assert copied_by_rows(np.empty((4096, 64), np.float32), x[:, ::-1])
        few = np.zeros((2,) * 14)  # an index of so many dimensions takes long
        assert not copied_by_rows(np.empty_like(few, order="C"), few.T)
        for size, is_near in [(4, True), (12, False)]:  # `pixel_unshuffle`
            images = np.zeros((64, 14, 2, size, 2), np.float32).transpose(0, 2, 4, 1, 3)
            assert copied_by_rows(np.empty(images.shape, np.float32), images) == is_near
        runs._plan.cache_clear()


@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
def test_numpy_copies_rows_that_drive_each_other_out_of_the_cache(monkeypatch):
    monkeypatch.setattr(runs, "core_caches", lambda: (Cache(48 * 1024, 12, 64), None))
    runs._plan.cache_clear()
    for width, rows, columns, is_ours in [
        (1024, 300, 8, False),  # the same set for all
        (1024, 12, 8, True),  # which holds twelve
        (1024, 300, 128, True),  # a row of many lines: few of them wait
        (1040, 300, 8, True),
        (2048, 300, 8, False),
        (512, 300, 8, False),
        (128, 300, 8, True),
    ]:
        out, x = np.zeros((rows, width), np.float32), numbers((rows, columns), np.float32)
        assert copied_by_rows(out[:, 8 : 8 + columns], x) == is_ours, (width, rows, columns)
        copy_into(out[:, 8 : 8 + columns], x)
        np.testing.assert_array_equal(bits(out[:, 8 : 8 + columns]), bits(x))
        assert not out[:, :8].any() and not out[:, 8 + columns :].any()
    runs._plan.cache_clear()
