from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tests.op_names import OpNames
from tests.torch_compare import assert_like_torch
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.functions import subscripts
from tinytorch.history import Record
from tinytorch.tensor import Tensor

X = np.arange(60.0).reshape(3, 4, 5)

INDICES: dict[str, Any] = {
    "int": 1,
    "negative int": -1,
    "ints": (1, -2, 3),
    "slice": slice(1, 3),
    "steps": (slice(None, None, 2), slice(-3, None)),
    "empty slice": slice(2, 1),
    "None": None,
    "Nones": (None, slice(None), None, 1),
    "Ellipsis": ...,
    "Ellipsis end": (..., 2),
    "Ellipsis start": (0, ...),
    "Ellipsis none": (0, 1, ..., 2),
    "Ellipsis None": (..., None),
    "nothing": (),
    "list": [0, 2, 2],
    "empty list": [],
    "array": np.array([[0, 1], [2, -1]]),
    "int32 array": np.array([0, 1], np.int32),
    "array second": (slice(None), np.array([3, 0])),
    "arrays": (np.array([0, 1]), np.array([2, 3])),
    "arrays broadcast": (np.array([[0], [1]]), np.array([2, 3])),
    "arrays apart": (np.array([0, 1]), slice(None), np.array([2, 3])),
    "arrays last": (slice(None), np.array([0, 1]), np.array([2, 3])),
    "array and int": (np.array([0, 1]), 2),
    "int and array": (1, np.array([0, 1])),
    "int, slice, array": (1, slice(1, 3), np.array([0, 1])),
    "array, slice, int": (np.array([0, 2]), slice(None), 1),
    "array and None": (None, np.array([0, 1]), None),
    "0-d array": np.array(2),
    "0-d array and slice": (slice(1, 2), np.array(-1)),
    "mask": np.arange(60).reshape(3, 4, 5) % 7 == 0,
    "mask of rows": np.array([True, False, True]),
    "mask of two dims": np.arange(12).reshape(3, 4) % 5 == 0,
    "mask in the middle": (1, np.array([True, False, True, True])),
    "mask after Ellipsis": (..., np.array([True, False, True, False, True])),
    "mask and array": (np.array([True, False, True]), np.array([1, 2])),
    "mask of nothing": np.zeros(3, bool),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_like_pytorch_with_gradients(index):
    theirs = torch_index(index)
    assert_like_torch(lambda x: x[index], lambda x: x[theirs], X)


def torch_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(torch_index, index))
    return torch.from_numpy(index) if isinstance(index, np.ndarray) else index


def test_like_numpy():
    for name, index in INDICES.items():
        if name != "int, slice, array":  # NumPy counts the int as an array, PyTorch does not
            np.testing.assert_array_equal(tinytorch.tensor(X)[index].numpy(), X[index])


def test_tensors_as_indices():
    x, index = tinytorch.tensor(X), tinytorch.tensor([0, 2])
    np.testing.assert_array_equal(x[index].numpy(), X[[0, 2]])
    np.testing.assert_array_equal(x[:, index.int()].numpy(), X[:, [0, 2]])
    np.testing.assert_array_equal(x[x > 30].numpy(), X[X > 30])
    np.testing.assert_array_equal(x[tinytorch.tensor(1)].numpy(), X[1])


@st.composite
def indices(draw: Any) -> tuple[tuple[int, ...], Any]:
    """A shape, and an index of every kind that fits it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    common = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))  # of all arrays in the index
    entries: list[Any] = []
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    used = 0
    count = draw(st.integers(0, len(shape)))
    while used < count:
        n = shape[used]
        kinds = ["slice", "None", "mask"] + (["int", "array"] if n else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "None":
            entries.append(None)
            if len(entries) > 6:
                break
            continue
        used += 1
        if kind == "slice":
            edge = st.none() | st.integers(-n - 1, n + 1)
            entries.append(slice(draw(edge), draw(edge), draw(st.sampled_from([None, 1, 2, 3]))))
        elif kind == "int":
            entries.append(draw(st.integers(-n, n - 1)))
        elif kind == "array":
            ones = tuple(1 if draw(st.booleans()) else c for c in common)
            entries.append(np.asarray(rng.integers(-n, n, () if draw(st.booleans()) else ones)))
        else:
            mask = np.zeros(n, bool)  # one True, so that it broadcasts with every array
            mask[: min(n, 1)] = True
            entries.append(rng.permutation(mask))
    if draw(st.booleans()):
        entries.append(...)
    return shape, tuple(entries)


@given(indices())
def test_any_index(case):
    shape, index = case
    x = np.arange(float(np.prod(shape))).reshape(shape)
    try:
        torch.from_numpy(x)[torch_index(index)]
    except (IndexError, RuntimeError):  # an empty mask beside arrays does not broadcast
        with pytest.raises((IndexError, ShapeError)):
            tinytorch.tensor(x)[index]
        return
    assert_like_torch(lambda x: x[index], lambda x: x[torch_index(index)], x)


@given(indices(), st.booleans())
def test_assignment_to_any_index(case, scalar):
    shape, index = case
    x = np.arange(float(np.prod(shape))).reshape(shape)
    ours, theirs = Tensor(x), torch.from_numpy(x.copy())
    try:
        picked = theirs[torch_index(index)]
    except (IndexError, RuntimeError):
        return
    value = np.asarray(-np.arange(float(picked.numel())).reshape(picked.shape))
    if scalar or len(picked.unique()) < picked.numel():  # two values for one place: either may win
        value = np.array(-1.0)
    theirs[torch_index(index)] = torch.from_numpy(value)
    ours[index] = Tensor(value)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("index", [slice(None), ..., (), (slice(None), ...)])
def test_all_of_a_tensor_is_a_view_of_it_and_not_the_tensor(index):
    """What is then said of the view (`requires_grad_`, a hook) is not said of the tensor."""
    x = tinytorch.ones(2, 3)
    view = x[index]
    view.requires_grad_()
    assert not x.requires_grad
    with tinytorch.no_grad():
        view[0, 0] = 5.0
    assert x[0, 0].item() == 5.0


def test_uint8_is_no_index():
    """NumPy takes it for positions, PyTorch for a mask: neither is what everybody expects."""
    x = tinytorch.arange(4.0)
    for index in (tinytorch.tensor([1, 0, 0, 1]).byte(), np.array([1, 0], np.uint8)):
        with pytest.raises(IndexError, match=r"t.long\(\) or with t.bool\(\)"):
            x[index]
        with pytest.raises(IndexError, match=r"t.long\(\) or with t.bool\(\)"):
            x[index] = 0.0
    assert x[np.uint8(3)].item() == 3.0
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_basic_indices_are_views():
    x = tinytorch.zeros(3, 4)
    for index in (0, slice(1, 3), (..., 1), (None, slice(None, None, 2)), (2, 3)):
        assert np.shares_memory(x[index].numpy(), x.numpy())
    x[1].fill_(3)
    assert x.sum().item() == 12
    assert not np.shares_memory(x[[0, 1]].numpy(), x.numpy())


@given(indices())
def test_a_view_without_ops_is_that_of_the_ops(case):
    """Where nothing is recorded NumPy alone makes it; on a backend of a user the ops do."""
    shape, index = case
    index = tuple(slice(None) if isinstance(entry, np.ndarray) else entry for entry in index)
    x = tinytorch.tensor(np.arange(float(np.prod(shape))).reshape(shape))
    with tinytorch.using_backend("naive"):
        expected = x[index]
    for entries in (index, index[0] if len(index) == 1 else index):
        with tinytorch.using_backend("numpy"):
            found = x[entries]
        assert found.meta is expected.meta and found.tolist() == expected.tolist()
        assert found is not x and type(found.numpy()) is np.ndarray
        assert np.shares_memory(found.numpy(), x.numpy()) == (found.numel() > 0)


@given(indices())
def test_a_recorded_view_without_ops_has_the_history_of_the_ops(case):
    shape, index = case
    index = tuple(slice(None) if isinstance(entry, np.ndarray) else entry for entry in index)
    values = np.arange(float(np.prod(shape))).reshape(shape)
    views, gradients = [], []
    for backend in ("naive", "numpy"):
        x = tinytorch.tensor(values, requires_grad=True)
        with tinytorch.using_backend(backend):
            view = x[index]
            (view * view).sum().backward()
        views.append(view)
        gradients.append(x.grad.tolist())
        assert np.shares_memory(view.detach().numpy(), x.detach().numpy()) == (view.numel() > 0)
    expected, found = views
    assert found.meta is expected.meta and found.tolist() == expected.tolist()
    assert gradients[0] == gradients[1]
    of_ops, direct = expected.history, found.history
    while type(of_ops) is Record:
        assert (direct.op, direct.params) == (of_ops.op, of_ops.params)
        assert (direct.metas, direct.meta) == (of_ops.metas, of_ops.meta)
        (of_ops,), (direct,) = of_ops.edges, direct.edges
    assert type(direct) is Tensor


def test_a_view_is_looked_up_by_what_it_means():
    """1.0 is equal to 1, and a tensor as a bound may have another value the next time."""
    x, at = tinytorch.tensor(X, requires_grad=True), tinytorch.tensor(1)
    with tinytorch.using_backend("numpy"):  # the default one has no look-up
        assert x[1:2].shape == (1, 4, 5)
        with pytest.raises(TypeError):
            x[1.0:2]
        assert x[at:].shape == (2, 4, 5)
        at.fill_(2)
        assert x[at:].shape == (1, 4, 5)
        assert x[np.int64(1) :].shape == (2, 4, 5)


@pytest.mark.parametrize("backend", ["naive", "numpy"])
@pytest.mark.parametrize(
    "index", [3, (0, -5), (0, 0, 0, 0), (..., 0, ...), slice(None, None, -1), slice(0, None, 0)]
)
def test_errors_of_a_view_without_ops(index, backend):
    with tinytorch.using_backend(backend), pytest.raises((IndexError, ValueError)) as caught:
        tinytorch.tensor(X)[index]
    with tinytorch.using_backend(backend), pytest.raises(type(caught.value)) as recorded:
        tinytorch.tensor(X, requires_grad=True)[index]
    assert str(caught.value) == str(recorded.value)


@pytest.mark.parametrize(
    "index, error, text",
    [
        (3, IndexError, "index 3 is out of range for dimension 0 of size 3"),
        ((0, -5), IndexError, "index -5 is out of range for dimension 1 of size 4"),
        ((0, 0, 0, 0), IndexError, "4 indices are too many for shape (3, 4, 5)"),
        ((..., 0, ...), IndexError, "an index can have only one Ellipsis"),
        ([0, 3], IndexError, "index 3 is out of range for dimension 0 of size 3"),
        ((slice(None), [-5]), IndexError, "index -5 is out of range for dimension 1 of size 4"),
        (np.zeros(4, bool), IndexError, "a mask of shape (4,) does not fit dimensions 0 to 0"),
        ((0, np.zeros((4, 4), bool)), IndexError, "a mask of shape (4, 4) does not fit dimensions"),
        ((..., np.zeros(4, bool)), IndexError, "a mask of shape (4,) does not fit dimensions 2"),
        (np.zeros(3), IndexError, "an index must be of integers or bool, not float64"),
        ("a", TypeError, "str is not an index; use ints, slices, None, ..., or integer"),
        (1.5, TypeError, "float is not an index"),
        (slice(None, None, -1), ValueError, "a slice's step must be positive, not -1; use flip"),
        (True, TypeError, "a single bool is not an index; use None for a new dimension"),
        (np.array(True), TypeError, "a single bool is not an index"),
        (([0, 1], [0, 1, 2]), ValueError, "do not broadcast"),
    ],
)
def test_errors(index, error, text):
    with pytest.raises(error) as caught:
        tinytorch.tensor(X)[index]
    assert text in str(caught.value)


def test_assignment_errors():
    x = tinytorch.zeros(3, requires_grad=True)
    with pytest.raises(AutogradError, match=r"t\[...\] = value on a leaf that requires a"):
        x[0] = 1.0
    rows = tinytorch.zeros(2, 3)
    with pytest.raises(AutogradError, match=r"t\[...\] = value on a tensor of .* shares memory"):
        rows[0][0] = x.sum()
    with tinytorch.no_grad():
        x[0] = 1.0
    assert x.tolist() == [1, 0, 0]
    with pytest.raises(ValueError, match=r"could not broadcast .* shape \(2,\) into shape \(3,\)"):
        tinytorch.zeros(3)[:] = tinytorch.ones(2)
    with pytest.raises(AutogradError, match=r"shape \(2, 3\) is a broadcast or read-only view"):
        tinytorch.zeros(3).expand(2, 3)[0] = 1.0
    with pytest.raises(TypeError, match="a single bool is not an index"):
        tinytorch.zeros(3)[True] = 1.0
    with pytest.raises(IndexError, match="out of bounds"):
        tinytorch.zeros(3)[5] = 1.0


# -- by functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [2, 0, 1]),
        (slice(None), [[2, 0], [-1, 1]]),
        (slice(None), [2, -1], [0, 3]),
        (slice(None), slice(None), [4, 0]),
        ([1, -1], [2, 0]),
        ([1], slice(None), [4, -5]),
    ],
)
def test_indices_among_whole_dimensions(index, backend, monkeypatch, rng):
    """A program, which asks whether they are in range; the result can be viewed, as in PyTorch."""
    monkeypatch.setattr("tinytorch.replay.function.HOT", 1)
    arrays = tuple(np.array(i) if isinstance(i, list) else i for i in index)
    entries = tuple(tinytorch.tensor(i) if isinstance(i, list) else i for i in index)
    with tinytorch.using_backend(backend):
        for turned in (False, True):
            x = rng.standard_normal((3, 4, 5)) if not turned else rng.standard_normal((5, 4, 3)).T
            for _ in range(4):
                leaf = tinytorch.tensor(x).requires_grad_()
                out = leaf[entries]
                np.testing.assert_array_equal(out.detach().numpy(), x[arrays])
                assert out.is_contiguous() or type(index[0]) is list
                out.backward(tinytorch.ones_like(out) * 2)
                expected = np.zeros_like(x)
                np.add.at(expected, arrays, 2.0)
                np.testing.assert_array_equal(leaf.grad.numpy(), expected)
                nearest = tuple(i + 9 if isinstance(i, tinytorch.Tensor) else i for i in entries)
                with pytest.raises(IndexError, match="out of range for dimension"):
                    leaf[nearest]


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize(
    "index",
    [
        ([1, -1], [2, 0]),
        ([[1, -1]], [[2], [0], [-3]]),  # broadcast
        (2, [0, 1]),
        (-1, 1),
        ([], []),
        ([0, 3], [0, 1]),  # out of range
        ([0, 1], [0, 1, 2]),  # which do not broadcast
    ],
)
def test_elements_without_ops_are_those_of_the_ops(index, backend, monkeypatch):
    """x[i, j] is picked by NumPy where nothing is recorded and the index is small."""
    entries = [tinytorch.tensor(i, dtype="int64") for i in index]
    x = tinytorch.tensor(np.arange(12.0).reshape(3, 4))
    for y in (x, x.T.contiguous().T, x > 5, x.to("bfloat16")):
        found = []
        for few in (2**16, -1):
            monkeypatch.setattr(subscripts, "LARGEST", few)
            with tinytorch.using_backend(backend):
                try:
                    picked = y[tuple(entries)]
                    assert picked.is_contiguous() and type(picked._data) is np.ndarray
                    found.append((picked.meta, picked.tolist()))
                except (IndexError, ShapeError) as error:
                    found.append((type(error), str(error)))
        assert found[0] == found[1]


def test_elements_are_picked_by_an_op_where_one_is_seen():
    x, i = tinytorch.tensor(X[0], requires_grad=True), tinytorch.tensor([0, 1])
    with tinytorch.using_backend("numpy"):
        assert x[i, i].requires_grad and not x.detach()[i, i].requires_grad
        with OpNames() as seen:
            _ = x.detach()[i, i]
    assert "take" in seen.names


def test_a_range_is_an_index_as_in_pytorch():
    x = np.arange(12.0).reshape(3, 4)
    ours, theirs = tinytorch.tensor(x), torch.tensor(x)
    assert ours[range(2)].tolist() == theirs[range(2)].tolist()
    assert ours[range(3), [1, 2, 0]].tolist() == theirs[range(3), [1, 2, 0]].tolist()
    assert ours[range(0)].shape == tuple(theirs[range(0)].shape)
    ours[range(3), [0, 1, 2]] = 5.0
    theirs[range(3), [0, 1, 2]] = 5.0
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "index",
    [
        [[0, 1], [1, 0]],
        [[0, 1]],
        [slice(0, 1), 1],
        [None, 0],
        [..., 0],
        [np.array([0, 1]), 1],
        [tinytorch.tensor([0, 1]), tinytorch.tensor([1, 0])],
        [tinytorch.tensor(0), tinytorch.tensor(1)],
    ],
)
def test_a_list_of_lists_is_read_in_two_ways_and_refused(index):
    x = tinytorch.arange(12.0).reshape(2, 3, 2)
    with pytest.raises(IndexError, match=r"index with tuple\(index\), or with a tensor"):
        x[index]
    with pytest.raises(IndexError, match=r"index with tuple\(index\), or with a tensor"):
        x[index] = 0.0
    assert x[tuple(index)].sum().item() > 0
    assert x[[0, 1]].shape == (2, 3, 2) and x[[True, False]].shape == (1, 3, 2)
