"""Contiguous copies, and the order in which arrays are stored."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tinytorch.jit.contiguous import (
    contiguous,
    inverse,
    order_in_memory,
    order_of_strides,
    pays_by_tiles,
)

SHAPES = [(256, 256), (130, 200), (3, 128, 192), (1, 40_000), (40_000, 1), (0, 5), (2, 3, 70, 128)]


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_have_the_same_elements(shape, dtype, rng):
    x = (rng.standard_normal(shape) * 5).astype(dtype)
    views = [x, x.swapaxes(-1, -2), x[..., ::-1], x.swapaxes(-1, -2)[..., 1:], x.T]
    views += [
        np.broadcast_to(x, (2, *shape)),
        np.broadcast_to(x.swapaxes(-1, -2)[..., :1], x.T.shape) if x.ndim == 2 else x,
    ]
    views += [y[..., ::-1, :] for y in views[:4] if y.ndim > 1]
    views += [y[..., ::-1] for y in views]
    views += [np.broadcast_to(x[..., None], (*shape, n)) for n in (2, 16, 17)]
    for view in views:
        found = contiguous(view)
        assert found.flags.c_contiguous and found.dtype == dtype
        np.testing.assert_array_equal(found, view)
    assert contiguous(x) is x


def test_bits_of_nan_and_zero_are_copied(rng):
    x = rng.integers(0, 2**32, (256, 256), dtype=np.uint32).view(np.float32)
    np.testing.assert_array_equal(contiguous(x.T).view(np.uint32), x.view(np.uint32).T)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_exchanged_dimensions(order, dtype, rng):
    x = rng.integers(0, 100, (14, 17, 33, 10)).astype(dtype)
    view = x.transpose(order)
    for part in (view, view[1:], view[:, 1:], view[..., 1:], view[:, ::-1], view[None]):
        found = contiguous(part)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, part)


@pytest.mark.parametrize("shape", [(40_000, 1), (1, 40_000)])
def test_only_a_matrix_is_copied_by_tiles(shape):
    x = np.zeros(shape)
    for view in (x, x.T, x[::-1], x[:, ::-1], x.T[::-1]):
        assert not pays_by_tiles(view)


def test_the_order_in_memory():
    x = np.zeros((2, 3, 4))
    assert order_in_memory([x]) is None  # as it is
    assert order_in_memory([x.transpose(2, 0, 1)]) == (1, 2, 0)
    assert order_in_memory([x.T, x.T]) == (2, 1, 0)
    assert order_in_memory([x.T, np.ascontiguousarray(x.T)]) is None  # two orders
    assert order_in_memory([x[:, ::2]]) is None
    assert order_in_memory([np.broadcast_to(x[0], x.shape)]) is None
    assert inverse((1, 2, 0)) == (2, 0, 1)


def test_the_order_of_strides_is_that_of_slices_as_well():
    x = np.zeros((6, 5, 4))
    turned = x.transpose(2, 0, 1)
    assert order_of_strides([turned[1:, ::2], turned[:-1, 1::2]]) == (1, 2, 0)
    assert order_of_strides([turned]) == order_in_memory([turned])
    for arrays in ([x], [x[:, 1:]], [x.T, x.swapaxes(0, 1)], [turned[:, ::-1]]):
        assert order_of_strides(arrays) is None
    assert order_of_strides([np.broadcast_to(x[0], x.shape)]) is None
    assert order_of_strides([np.broadcast_to(x[..., :1], x.shape).T]) is None


def test_a_dimension_of_length_one_is_in_no_order():
    """NumPy gives it any stride: 0 for a new one."""
    x = np.zeros((6, 5, 4))
    for view in (x.T[:, None], x.T[..., None], x.T[None], x[:, :1].T, x[1:, :, None].T):
        order = order_of_strides([view])
        assert order is not None
        steps = [view.strides[d] for d in order if view.shape[d] > 1]
        assert steps == sorted(steps, reverse=True)
    assert order_in_memory([x.T[:, None]]) == (1, 3, 2, 0)
    assert order_of_strides([x[:, None, 1:]]) is None
