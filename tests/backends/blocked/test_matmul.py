from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.blocked import matmul as blocked
from tinytorch.jit import threads

KERNELS = [blocked.matmul_ijk, blocked.matmul_ikj, blocked.matmul_blocked]


def assert_product(out, a, b):
    """Within the bound of a sum of k products in any order: k eps |A| |B|."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert out.dtype == a.dtype and out.flags.c_contiguous
    assert np.all(np.abs(out - exact) <= (a.shape[-1] + 1) * np.finfo(a.dtype).eps * scale)


@pytest.mark.slow_beyond(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_all_loop_orders_agree(kernel, dtype, rng):
    for m, k, n in [(1, 1, 1), (5, 7, 3), (64, 64, 64), (3, 260, 514), (9, 1, 1030)]:
        a = rng.standard_normal((m, k)).astype(dtype)
        b = rng.standard_normal((k, n)).astype(dtype)
        out = np.full((m, n), np.nan, dtype)
        kernel(a, b, out)
        assert_product(out, a, b)


@pytest.mark.slow
@given(
    shape=st.tuples(*[st.integers(0, 40)] * 3),
    batch=st.sampled_from([((), ()), ((2,), ()), ((3, 1), (2,)), ((1,), (4,)), ((0,), (1,))]),
    transposed=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**32 - 1),
)
def test_matmul_of_any_shape_and_layout(shape, batch, transposed, seed):
    rng = np.random.default_rng(seed)
    m, k, n = shape
    a = rng.standard_normal((*batch[0], k, m) if transposed[0] else (*batch[0], m, k))
    b = rng.standard_normal((*batch[1], n, k) if transposed[1] else (*batch[1], k, n))
    a = a.astype(np.float32).swapaxes(-1, -2) if transposed[0] else a.astype(np.float32)
    b = b.astype(np.float32).swapaxes(-1, -2) if transposed[1] else b.astype(np.float32)
    out = blocked.matmul(a, b)
    assert out.shape == np.matmul(a, b).shape
    assert_product(out, a, b)


def test_matmul_of_views(rng):
    a = rng.standard_normal((20, 30)).astype(np.float32)
    b = rng.standard_normal((60, 50)).astype(np.float32)
    for left, right in [
        (a[::-1], b[::2, ::-1]),
        (a[:, ::-1], b[30:, 1:]),
        (np.broadcast_to(a[:1], (7, 30)), b[:30]),
    ]:
        assert_product(blocked.matmul(left, right), left, right)


def test_nan_and_infinity_go_through():
    a = np.array([[1, np.inf], [np.nan, 0]], np.float32)
    b = np.array([[2, 0], [1, 0]], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(blocked.matmul(a, b), a @ b)


def test_zero_padding_does_not_meet_infinity():
    # row 0 of a tile is inf, the padded rows of the block are 0: their product must not be added
    a = np.full((1, 5), np.inf, np.float32)
    b = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(blocked.matmul(a, b), np.full((1, 3), np.inf, np.float32))


@pytest.mark.slow
def test_parallel_version_shares_out_every_row(rng):
    a = rng.standard_normal((37, 20)).astype(np.float32)
    b = rng.standard_normal((20, 31)).astype(np.float32)
    for count in (1, 2, 3, 40):
        out = np.full((37, 31), np.nan, np.float32)
        blocked.matmul_parallel(count, a, b, out)
        assert_product(out, a, b)


def test_large_products_run_parallel_and_small_ones_do_not(monkeypatch, rng):
    chosen = []
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
    monkeypatch.setattr(
        blocked, "run_parallel", lambda parallel, serial, count, *args: chosen.append(count)
    )
    blocked.matmul(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
    blocked.matmul(np.ones((256, 256), np.float32), np.ones((256, 256), np.float32))
    assert chosen == [1, 2]


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("w_shape", [(10, 256), (1, 1), (7, 0), (600, 300)])
@pytest.mark.parametrize("x_shape", [(5,), (2, 3), (0,)])
def test_linear_equals_the_product_with_the_transposed_weights(w_shape, x_shape, rng):
    x, w, b = (rng.standard_normal(s) for s in ((*x_shape, w_shape[1]), w_shape, w_shape[:1]))
    np.testing.assert_allclose(blocked.linear(x, w, b), x @ w.T + b, atol=1e-11)
    np.testing.assert_allclose(blocked.linear(x[..., ::-1], w[::-1]), x[..., ::-1] @ w[::-1].T)


def test_dot_products_of_any_number_of_rows(rng):
    b = rng.standard_normal(200)
    for m, n, k in [(1, 1, 1), (4, 2, 9), (5, 3, 0), (6, 7, 33), (0, 2, 3)]:
        a, starts, c = rng.standard_normal((m, k)), rng.integers(0, 150, n), np.full((m, n), np.nan)
        blocked.dot_products(a, b, starts, c)
        rows = np.array([b[start : start + k] for start in starts])
        np.testing.assert_allclose(c, a @ rows.T, atol=1e-12)
