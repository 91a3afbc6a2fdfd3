from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import DTypeError, ShapeError

DIMS = [None, 0, -1, 1, (0, 2), (-1, 0), (1,)]


@pytest.fixture
def x(rng):
    return rng.standard_normal((3, 4, 2)).astype(np.float32)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"])
def test_over_dimensions(name, dim, keepdim, x):
    theirs = getattr(torch, name)
    if dim is None and name in ("logsumexp", "amax", "amin"):
        dims = (0, 1, 2)
        assert_like_torch(lambda x: getattr(x, name)(keepdim=keepdim),
                          lambda x: theirs(x, dims, keepdim=keepdim), x)  # fmt: skip
        return
    assert_like_torch(lambda x: getattr(x, name)(dim, keepdim=keepdim),
                      lambda x: theirs(x, dim, keepdim=keepdim), x)  # fmt: skip
    function = getattr(tinytorch, name)
    assert_like_torch(lambda x: function(x, dim, keepdim=keepdim),
                      lambda x: theirs(x, dim, keepdim=keepdim), x)  # fmt: skip


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["max", "min", "prod", "argmax", "argmin", "all", "any"])
def test_over_one_dimension(name, dim, keepdim, x):
    data = x > 0 if name in ("all", "any") else np.round(x)  # ties
    assert_like_torch(lambda x: getattr(x, name)(dim, keepdim=keepdim), None, data)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "argmax", "argmin", "var",
                                  "std", "all", "any"])  # fmt: skip
def test_over_everything(name, x):
    for data in (x, np.round(x), np.array(x[0, 0, 0]), x[:1, :1, :1]):
        if name in ("var", "std") and data.size == 1:
            continue
        assert_like_torch(lambda x: getattr(x, name)(), None, data)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "float32"])
@pytest.mark.parametrize("name", ["all", "any"])
def test_truth_of_uint8_is_uint8(name, dtype, rng):
    data = rng.integers(0, 3, (3, 2)).astype(dtype)
    for dim in ((), (1,), ((0, 1),)):
        for part in (data, data[:, :0], data[:0]):
            assert_like_torch(lambda x, dim=dim: getattr(x, name)(*dim), None, part)


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "cumsum", "argmax", "max", "all"])
def test_dtype_of_the_result(name, dtype, rng):
    data = rng.integers(0, 3, (2, 3)).astype(dtype)
    if name == "argmax" and dtype == "bool":
        return  # not in PyTorch
    assert_like_torch(lambda x: getattr(x, name)(1), None, data)


def test_empty_tensors():
    empty = np.zeros((0, 3), np.float32)
    for name in ("sum", "mean", "prod", "all", "any"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(), None, empty)
        assert_like_torch(lambda x, n=name: getattr(x, n)(0), None, empty)
        assert_like_torch(lambda x, n=name: getattr(x, n)(1), None, empty)
    for name in ("amax", "amin", "argmax", "argmin", "max", "min"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(1), None, empty)
        with pytest.raises(ShapeError, match=r"shape \(0, 3\) has no elements along \(0,\)"):
            getattr(tinytorch.zeros(0, 3), name)(0)


def test_mean_of_integers_is_refused():
    with pytest.raises(DTypeError, match=r"mean takes floating-point tensors, not int64; use x\.f"):
        tinytorch.arange(3).mean()
    for name in ("var", "std", "logsumexp"):
        if name != "logsumexp":
            with pytest.raises(DTypeError, match="takes floating-point tensors"):
                getattr(tinytorch.arange(3), name)()


def test_nan_and_infinity():
    data = np.array([[1.0, np.nan, 3], [np.inf, -np.inf, 0], [np.inf, 1, 2], [-np.inf] * 3])
    for name in ("sum", "mean", "prod", "argmax", "argmin", "max", "min"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(1), None, data)
    for name in ("max", "min"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(), None, data)
    assert_like_torch(lambda x: x.logsumexp(1), None, data[2:])
    assert_like_torch(lambda x: x.cumsum(1), None, data)


def test_var_and_std_correction(x):
    for correction in (0, 1, 2):
        assert_like_torch(lambda x, c=correction: x.var(1, correction=c), None, x)
        assert_like_torch(lambda x, c=correction: x.std((0, 2), correction=c), None, x)
    single = tinytorch.tensor([3.0])
    assert np.isnan(single.var().item())
    assert single.var(correction=0).item() == 0


def test_prod_is_right_where_elements_are_zero():
    for data in ([[0.0, 2, 3]], [[0.0, 0, 3]], [[0.0, 0, 0]], [[5.0, 2, 3]]):
        assert_like_torch(lambda x: x.prod(1), None, np.array(data))
        assert_like_torch(lambda x: x.prod(), None, np.array(data))


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, np.inf])
def test_norm(p, x):
    assert_like_torch(lambda x: x.norm(p), None, x, rtol=1e-4)
    assert_like_torch(lambda x: x.norm(p, 1, True), None, x, rtol=1e-4)


def test_scans_and_softmax(x):
    for dim in (0, 1, -1):
        for name in ("cumsum", "softmax", "log_softmax"):
            assert_like_torch(lambda x, n=name, d=dim: getattr(x, n)(d), None, x)
    assert_like_torch(lambda x: x.softmax(-1), None, x * 1000)
    assert_like_torch(lambda x: x.log_softmax(-1), None, x * 1000)
    assert_like_torch(lambda x: x.softmax(0), None, np.array(3.0))
    assert_like_torch(lambda x: x.cumsum(0), None, np.array(3.0))
    assert_like_torch(lambda x: x.softmax(1), None, np.zeros((2, 0)))


@given(
    rows=st.lists(st.lists(st.sampled_from([0.0, 1, 2, -1, np.inf, np.nan]), min_size=4,
                           max_size=4), min_size=1, max_size=4),
    descending=st.booleans(),
)  # fmt: skip
def test_sort_is_stable(rows, descending):
    x = np.array(rows)
    got = tinytorch.tensor(x).argsort(1, descending=descending)
    wanted = torch.from_numpy(x).argsort(dim=1, descending=descending, stable=True)
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_sort_and_topk(x):
    assert_like_torch(lambda x: x.sort(1), None, x)
    assert_like_torch(lambda x: x.sort(0, descending=True), None, x)
    assert_like_torch(lambda x: x.topk(2, 1), None, x)
    assert_like_torch(lambda x: x.topk(3, 0, largest=False), None, x)
    assert_like_torch(lambda x: x.topk(0), None, x)
    values, indices = tinytorch.tensor([1.0, 3.0, 2.0]).sort()
    assert (values.tolist(), indices.tolist()) == ([1, 2, 3], [0, 2, 1])
    with pytest.raises(ShapeError, match="topk: k=5 is not within 0 and 4, the size of dim 1"):
        tinytorch.tensor(x).topk(5, 1)


def test_max_and_min_of_two_tensors(x):
    assert_like_torch(lambda x, y: x.max(y), None, x, x[::-1].copy())
    assert_like_torch(lambda x, y: x.min(y), None, x, x[::-1].copy())


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "max", "min", "std", "argmax"])
def test_a_dimension_may_be_a_number_of_numpys(name):
    x = tinytorch.tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 7.5]])
    for kind in (np.int64, np.int32):
        got, expected = getattr(x, name)(kind(1)), getattr(x, name)(1)
        if isinstance(expected, tuple):  # max(int64(1)) was the larger of x and 1
            assert got.indices.tolist() == expected.indices.tolist()
            got, expected = got.values, expected.values
        assert got.tolist() == expected.tolist()


def test_of_zero_dimensions():
    x = np.array(2.5)
    for name in ("sum", "mean", "prod", "max", "min", "argmax", "sort", "all"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(0), None, x)
        assert_like_torch(lambda x, n=name: getattr(x, n)(-1), None, x)


def test_wrong_dimensions():
    x = tinytorch.zeros(2, 3)
    with pytest.raises(IndexError, match="dim 2 is out of range: a tensor of 2 dimensions has -2"):
        x.sum(2)
    with pytest.raises(ValueError, match=r"dim \(0, -2\) names a dimension twice"):
        x.sum((0, -2))
    with pytest.raises(IndexError, match="dim 1 is out of range"):
        tinytorch.tensor(1.0).sum(1)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float64"])
@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "cumsum", "cumprod"])
def test_the_dtype_that_is_asked_for_is_that_of_the_result(name: str, dtype: str) -> None:
    calls = [(0,)] if name.startswith("cum") else [(0,), ()]
    for values in ([[100, 2], [100, 3]], [[0, 2], [0, 3]]):
        for dim in calls:
            found, wanted = (
                getattr(library.tensor(values), name)(*dim, dtype=getattr(library, dtype))
                for library in (tinytorch, torch)
            )
            assert found.dtype is getattr(tinytorch, dtype)
            assert found.tolist() == wanted.tolist()


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_elements_are_counted_as_whole_numbers(dtype: str, rng: np.random.Generator) -> None:
    """Few are counted in floats: the result is that of NumPy, and int64."""
    for shape in ((3, 4), (0, 3), (), (200, 100)):
        values = np.asarray(rng.integers(0, 2, shape)).astype(dtype)
        if values.size > 2 and dtype.startswith("float"):
            values.flat[:3] = np.nan, -0.0, np.inf
        for data in (values, values.T):
            x = tinytorch.from_numpy(data)
            for dim in (None, *range(data.ndim)):
                for _ in range(40):  # the last by a program, where the backend has them
                    found = tinytorch.count_nonzero(x, dim)
                assert found.dtype is tinytorch.int64
                np.testing.assert_array_equal(found.numpy(), np.count_nonzero(data, axis=dim))
