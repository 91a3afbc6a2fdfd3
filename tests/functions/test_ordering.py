"""Functions that find elements, where they take shorter ways than NumPy's functions do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.dispatch import Mode
from tinytorch.replay.function import HOT


@pytest.mark.parametrize("shape", [(), (7,), (4, 5), (3, 4, 5), (2, 1, 3, 2), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_nonzero(shape, dtype, backend, rng):
    x = rng.integers(0, 2, shape).astype(dtype)
    for view in (x, x.T, np.flip(x)):
        with tinytorch.using_backend(backend):
            found = tinytorch.tensor(view).nonzero()
        np.testing.assert_array_equal(found.numpy(), np.argwhere(view))
        assert found.dtype is tinytorch.int64


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nonzero_counts_nan_and_not_the_negative_zero(dtype):
    x = tinytorch.tensor([[float("nan"), -0.0], [0.0, 1.0]]).to(dtype)
    assert x.nonzero().tolist() == [[0, 0], [1, 1]] and x[0].nonzero().tolist() == [[0]]
    for found in (x.nonzero(as_tuple=True), tinytorch.where(x)):
        assert [places.tolist() for places in found] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_unique_consecutive(inverse, counts, rng):
    x = rng.integers(0, 3, (6, 7))
    options = {"return_inverse": inverse, "return_counts": counts}
    assert_like_torch(
        lambda x: tinytorch.unique_consecutive(x, **options),
        lambda x: torch.unique_consecutive(x, **options),
        x,
    )


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_unique_elements_and_what_is_asked_for(inverse, counts, rng):
    x = rng.integers(0, 9, (6, 7)).astype(np.float32)
    x[0, 1] = x[3, 4] = np.nan  # which equals nothing
    options = {"return_inverse": inverse, "return_counts": counts}
    ours, theirs = (of.tensor(x).unique(**options) for of in (tinytorch, torch))
    assert isinstance(ours, tuple) == isinstance(theirs, tuple) == (inverse or counts)
    pairs = zip(ours, theirs, strict=True) if inverse or counts else [(ours, theirs)]
    for got, wanted in pairs:
        np.testing.assert_array_equal(got.numpy(), wanted.numpy(), strict=True)


@pytest.mark.parametrize("shape", [(9,), (12, 3), (6, 2, 3), (1, 4), (5, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_unique_slices(shape, dtype, rng):
    x = rng.integers(0, 2, shape).astype(dtype)
    for dim in range(-1, len(shape)):
        options = {"return_inverse": True, "return_counts": True, "dim": dim}
        ours, theirs = (of.tensor(x).unique(**options) for of in (tinytorch, torch))
        for got, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy(), strict=True)


def test_unique_numbers_of_half_precision(rng):
    """NumPy may return some of them twice."""
    for _ in range(20):
        drawn = np.round(rng.standard_normal(3790) * 2).astype(np.float16) / np.float16(2)
        x = tinytorch.from_numpy(drawn)
        values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
        assert values.dtype == x.unique().dtype == tinytorch.float16
        assert values.tolist() == x.unique().tolist() == sorted({*drawn.tolist()})
        assert values[inverse].tolist() == x.tolist() and counts.sum() == 3790


def test_unique_slices_with_nan_and_the_negative_zero():
    nan = float("nan")
    x = tinytorch.tensor([[0.0, nan], [1.0, 2.0], [-0.0, nan], [-0.0, 1.0], [0.0, 1.0]])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True, dim=0)
    np.testing.assert_array_equal(values.numpy(), [[0, 1], [0, nan], [0, nan], [1, 2]])
    assert inverse.tolist() == [1, 3, 2, 0, 0] and counts.tolist() == [2, 1, 1, 1]
    assert tinytorch.zeros(0, 3).unique(dim=0).shape == (0, 3)


@pytest.mark.parametrize("shape", [(), (4,), (3, 5)])
@pytest.mark.parametrize("elements", [(), (0,), (3,), (2, 2)])
def test_isin(shape, elements, rng):
    x, y = rng.integers(0, 4, shape), rng.integers(0, 4, elements)
    found = tinytorch.isin(tinytorch.tensor(x), tinytorch.tensor(y))
    np.testing.assert_array_equal(found.numpy(), np.isin(x, y))


@pytest.mark.parametrize("repeats", [0, 1, 3])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_repeat_interleave_by_one_number(repeats, dim, rng):
    x = rng.standard_normal((3, 4, 2))
    assert_like_torch(
        lambda x: tinytorch.repeat_interleave(x, repeats, dim),
        lambda x: torch.repeat_interleave(x, repeats, dim),
        x,
    )


@pytest.mark.parametrize(("shape", "repeats"), [((3,), 1), ((1,), 3), ((2, 1), 4), ((), 2)])
def test_what_repeat_interleave_gives_can_be_written(shape, repeats):
    x = tinytorch.ones(shape)
    y = x.repeat_interleave(repeats)
    y += 1
    assert (y.numpy() == 2).all() and (x.numpy() == 1).all()


BINS = {
    "all": (7, 0, 0), "a part": (5, -0.5, 1.5), "an edge": (4, 0.1, 0.9), "one": (1, -1, 1),
    "more than 16 bits": (70_000, 0, 0), "float32 rounds the edges": (3, 0.1, 0.7),
}  # fmt: skip


@pytest.mark.parametrize("bins", BINS.values(), ids=list(BINS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_histc_counts_what_pytorch_counts(bins, dtype, rng):
    rounded = np.round(rng.standard_normal((40, 50)), 1).astype(dtype)  # many are edges
    given = np.array([[np.nan, np.inf, -np.inf, 0.1, 0.7]], dtype)
    for x in (rounded, rounded.T[::2], rounded[:0], np.zeros((2, 3), dtype)):
        assert_like_torch(lambda x: x.histc(*bins), lambda x: x.histc(*bins), x)
    if bins[1] != bins[2]:
        assert_like_torch(lambda x: x.histc(*bins), lambda x: x.histc(*bins), given)


def test_histc_of_whole_numbers_and_of_the_widest_range():
    assert tinytorch.tensor([0, 1, 1, 4]).histc(4).tolist() == [1, 2, 0, 1]
    most = float(np.finfo(np.float32).max)
    assert tinytorch.tensor([-most, 0.0, most]).histc(2).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("bins", [(0, 0, 1), (-1, 0, 1), (3, 2, 1), (3, 0, float("inf"))])
def test_histc_refuses(bins):
    with pytest.raises(ValueError, match=r"bins|range"):
        tinytorch.tensor([0.5]).histc(*bins)
    with pytest.raises(ValueError, match="range"):
        tinytorch.tensor([0.5, float("nan")]).histc(3)


@pytest.mark.parametrize("is_right", [False, True])
def test_searchsorted_in_rows_of_any_layout(is_right, rng):
    rows, values = np.sort(rng.standard_normal((3, 4, 9))), rng.standard_normal((3, 4, 5))
    values[0, 0, 0] = np.nan
    for r, v in (
        (rows, values),
        (np.asfortranarray(rows), values[..., ::2]),
        (rows[:0], values[:0]),
    ):
        assert_like_torch(
            lambda r, v: tinytorch.searchsorted(r, v, right=is_right),
            lambda r, v: torch.searchsorted(r.contiguous(), v.contiguous(), right=is_right),
            r,
            v,
        )


@pytest.mark.parametrize("name", ["sort", "max", "min", "median", "cummax", "cummin"])
def test_what_is_found_in_a_0d_tensor_is_a_copy(name):
    x = tinytorch.tensor(1.0)
    getattr(x, name)(0)[0].fill_(2)
    x.topk(1)[0].fill_(2)
    x.kthvalue(1)[0].fill_(2)
    x.cumprod(0).fill_(2)
    x.logcumsumexp(0).fill_(2)
    assert x.item() == 1


def test_the_first_few_are_found_without_a_sort_where_gradients_are_recorded(rng):
    class Ops(Mode):
        names: tuple[str, ...] = ()

        def run(self, op, inputs, params, plan):
            self.names += (op.name,)
            return self.below(op, inputs, params, plan)

    x = rng.standard_normal((3, 40)).astype(np.float32)
    with tinytorch.using_backend("optimized"), Ops() as seen:
        tinytorch.tensor(x, requires_grad=True).topk(2, 1)
    assert "partial_argsort" in seen.names and "argsort" not in seen.names
    with tinytorch.using_backend("optimized"):
        assert_like_torch(lambda x: x.topk(2, 1)[0], None, x)
        assert_like_torch(lambda x: x.kthvalue(3, 0)[0], None, x)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_frequent_median_notices_a_nan(backend, rng):
    array = rng.standard_normal((4, 6)).astype(np.float32)
    with tinytorch.using_backend(backend):
        for columns in (array, array.T):
            for _ in range(2 * HOT):
                tinytorch.from_numpy(columns).median(1)
            damaged = columns.copy()
            damaged[2, 1] = np.nan
            assert_like_torch(lambda x: x.median(1)[0], None, damaged)
            assert_like_torch(lambda x: x.median(1)[0], None, columns)
            assert np.isnan(tinytorch.from_numpy(damaged).median().item())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_different_elements_and_slices(name, dim, dtype):
    rows = [[3.0, -1.0, -1.0], [3.0, -1.0, -1.0], [-2.0, 0.5, 0.5], [3.0, -1.0, -1.0]]
    options = {"return_inverse": True, "return_counts": True, "dim": dim}
    ours = getattr(tinytorch, name)(tinytorch.tensor(rows).to(dtype), **options)
    theirs = getattr(torch, name)(torch.tensor(rows).to(getattr(torch, dtype)), **options)
    assert [t.tolist() for t in ours] == [t.tolist() for t in theirs]
    assert ours[0].dtype.name == dtype and ours[1].dtype is ours[2].dtype is tinytorch.int64
    only = getattr(tinytorch, name)(tinytorch.tensor(rows).to(dtype), dim=dim)
    assert only.tolist() == ours[0].tolist()


def test_no_nan_of_bfloat16_equals_another():
    x = [float("nan"), 0.0, -0.0, float("nan"), -1.0]
    for name in ("unique", "unique_consecutive"):
        ours = getattr(tinytorch, name)(tinytorch.tensor(x).bfloat16(), return_counts=True)
        theirs = getattr(torch, name)(torch.tensor(x).bfloat16(), return_counts=True)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a.float().numpy(), b.float().numpy())


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0)])
def test_unique_consecutive_of_few(shape, rng):
    x = rng.integers(0, 3, shape)
    options = {"return_inverse": True, "return_counts": True}
    ours = tinytorch.unique_consecutive(tinytorch.tensor(x), **options)
    theirs = torch.unique_consecutive(torch.tensor(x), **options)
    assert [t.tolist() for t in ours] == [t.tolist() for t in theirs]


@pytest.mark.parametrize("right", [False, True])
def test_a_sequence_in_the_order_of_a_sorter(right, rng):
    rows, values = rng.integers(0, 9, (3, 8)), rng.integers(0, 9, (3, 4))
    assert_like_torch(
        lambda r, v: tinytorch.searchsorted(r, v, right=right, sorter=r.argsort(-1)),
        lambda r, v: torch.searchsorted(r, v, right=right, sorter=r.argsort(-1)),
        rows,
        values,
    )
    with pytest.raises(tinytorch.ShapeError, match=r"a sorter \(2,\) for a sequence \(3,\)"):
        tinytorch.searchsorted(tinytorch.arange(3), 1, sorter=tinytorch.arange(2))


@pytest.mark.parametrize("right", [False, True])
def test_nan_is_the_largest_of_a_sequence(right):
    """As it is for `sort`, on every way. PyTorch goes on behind each NaN that it meets."""
    nan, inf = float("nan"), float("inf")
    rows, wanted = [1.0, 2.0, inf, nan, nan], [0.0, 1.0, 1.5, inf, nan]
    expected = [0, 1, 1, 3, 5] if right else [0, 0, 1, 2, 3]
    for backend in ("naive", "numpy", "optimized"):
        with tinytorch.using_backend(backend):
            sequence, values = tinytorch.tensor(rows), tinytorch.tensor(wanted)
            many = tinytorch.stack([sequence, sequence]), tinytorch.stack([values, values])
            for mode in (Mode(), None):
                with mode or tinytorch.enable_grad():
                    found = tinytorch.searchsorted(sequence, values, right=right)
                    assert found.tolist() == expected
                    assert tinytorch.bucketize(values, sequence, right=right).tolist() == expected
                    found = tinytorch.searchsorted(*many, right=right)
                    assert found.tolist() == [expected, expected]


def test_isin_inverted():
    for test in (tinytorch.tensor([1, 5]), 1):
        x = tinytorch.arange(3)
        inside = tinytorch.isin(x, test, assume_unique=True)
        assert tinytorch.isin(x, test, invert=True).tolist() == (~inside).tolist()
