from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch import from_numpy, ops, using_backend
from tinytorch.backends.optimized.elementwise import specialized
from tinytorch.backends.optimized.elementwise.loops import Loops, compile_elementwise
from tinytorch.backends.optimized.elementwise.nest import steps_of_rows, without_repeats
from tinytorch.backends.optimized.elementwise.specialized import specialize
from tinytorch.dispatch import apply
from tinytorch.jit import buffers, threads
from tinytorch.jit.views import memory_of
from tinytorch.op import OPS
from tinytorch.testing.op_samples import admitted_dtypes

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 7.75, 89.0, 1e30, -1e30]
SPECIAL += [math.inf, -math.inf, math.nan]
FLOAT_OPS = [
    op.name
    for op in OPS.values()
    if op.kind == "elementwise"
    and "float32" in admitted_dtypes(op.name)
    and not isinstance(op.scalar(*[1.0] * len(op.inputs)), bool)
]


def add(a, b):
    return a + b


def mix(a, b, c):
    return a * b - c


def meaning(op, arguments, dtype):
    """What the table says, for every tuple of arguments, rounded to dtype."""
    with np.errstate(all="ignore"):
        values = [float(op.scalar(*map(float, each))) for each in arguments]
        return np.array(values).astype(dtype)


@pytest.mark.slow_beyond(9)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FLOAT_OPS)
def test_every_op_means_what_the_table_says(name, dtype):
    op = OPS[name]
    values = SPECIAL if len(op.inputs) < 3 else SPECIAL[:4] + SPECIAL[-3:]
    arguments = np.array(list(itertools.product(values, repeat=len(op.inputs))), dtype)
    # one column more than a vector register holds, and a rest
    arrays = [np.ascontiguousarray(column) for column in arguments.T]
    if name == "where":
        arrays[0] = arrays[0] > 0
    expected = meaning(op, zip(*arrays, strict=True), dtype)
    out = compile_elementwise(op.scalar)(*arrays)
    assert out.dtype == dtype
    tolerance = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=np.finfo(dtype).tiny)


shapes = st.sampled_from(
    [
        [(3, 4), (3, 4)],
        [(3, 4), (4,)],
        [(3, 1), (3, 4)],
        [(5, 3, 2, 4), (3, 1, 1)],
        [(2, 1, 4), (3, 1)],
        [(1, 1), (1,)],
        [(), (3,)],
        [(), ()],
        [(0, 3), (3,)],
        [(2, 1, 3, 1, 5), (2, 1, 4, 1)],  # too many changes for three loops
        [(17,), (17,)],
    ]
)


@pytest.mark.slow
@given(
    pair=shapes,
    swap=st.booleans(),
    turned=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_operands_broadcast_in_any_layout(pair, swap, turned, dtype, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype(dtype) for s in pair)
    if turned:
        a = np.asfortranarray(a) if a.ndim < 2 else a[..., ::-1]
        b = np.broadcast_to(b, np.broadcast_shapes(a.shape, b.shape))
    a, b = (b, a) if swap else (a, b)
    out = compile_elementwise(add)(a, b)
    np.testing.assert_array_equal(out, a + b)
    assert out.dtype == dtype and out.flags.c_contiguous
    assert not np.shares_memory(out, a) and not np.shares_memory(out, b)


def test_three_operands_and_python_numbers(rng):
    x = rng.standard_normal((4, 5))
    kernel = compile_elementwise(mix)
    np.testing.assert_allclose(kernel(x, 2, x[0]), x * 2 - x[0])
    np.testing.assert_allclose(kernel(3.0, x, x[:, :1]), 3 * x - x[:, :1])
    np.testing.assert_allclose(kernel(x[:, :1], x[0], 1.0), x[:, :1] * x[0] - 1)
    assert kernel(x.astype(np.float32), 2, 0.1).dtype == np.float32


def choose(mask: float, a: float, b: float) -> float:
    return a if mask else b


def test_other_dtypes_are_refused_or_passed_on():
    kernel = compile_elementwise(add)
    with pytest.raises(TypeError, match="add is compiled for float32 or float64 arrays, not for"):
        kernel(np.arange(3), np.arange(3))
    with pytest.raises(TypeError, match="int64"):
        kernel(np.arange(3), 1)
    elsewhere = compile_elementwise(add, otherwise=lambda a, b: "elsewhere")
    assert elsewhere(np.arange(3), 1) == "elsewhere"


def test_specialized_kernel(rng):
    a = rng.standard_normal((3, 4)).astype(np.float32)
    b = rng.standard_normal(4).astype(np.float32)
    run = specialize(add, np.dtype(np.float32), ((3, 4), (4,)))
    np.testing.assert_array_equal(run(a, b), a + b)
    run = specialize(add, np.dtype(np.float32), ((3, 4), None))
    np.testing.assert_array_equal(run(a, 0.5), a + np.float32(0.5))


def layouts(a):
    """Arrays with the same elements: in C order, and in others."""
    reversed_twice = a[::-1].copy()[::-1] if a.ndim else a
    apart = np.empty((*a.shape, 2), a.dtype)[..., 0]
    apart[...] = a
    raw = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)  # unaligned
    raw[...] = a
    return [a, np.asfortranarray(a), reversed_twice, apart, raw]


@pytest.mark.parametrize(
    "shapes", [[(3, 4)] * 2, [(3, 4), (4,)], [(2, 3, 4), (3, 1)], [(), ()], [(0, 3), (3,)]]
)
def test_a_small_kernel_takes_operands_in_any_layout(shapes, rng):
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    run = specialize(add, a.dtype, tuple(shapes))
    for x in layouts(a):
        for y in layouts(b):
            out = run(x, y)
            assert out.flags.c_contiguous and out.dtype == np.float32
            np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize(
    "shape, row, beside",
    [
        ((2000, 4), (4,), (125, 4)),
        ((1000, 7), (1, 7), (50, 7)),
        ((33, 16, 8), (8,), (48, 8)),
        ((600, 3, 5), (1, 3, 5), (30, 15)),
        ((2003, 5), (5,), None),  # no number of rows divides them
        ((2000, 4), (2000, 1), None),
        ((40, 5, 40), (5, 40), None),  # long enough as they are
        ((600, 3, 5), (3, 1), None),
    ],
)
def test_short_rows_that_all_rows_use_are_taken_side_by_side(shape, row, beside, rng):
    assert specialized._beside((shape, row)) == specialized._beside((row, None, shape)) == beside
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, row))
    run = specialize(add, a.dtype, (shape, row))
    chosen = specialize(choose, a.dtype, (row, shape, None), frozenset({0}))
    for x in layouts(a):
        for y in layouts(b):
            out = run(x, y)
            assert out.flags.c_contiguous and out.shape == shape
            np.testing.assert_array_equal(out, a + b)
        wanted = np.where(b > 0, a, np.float32(0.5))
        np.testing.assert_array_equal(chosen(b > 0, x, 0.5), wanted)


def reordered(draw, shape, rng):
    """An array of a shape, with its dimensions in any order of memory, and as part of a larger."""
    order = draw(st.permutations(range(len(shape))))
    around = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in order]
    whole = rng.standard_normal([sum(around[d]) + shape[d] for d in order]).astype(np.float32)
    part = whole.transpose(np.argsort(order))
    return part[tuple(slice(a, a + n) for (a, _), n in zip(around, shape, strict=True))]


@pytest.mark.parametrize("pooled", [64, 2**16])
@given(data=st.data(), seed=st.integers(0, 999))
def test_parts_of_larger_arrays_in_any_order(pooled, data, seed):
    """As they are where they have rows in memory; of large ones the result is in their order."""
    rng = np.random.default_rng(seed)
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 16, 20]), min_size=1, max_size=3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "POOLED_FROM", pooled)
        run = specialize(add, np.dtype(np.float32), (shape, shape))
        for _ in range(3):
            a, b = reordered(data.draw, shape, rng), reordered(data.draw, shape, rng)
            np.testing.assert_array_equal(run(a, b), a + b)
        raw = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(shape)  # not aligned
        np.testing.assert_array_equal(run(raw, b), b)


def test_rows_that_are_not_aligned_are_copied(rng):
    """Where others with the same strides were walked along before."""
    run = specialize(add, np.dtype(np.float32), ((4, 16), (4, 16)))
    raw = np.zeros(4 * 128 + 4, np.uint8)
    parts = [raw[at : at + 4 * 128].view(np.float32).reshape(4, 32)[:, 4:20] for at in (0, 1, 0)]
    for part in parts:
        part[...] = rng.standard_normal((4, 16))
        np.testing.assert_array_equal(run(part, part), part + part)


def test_layouts_are_remembered_but_bounded(monkeypatch):
    monkeypatch.setattr(specialized, "LAYOUTS", 3)
    whole = np.ones((40, 64), np.float32)
    run = specialize(add, whole.dtype, ((2, 16), (2, 16)))
    for step in range(1, 20):
        part = whole[: step + 1 : step, 16:32]
        assert (run(part, part) == 2).all()


def test_a_small_kernel_takes_truth_values_and_numbers(rng):
    a = rng.standard_normal((3, 4)).astype(np.float32)
    run = specialize(choose, a.dtype, ((3, 1), (3, 4), None), frozenset({0}))
    for number in (0.5, 2, True):
        for mask in layouts(a[:, :1] > 0):
            np.testing.assert_array_equal(
                run(mask, a, number), np.where(mask, a, np.float32(number))
            )


@pytest.mark.parametrize("shape", [(5, 33), (300, 512)])
def test_a_condition_chooses_among_whole_numbers_without_rounding_one(shape, rng) -> None:
    a, b = rng.integers(-(2**63), 2**63 - 1, (2, *shape))
    condition = rng.random(shape) < 0.5
    with using_backend("optimized"):
        for x, y in ((a, b), (a, b[0]), (a, 2**53 + 1), (-(2**63), b)):
            for turned in (False, True):
                given = [v.T if turned and np.ndim(v) == 2 else v for v in (condition, x, y)]
                given[2] = given[2][:, None] if turned and np.ndim(y) == 1 else given[2]
                tensors = [from_numpy(v) if isinstance(v, np.ndarray) else v for v in given]
                found = apply(ops.where, *tensors).numpy()
                np.testing.assert_array_equal(found, np.where(*given), strict=True)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("shapes", [[(7, 101)] * 2, [(7, 101), (101,)], [(3, 5, 7), (5, 1)]])
def test_several_threads_share_large_arrays(shapes, monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    loops = Loops(add, a.dtype)
    np.testing.assert_array_equal(loops.plan((a.shape, b.shape))(a, b), a + b)


@pytest.mark.slow
def test_on_several_threads_every_kind_of_broadcasting_runs_its_own_loop(monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    a, row, column = (rng.standard_normal(s).astype(np.float32) for s in [(7, 5), (1, 5), (7, 1)])
    loops = Loops(add, a.dtype)
    for x, y in [(a, column), (a, row), (column, a), (row, column), (a, row)]:
        np.testing.assert_array_equal(loops.plan((x.shape, y.shape))(x, y), x + y)


def test_plans_are_remembered_but_bounded(monkeypatch):
    monkeypatch.setattr("tinytorch.backends.optimized.elementwise.loops.PLANS", 3)
    loops = Loops(add, np.dtype(np.float32))
    for n in range(8):
        loops.plan(((n,), (n,)))
        assert len(loops.plans) <= 3


SLICES = (
    (np.s_[:, 1:], np.s_[:, :-1]),
    (np.s_[:, 8:40], np.s_[:, 16:48]),
    (np.s_[:, 1:], np.s_[:, 1:]),
    (np.s_[::2, :-1], np.s_[1::2, :-1]),
    (np.s_[:, ::2], np.s_[:, 1::2]),  # not along memory
    (np.s_[::-1, 1:], np.s_[:, 1:]),
    (np.s_[:, :8], np.s_[:, 8:16]),  # short rows
)


def chosen(c, a, b):
    return a if c else b * 2.0


def check_slices(shape, dtype, rng, of=SLICES):
    run = compile_elementwise(chosen)
    lead = (slice(None),) * (len(shape) - 2)
    x, y = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    mask = rng.random(shape) < 0.5
    for first, second in of:
        a, b, c = x[(*lead, *first)], y[(*lead, *second)], mask[(*lead, *first)]
        if a.shape != b.shape:
            continue
        expected = np.where(c, a, b * dtype(2))
        np.testing.assert_array_equal(run(c, a, b), expected)
        np.testing.assert_array_equal(run(c, np.ascontiguousarray(a), b), expected)
        fixed = a.view()
        fixed.flags.writeable = False
        np.testing.assert_array_equal(run(c, fixed, b), expected)
        np.testing.assert_array_equal(run(c, a, 3.0), np.where(c, a, dtype(6)))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("shape", [(130, 64), (3, 40, 64), (2, 3, 20, 64), (2, 64, 1, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_larger_arrays_are_walked_along_without_a_copy(shape, dtype, monkeypatch, rng):
    monkeypatch.setattr(buffers, "POOLED_FROM", 64)
    check_slices(shape, dtype, rng)


def weighted(a, b):
    return a * 2 - b


@pytest.mark.parametrize("axes", [(1, 0), (2, 0, 1), (0, 2, 1)])
def test_slices_of_turned_arrays_are_walked_along_memory(axes, monkeypatch, rng):
    monkeypatch.setattr(buffers, "POOLED_FROM", 64)
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    run = compile_elementwise(weighted)
    x = rng.standard_normal((96, 130, 40)[: len(axes)]).astype(np.float32).transpose(axes)
    for a, b in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1]), (x[..., 5:], x[..., :-5])):
        out = run(a, b)
        np.testing.assert_allclose(out, weighted(a, b), 1e-6)
        assert np.argsort(out.strides).tolist() == np.argsort(a.strides).tolist()


@pytest.mark.parametrize("axes", [(1, 0), (2, 0, 1), (0, 2, 1)])
def test_what_broadcasts_to_turned_arrays_is_walked_along_memory(axes, monkeypatch, rng):
    monkeypatch.setattr(buffers, "POOLED_FROM", 64)
    run = compile_elementwise(weighted)
    x = rng.standard_normal((9, 13, 4)[: len(axes)]).astype(np.float32).transpose(axes)
    for a in (x, x[1:], x[:, :-1]):
        for b in (a[0], a[:1], a[:, :1], a[..., :1], np.float32([2]), a[0].copy()):
            for out, expected in ((run(a, b), weighted(a, b)), (run(b, a), weighted(b, a))):
                np.testing.assert_allclose(out, expected, 1e-6)
                assert np.argsort(out.strides).tolist() == np.argsort(a.strides).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "shapes", [((8, 1, 300), (8, 40, 1)), ((1, 40, 1), (8, 1, 300)), ((40, 1), (300,))]
)
def test_what_is_expanded_broadcasts_without_a_copy(shapes, rng):
    """The gradient of a mean over time by a mask: an expanded view, by a column."""
    a, b = (rng.integers(-99, 99, shape).astype(np.float32) for shape in shapes)  # exact products
    out = np.broadcast_shapes(*shapes)
    views = [np.broadcast_to(a, out), np.broadcast_to(b, out)]
    for operands in ([views[0], b], [a, views[1]]):
        found = compile_elementwise(lambda x, y, z: x * y + z)(*operands, 2.0)
        np.testing.assert_array_equal(found, a * b + np.float32(2))
        assert found.shape == out and found.flags.writeable
        cut = without_repeats([*operands, 2.0], out)
        assert [np.size(x) for x in cut] == [a.size, b.size, 1]
    assert without_repeats([*views, 2.0], out) is not None
    assert without_repeats([views[0], 2.0], out) is None  # the repeats make the shape
    assert without_repeats([a, b], out) is None


def test_rows_of_larger_arrays_on_several_threads(monkeypatch, rng):
    monkeypatch.setattr(buffers, "POOLED_FROM", 64)
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    check_slices((24, 32), np.float32, rng, SLICES[:3])


def test_which_arrays_have_rows_to_walk_along():
    x = np.zeros((8, 40, 64), np.float32)
    for part, expected in (
        (x[..., 1:], (320, [1, 63, 0, 64, 0])),
        (x[:, ::2, :16], (160, [1, 16, 0, 128, 0])),
        (x[:, :30, :16], (8, [30, 16, 0, 2560, 64])),
        (x[..., ::2], None),
        (x[..., :8], None),
        (x[:, :, ::-1], None),
        (x.swapaxes(0, 1)[:, :4, 1:], (40, [4, 63, 0, 64, 2560])),
        (np.broadcast_to(x[0, :, :1], (40, 64)), None),
    ):
        rows = steps_of_rows(part.shape, [part], [0], 1)
        assert (rows and (rows[0], rows[1].tolist())) == expected
        if rows is not None:
            assert memory_of(part).size == 1 + sum(
                (n - 1) * step // 4 for n, step in zip(part.shape, part.strides, strict=True)
            )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "neg"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 8), (300, 512)])
def test_every_second_number_like_a_copy_of_them(
    name: str, dtype: Any, shape: Any, rng: np.random.Generator
) -> None:
    """NumPy's loop reads them where they are; its results are those of ours."""
    x, y = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    x[:2, :2], y[:3, :3] = np.inf, 0.0
    op = getattr(ops, name)
    with using_backend("optimized"):
        for step in (np.s_[:, ::2], np.s_[:, ::-2], np.s_[::2, 1::2]):
            count = len(op.inputs)
            parts = [from_numpy(a[step]) for a in (x, y)[:count]]
            copies = [from_numpy(np.ascontiguousarray(a[step])) for a in (x, y)[:count]]
            for _ in range(2):
                found, expected = apply(op, *parts), apply(op, *copies)
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
            if count == 2:
                found, expected = apply(op, parts[0], copies[1]), apply(op, *copies)
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
                found, expected = apply(op, parts[0], 3.0), apply(op, copies[0], 3.0)
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
