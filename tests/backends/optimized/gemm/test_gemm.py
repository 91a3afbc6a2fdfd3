from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.backends.optimized.child import run_script
from tinytorch import ops
from tinytorch.backends.optimized.gemm import small
from tinytorch.backends.optimized.gemm.blocking import L2_BYTES
from tinytorch.backends.optimized.gemm.loops import gemm_f32
from tinytorch.backends.optimized.gemm.matmul import (
    linear,
    linear_weight,
    matmul,
    own_affine,
    scratch,
)
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32
from tinytorch.backends.optimized.gemm.packing import pack_f32
from tinytorch.backends.optimized.gemm.panels import NARROW_VECTORS, make_pack_block
from tinytorch.dtypes import meta_of_array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import NOTHING, Matrix, Rows, Stack

DTYPES = (np.float32, np.float64)
LAYOUTS = ("C", "transposed", "reversed", "every second", "unaligned", "broadcast")


def matrix(rng, shape, dtype, layout="C"):
    """A random matrix of a given memory layout."""
    m, n = shape
    if layout == "transposed":
        return rng.standard_normal((n, m)).astype(dtype).T
    if layout == "reversed":
        return rng.standard_normal(shape).astype(dtype)[::-1, ::-1]
    if layout == "every second":
        return rng.standard_normal((2 * m, 2 * n)).astype(dtype)[::2, ::2]
    if layout == "unaligned":
        raw = np.zeros(m * n * np.dtype(dtype).itemsize + 1, np.uint8)[1:]
        x = raw.view(dtype).reshape(shape)
        x[...] = rng.standard_normal(shape)
        return x
    if layout == "broadcast":
        return np.broadcast_to(rng.standard_normal((1, n)).astype(dtype), shape)
    return rng.standard_normal(shape).astype(dtype)


def normal(rng, shape):
    return rng.standard_normal(shape).astype(np.float32)


FAR = Stack(1 << 46, 64, 64)


@kernel
def _tile(a, b, start, c, ahead, count):
    of_a, of_b = Matrix(address(a), *a.strides), Rows(address(b), b.strides[0])
    begin, to = Rows(address(start), start.strides[0]), Rows(address(c), c.strides[0])
    gemm_tile_f32(a.shape[0], b.shape[1], b.shape[0], of_a, of_b, begin, to, 0, ahead, count)


@kernel
def _accumulate(a, b, c, relu, scratch):
    to = Rows(address(c), c.strides[0])
    left, right = Matrix(address(a), *a.strides), Matrix(address(b), *b.strides)
    gemm_f32(a.shape[0], b.shape[1], a.shape[1], left, right, to, to, relu, scratch)


def assert_product(result, a, b, start=0.0):
    """|result - a @ b| <= (k + 2) eps |a| @ |b|, the bound for any order of summation.

    Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.5.
    """
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[-1] + 2) * np.finfo(a.dtype).eps * (np.abs(a64) @ np.abs(b64) + np.abs(start))
    assert result.dtype == a.dtype
    assert result.flags.c_contiguous
    # k eps bounds the error of the reference too, which for float64 has the same precision
    assert np.all(np.abs(result - (a64 @ b64 + start)) <= 2 * bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_layouts(rng, dtype, left, right):
    for m, k, n in ((1, 1, 1), (1, 40, 33), (40, 33, 1), (7, 3, 65), (13, 130, 70), (70, 20, 5)):
        a, b = matrix(rng, (m, k), dtype, left), matrix(rng, (k, n), dtype, right)
        assert_product(matmul(a, b), a, b)


@given(
    m=st.integers(0, 40), k=st.integers(0, 80), n=st.integers(0, 150),
    left=st.sampled_from(LAYOUTS[:4]), right=st.sampled_from(LAYOUTS[:4]),
    dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_size(m, k, n, left, right, dtype, seed):
    rng = np.random.default_rng(seed)
    a, b = matrix(rng, (m, k), dtype, left), matrix(rng, (k, n), dtype, right)
    assert_product(matmul(a, b), a, b)
    w, bias = np.asarray(b.T), rng.standard_normal(n).astype(dtype)
    assert_product(linear(a, w, bias), a, b, bias)
    assert_product(linear(a, w), a, b)


@pytest.mark.parametrize("layouts", [*itertools.product(("C", "transposed"), repeat=2)])
@pytest.mark.parametrize(
    "shape", ((301, 450, 403), (130, 400, 333), (64, 512, 1024), (29, 1100, 260), (601, 97, 70))
)
def test_operands_that_are_copied_first(rng, shape, layouts):
    """Long strides, several blocks of k and of rows, ragged panels of both."""
    m, k, n = shape
    a, b = matrix(rng, (m, k), np.float32, layouts[0]), matrix(rng, (k, n), np.float32, layouts[1])
    assert_product(matmul(a, b), a, b)
    bias = rng.standard_normal(n).astype(np.float32)
    assert_product(linear(a, b.T, bias), a, b, bias)


@pytest.mark.parametrize(
    "layouts", [*itertools.product(("C", "transposed", "unaligned"), ("C", "unaligned"))]
)
@pytest.mark.parametrize("k, n", ((300, 130), (700, 67), (17, 513), (40, 1344)))
def test_heights_of_a_product_whose_right_operand_is_in_a_cache(rng, layouts, k, n):
    """In L2: narrow panels and tall tiles, as even as they can be; in L1: panel by panel."""
    unit = host_vector_unit()
    most = unit.tile_rows(NARROW_VECTORS)
    b, bias = matrix(rng, (k, n), np.float32, layouts[1]), normal(rng, (n,))
    for m in (*range(8, 2 * most + 3), 5 * most + 1, 101):
        a = matrix(rng, (m, k), np.float32, layouts[0])
        assert_product(matmul(a, b), a, b)
        assert_product(linear(a, b.T, bias), a, b, bias)


@pytest.mark.parametrize("layouts", [*itertools.product(("C", "transposed"), repeat=2)])
@pytest.mark.parametrize("k", (1, 4, 5, 8, 9, 17, 140))
def test_few_steps_of_k(rng, layouts, k):
    """Row by row or in tiles; a C that is larger than L2 is written in the order of memory."""
    n = 67 if k > 100 else 513
    beyond_l2 = L2_BYTES // (4 * n) + 1
    b, bias = matrix(rng, (k, n), np.float32, layouts[1]), normal(rng, (n,))
    for m in (3, 25, beyond_l2):
        a = matrix(rng, (m, k), np.float32, layouts[0])
        assert_product(matmul(a, b), a, b)
        assert_product(linear(a, b.T, bias), a, b, bias)


@pytest.mark.parametrize("n", (1344, 2048, 2049, 2053, 2100))
@pytest.mark.parametrize("first", (0, 4, 7, 15))
def test_a_first_panel_that_aligns_the_others(rng, n, first):
    """Up to the last block, which may have fewer columns than that panel; around C nothing is."""
    a, b = normal(rng, (9, 40)), normal(rng, (40, 2176))[:, first : first + n]
    out = np.full((9, n + 32), 7, np.float32)
    out[:, 16:-16] = 0
    _accumulate(a, b, out[:, 16:-16], 0, scratch())
    assert_product(out[:, 16:-16].copy(), a, b)
    assert (out[:, :16] == 7).all() and (out[:, -16:] == 7).all()


@pytest.mark.parametrize("steps", (0, 1, 5, 127, 128, 400, 1000))
def test_what_a_tile_asks_for_changes_no_bit(rng, steps):
    """In phases and in one go, in blocks of k; addresses that nobody has may be asked for."""
    unit = host_vector_unit()
    lanes, widest = unit.register_bytes // 4, unit.tile_vectors[-1]
    for rows in range(1, unit.tile_rows(widest) + 1):
        a, b, start = (normal(rng, s) for s in ((rows, steps), (steps, widest * lanes), (rows, 99)))
        found = []
        for ahead, count in (
            (NOTHING, 0),
            (Stack(b.ctypes.data, b.strides[0], 3 * b.strides[0]), 3),
            (FAR, 1),
        ):
            c = np.zeros((rows, 99), np.float32)
            _tile(a, b, start, c, ahead, count)
            found.append(c)
        columns = widest * lanes
        assert_product(found[0][:, :columns].copy(), a, b, start[:, :columns])
        assert not found[0][:, columns:].any()
        assert all(np.array_equal(c, found[0]) for c in found)


def test_a_ragged_tile_adds_to_its_own_columns_once(rng):
    """Its last vector ends with the row and begins within the vector before."""
    unit = host_vector_unit()
    lanes = unit.register_bytes // 4
    most = unit.tile_vectors[-1] * lanes
    for columns in range(1, most + 1):
        if (columns + lanes - 1) // lanes not in unit.tile_vectors:
            continue  # no panel is as wide
        a, b, start = normal(rng, (3, 20)), normal(rng, (20, columns)), normal(rng, (3, most + 9))
        c = start.copy()
        _tile(a, b, c, c, NOTHING, 0)
        assert_product(c[:, :columns].copy(), a, b, start[:, :columns])
        assert np.array_equal(c[:, columns:], start[:, columns:])


def test_a_ragged_tile_leaves_out_what_is_beside_aligned_rows(rng):
    """It reads the last vector of B whole, and stores the lanes of its columns alone."""
    unit = host_vector_unit()
    lanes = unit.register_bytes // 4
    most = unit.tile_vectors[-1] * lanes
    wide = empty((20, most + lanes), np.dtype(np.float32))
    wide.fill(np.nan)
    for columns in range(1, most + 1):
        if (columns + lanes - 1) // lanes not in unit.tile_vectors:
            continue  # no panel is as wide
        a, b, start = normal(rng, (3, 20)), wide[:, :columns], normal(rng, (3, most + 9))
        b[...] = normal(rng, b.shape)
        c = start.copy()
        _tile(a, b, c, c, NOTHING, 0)
        assert_product(c[:, :columns].copy(), a, b.copy(), start[:, :columns])
        assert np.array_equal(c[:, columns:], start[:, columns:])


def test_what_is_behind_the_columns_of_a_panel_is_zero(rng):
    """Where tiles multiply it: a float that was an integer may take a hundred times as long."""
    unit = host_vector_unit()
    pack_block, lanes = make_pack_block(pack_f32, 4), unit.register_bytes // 4

    @kernel
    def packed(n: int, k: int, b: int, row: int, column: int, panels: int) -> None:
        pack_block(n, k, Matrix(b, row, column), panels, 0, 0)

    for n, layout in itertools.product((1, lanes - 1, lanes, 2 * lanes + 3), ("C", "transposed")):
        b, whole = matrix(rng, (70, n), np.float32, layout), -(-n // lanes) * lanes
        panel = np.full((70, whole), 7, np.float32)
        packed(n, 70, b.ctypes.data, *b.strides, panel.ctypes.data)
        assert np.array_equal(panel[:, :n], b)
        assert (panel[:, n:] == (0 if unit.has_masks else 7)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 10, 17, 70))
def test_a_long_left_operand_stored_by_columns(rng, dtype, n):
    """C.T is computed, some rows of C at a time, and transposed."""
    itemsize = np.dtype(dtype).itemsize
    k = 300
    m = max(2 * L2_BYTES // (k * itemsize), 2500)
    a, b = matrix(rng, (m, k), dtype, "transposed"), matrix(rng, (k, n), dtype)
    bias = rng.standard_normal(n).astype(dtype)
    assert_product(own_affine(a, b, bias, 1), a, b, bias)
    if dtype is np.float32:
        start = rng.standard_normal((m, n)).astype(dtype)
        c = start.copy()
        _accumulate(a, b, c, 0, scratch())
        assert_product(c, a, b, start)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("count", (1, 2))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    (
        (200, 1500, 300),
        (300, 700, 2200),
        (90, 5000, 64),
        (2500, 30, 20),
        (257, 1100, 1100),
        (1000, 500, 300),
    ),
)
def test_blocks_of_large_matrices(rng, monkeypatch, count, dtype, shape):
    """Several blocks along each axis, packed and not, on one and two threads."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: count)
    m, k, n = shape
    for left, right in (("C", "C"), ("transposed", "transposed"), ("C", "transposed")):
        a, b = matrix(rng, (m, k), dtype, left), matrix(rng, (k, n), dtype, right)
        assert_product(matmul(a, b), a, b)
        bias = rng.standard_normal(n).astype(dtype)
        assert_product(linear(a, b.T, bias), a, b, bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", (7, 64, 391, 2500))
def test_few_rows_and_a_large_matrix(rng, dtype, k):
    """Where B comes from memory a few rows of it are read at a time, the last of them again."""
    n = 300_000 // k
    w, bias = rng.standard_normal((n, k)).astype(dtype), rng.standard_normal(n).astype(dtype)
    x = rng.standard_normal((9, k)).astype(dtype)
    for m in range(1, 10):
        assert_product(linear(x[:m], w, bias), x[:m], w.T, bias)
        assert_product(linear(x[:m], w[::-1]), x[:m], w[::-1].T)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shapes",
    (
        ((3, 4, 5), (3, 5, 6)), ((3, 4, 5), (5, 6)), ((4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)), ((2, 3, 1, 4, 5), (7, 5, 6)), ((0, 4, 5), (5, 6)),
        ((2, 0, 4, 5), (1, 1, 5, 6)), ((2, 3, 0), (0, 4)), ((2, 0, 3, 2, 4), (1, 4, 5)),
        ((8, 100, 60), (8, 60, 90)), ((2, 1, 3, 3), (1, 40, 3, 50)),
    ),
)  # fmt: skip
def test_batches_broadcast(rng, dtype, shapes):
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    assert_product(matmul(a, b), a, b)
    # attention: heads split off the last dimension, so that no two batch dimensions merge
    swapped = np.swapaxes(np.ascontiguousarray(np.swapaxes(b, -1, -2)), -1, -2)
    assert_product(matmul(a, swapped), a, b)
    metas = tuple(meta_of_array(x) for x in (a, b))
    of_batch = small.batch(ops.matmul.plan(metas, {}))
    if of_batch is not None:
        for x in (a, np.broadcast_to(a[..., :1], a.shape), a[..., ::-1, ::-1]):
            for y in (b, swapped, b[:, ::-1]):
                assert_product(of_batch(x, y), x, y)
                assert np.array_equal(of_batch(x, y), matmul(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_products_are_those_of_any_size(rng, dtype, layout):
    """The kernels by shape give what `matmul`, `linear` and `linear_weight` give, bit for bit."""
    for m, k, n in ((1, 1, 1), (3, 4, 5), (2, 30, 1), (32, 128, 10), (1, 40, 70), (17, 3, 90)):
        x, w = matrix(rng, (m, k), dtype, layout), matrix(rng, (n, k), dtype, layout)
        g = matrix(rng, (m, n), dtype, layout)
        bias = rng.standard_normal(2 * n).astype(dtype)[::2]
        for op, of_plan, of_any, inputs in (
            (ops.matmul, small.matmul, matmul, (x, w.T)),
            (ops.linear, small.linear, linear, (x, w)),
            (ops.linear, small.linear, linear, (x, w, bias)),
            (ops.linear_weight, small.linear_weight, linear_weight, (g, x)),
        ):
            kernel = of_plan(op.plan(tuple(map(meta_of_array, inputs)), {}))
            found, wanted = kernel(*inputs), of_any(*inputs)
            assert found.dtype == dtype and np.array_equal(found, wanted)


def test_which_products_are_small():
    def is_small(m, k, n, dtype=np.float32):
        x, w, g = (meta_of_array(np.empty(s, dtype)) for s in ((m, k), (n, k), (m, n)))
        plans = ops.linear.plan((x, w), {}), ops.linear_weight.plan((g, x), {})
        found = [small.linear(plans[0]) is not None, small.linear_weight(plans[1]) is not None]
        transposed = meta_of_array(np.empty((k, n), dtype))
        return [*found, small.matmul(ops.matmul.plan((x, transposed), {})) is not None]

    assert is_small(32, 128, 10) == [True] * 3
    assert is_small(0, 4, 5)[0] is is_small(3, 0, 5)[0] is is_small(3, 4, 0)[0] is False
    assert is_small(100, 200, 100) == [False] * 3  # for several threads
    assert is_small(1, 200, 200)[1:] == [False, True]  # a result that is better pooled


def test_which_batches_are_small():
    def is_small(a, b, dtype=np.float32):
        metas = [meta_of_array(np.empty(shape, dtype)) for shape in (a, b)]
        return small.batch(ops.matmul.plan(tuple(metas), {})) is not None

    assert is_small((3, 4, 5), (3, 5, 6)) and is_small((3, 1, 4, 5), (2, 5, 6))
    assert not is_small((3, 4, 5), (5, 6)) and not is_small((4, 5), (5, 6))  # one tall matrix
    assert not is_small((3, 0, 5), (3, 5, 6)) and not is_small((3, 4, 0), (3, 0, 6))
    assert not is_small((3, 4, 5), (3, 5, 6), np.int64)
    assert not is_small((2, 2, 1, 4, 5), (5, 6)) and not is_small((8, 90, 90), (8, 90, 90))


def test_linear_over_leading_dimensions(rng):
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    w, b = rng.standard_normal((6, 5)).astype(np.float32), np.ones(6, np.float32)
    assert linear(x, w, b).shape == (2, 3, 4, 6)
    np.testing.assert_allclose(linear(x, w, b), x @ w.T + b, rtol=1e-5, atol=1e-5)
    assert linear(x[:0], w, b).shape == (0, 3, 4, 6)
    assert (linear(x[..., :0], w[:, :0], b) == 1).all()


def error(result, exact):
    """The root of the mean square, relative to that of the exact results."""
    return np.sqrt(np.square(result - exact).mean() / np.square(exact).mean())


@pytest.mark.parametrize("m", (1, 4, 40))
@pytest.mark.parametrize("right", ("C", "transposed"))
@pytest.mark.parametrize("k", (4608, 20_000))
def test_errors_of_long_sums_are_those_of_a_blas(rng, m, right, k):
    """One running sum over all of k is off by more than three times as much; OpenBLAS itself by
    1 to 1.6 times, as it sums in other blocks on other processors."""
    a, b = matrix(rng, (m, k), np.float32), matrix(rng, (k, 48), np.float32, right)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert error(matmul(a, b), exact) <= 2 * error(a @ b, exact)
    bias = np.float32(1000) * normal(rng, (48,))
    assert_product(linear(a, b.T, bias), a, b, bias)


@pytest.mark.parametrize("value", (np.nan, np.inf, -np.inf))
@pytest.mark.parametrize("shape", ((1, 20, 30), (5, 33, 17), (40, 64, 64), (5, 900, 7)))
def test_nan_and_infinity_stay_in_their_row_and_column(rng, value, shape):
    m, k, n = shape
    for transposed in (False, True):
        a, b = matrix(rng, (m, k), np.float32), matrix(rng, (k, n), np.float32)
        b = np.asarray(np.ascontiguousarray(b.T).T if transposed else b)
        a[m // 2, k - 1] = value
        with np.errstate(invalid="ignore"):
            expected = a @ b
        np.testing.assert_allclose(matmul(a, b), expected, rtol=1e-3, atol=1e-4)
        assert np.isfinite(np.delete(matmul(a, b), m // 2, axis=0)).all()


def test_no_element_outside_the_inputs_is_read(rng):
    """Whatever lies around a matrix must not matter: here it is NaN."""
    for m, k, n in ((5, 7, 9), (1, 33, 70), (20, 100, 33), (3, 17, 1)):
        frame_a, frame_b = np.full((m + 2, k + 2), np.nan), np.full((k + 2, n + 2), np.nan)
        a, b = frame_a[1:-1, 1:-1], frame_b[1:-1, 1:-1]
        a[...], b[...] = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        assert_product(matmul(a, b), a, b)
        assert_product(matmul(b.T, a.T), b.T, a.T)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", ("C", "transposed"))
@pytest.mark.parametrize("m", (16, 33))
def test_a_small_left_matrix_and_a_large_right_one(rng, dtype, left, m):
    """The product is made transposed, so that the small one is packed; up to the last size."""
    for k, n in ((300, 200), (1100, 130), (64, 4000), (40, 2**21 // m)):
        a, b = matrix(rng, (m, k), dtype, left), matrix(rng, (k, n), dtype, "transposed")
        bias = rng.standard_normal(n).astype(dtype)
        assert_product(linear(a, b.T, bias), a, b, bias)


def test_exported_gemm_accumulates_with_relu(rng):
    """The C symbol that generated code calls: start from C itself, clip at the end."""
    sizes = ((9, 30, 40), (1, 2000, 500), (3, 1500, 20), (30, 1500, 20), (30, 1500, 300))
    for m, k, n in sizes:
        for left, right in itertools.product(("C", "transposed"), repeat=2):
            a, b = matrix(rng, (m, k), np.float32, left), matrix(rng, (k, n), np.float32, right)
            start = rng.standard_normal((m, n)).astype(np.float32)
            for relu in (0, 1):
                c = start.copy()
                _accumulate(a, b, c, relu, scratch())
                expected = start + a.astype(np.float64) @ b
                expected = np.maximum(expected, 0) if relu else expected
                np.testing.assert_allclose(c, expected, rtol=1e-4, atol=2e-3)


def test_several_threads_at_once(rng):
    """Every thread packs into memory of its own."""
    a, b = matrix(rng, (150, 400), np.float32), matrix(rng, (400, 300), np.float32, "transposed")
    results: list[np.ndarray] = []
    workers = [threading.Thread(target=lambda: results.append(matmul(a, b))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 8
    for result in results:
        assert_product(result, a, b)


SCRIPT = """
import numpy as np
from tinytorch.backends.optimized.gemm.matmul import linear, matmul
from tinytorch.jit.llvm import address
rng = np.random.default_rng(0)
for dtype in (np.float32, np.float64):
    for m, k, n in ((1, 1, 1), (1, 40, 33), (33, 40, 1), (9, 17, 70), (3, 0, 4), (0, 3, 4)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        for x in (a, a.T.copy().T):
            for y in (b, b.T.copy().T, b[:, ::-1][:, ::-1]):
                np.testing.assert_allclose(matmul(x, y), a @ b, rtol=1e-4, atol=1e-4)
        bias = b[:1].sum(0)
        np.testing.assert_allclose(linear(a, b.T.copy(), bias), a @ b + bias, 1e-4, 1e-4)
    stack = rng.standard_normal((2, 3, 4, 5)).astype(dtype)
    column = stack[:1, :, 0, :, None]
    np.testing.assert_allclose(matmul(stack, column), stack @ column, rtol=1e-4, atol=1e-4)
print("agree")
"""


def test_without_the_jit():
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1") == "agree"


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(1)
@pytest.mark.parametrize(
    "features", ("+avx,+avx2,+fma,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt", "+sse,+sse2")
)
def test_on_narrower_vector_units(features, tmp_path):
    assert run_script(
        SCRIPT, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features,
        TINYTORCH_CACHE_DIR=str(tmp_path),
    ) == "agree"  # fmt: skip
