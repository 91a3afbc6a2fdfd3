from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.creation import BLOCK
from tinytorch.errors import DTypeError, ShapeError


def assert_same(ours, theirs):
    assert ours.shape == tuple(theirs.shape)
    assert str(theirs.dtype) == f"torch.{ours.dtype.name}"
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "data",
    [1, 2.5, True, [], [1, 2], [1.0, 2], [True, False], [[1, 2], [3, 4]], [[]], [[1.5], [2.5]],
     [1, True], [[1, 2.5], [True, 0]]],
)  # fmt: skip
def test_tensor_of_python_data_like_pytorch(data):
    assert_same(tinytorch.tensor(data), torch.tensor(data))


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32", "float64"])
def test_tensor_of_an_array_keeps_its_dtype(dtype):
    array = np.array([[0, 1], [2, 3]]).astype(dtype)
    assert_same(tinytorch.tensor(array), torch.tensor(array))
    assert tinytorch.tensor([0, 1], dtype=dtype).dtype.name == dtype
    assert tinytorch.tensor(array.dtype.type(1)).dtype.name == dtype


def mixed(library):
    """Lists in which tensors and NumPy's values are beside Python's numbers."""
    x, f32, i32 = library.tensor, np.float32, np.int32
    row = np.array([1, 2], "float32")
    return [
        [f32(1), 2], [1.0, f32(2)], [i32(1), 2.5], [i32(1), 2], [np.int64(1), f32(1)],
        [np.float64(1), 2], [np.uint8(1), 300], [[1, 2], [f32(1), True]], [row, [1, 2]],
        [x(1.0), 2], (x(1), 2.5), [x([1.0]), 2], [x(1), x(2.0)], [x(1), True], [np.bool_(True)],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("i", range(15))
def test_tensor_of_mixed_data_like_pytorch(i):
    assert_same(tinytorch.tensor(mixed(tinytorch)[i]), torch.tensor(mixed(torch)[i]))


numbers = st.floats(width=64) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
lists = st.recursive(
    st.sampled_from(
        [st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), numbers]
    ).flatmap(lambda of: st.lists(of, max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(lists | numbers)
def test_nested_lists_like_pytorch(data):
    """Of one type, which has a short way, and mixed. PyTorch takes some that are ragged."""
    with np.errstate(over="ignore"):  # beyond float32 is infinity
        try:
            ours = tinytorch.tensor(data)
        except ShapeError:
            with pytest.raises(ValueError, match="inhomogeneous"):
                np.array(data)
            return
        theirs = torch.tensor(data)
    assert str(theirs.dtype).removeprefix("torch.") == ours.dtype.name
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("number", [np.float64(2), np.float32(2), np.int32(2), np.int64(2)])
def test_numpy_numbers_count_as_pythons(number):
    assert_same(tinytorch.full((2,), number), torch.full((2,), number))
    assert_same(tinytorch.arange(number), torch.arange(number))
    assert_same(tinytorch.arange(0, number, number), torch.arange(0, number, number))


def test_tensor_of_tensors():
    x = tinytorch.tensor([1.0, 2.0])
    assert tinytorch.tensor([x, x]).tolist() == [[1, 2], [1, 2]]
    assert tinytorch.tensor([x[0], 3.0]).tolist() == [1, 3]
    assert not np.shares_memory(tinytorch.tensor(x).numpy(), x.numpy())


def test_tensor_errors():
    with pytest.raises(ShapeError, match="a tensor's rows must be equally long"):
        tinytorch.tensor([[1, 2], [3]])
    with pytest.raises(DTypeError, match="a tensor holds numbers, not "):
        tinytorch.tensor(["a"])
    with pytest.raises(DTypeError, match="a tensor holds numbers, not complex128"):
        tinytorch.tensor([1j])
    with pytest.raises(DTypeError, match="is not a TinyTorch dtype; there are bool, uint8, int8"):
        tinytorch.tensor(np.zeros(2, np.uint32))
    with pytest.raises(DTypeError, match=r"a tensor holds numbers, not object \(\[1180591620717"):
        tinytorch.tensor([2**70])
    for value, dtype in ((2**40, "int32"), (2**63, None)):
        with pytest.raises(OverflowError, match=f"{value} does not fit into int"):
            tinytorch.tensor([[value]], dtype=dtype)


def test_as_tensor_shares_where_it_can():
    array = np.ones(3)
    assert np.shares_memory(tinytorch.as_tensor(array).numpy(), array)
    x = tinytorch.zeros(2)
    assert tinytorch.as_tensor(x) is x
    assert tinytorch.as_tensor(x, dtype="int64").dtype is tinytorch.int64
    assert tinytorch.as_tensor([1, 2]).dtype is tinytorch.int64


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("backend", ["naive", "numpy"])
def test_filled(shape, backend):
    with tinytorch.using_backend(backend):
        for name in ("zeros", "ones"):
            assert_same(getattr(tinytorch, name)(shape), getattr(torch, name)(shape))
            assert_same(getattr(tinytorch, name)(*shape), getattr(torch, name)(shape))
        for value in (True, 3, 2.5, float("inf")):
            assert_same(tinytorch.full(shape, value), torch.full(shape, value))
        x, y = tinytorch.full(shape, 2, dtype="int32"), torch.full(shape, 2, dtype=torch.int32)
        assert_same(tinytorch.zeros_like(x), torch.zeros_like(y))
        assert_same(tinytorch.ones_like(x, dtype="float64"), torch.ones_like(y).double())
        assert_same(tinytorch.full_like(x, 7), torch.full_like(y, 7))
    assert tinytorch.ones(2, requires_grad=True).requires_grad
    with pytest.raises(ShapeError, match=r"full: a shape cannot have negative sizes: \(-1,\)"):
        tinytorch.zeros(-1)


@given(
    start=st.integers(-20, 20), stop=st.integers(-20, 20), step=st.sampled_from([1, 2, 3, -1, -4])
)
def test_arange_of_integers(start, stop, step):
    if (stop - start) * step < 0:
        with pytest.raises(ShapeError, match="is the other direction than step"):
            tinytorch.arange(start, stop, step)
    else:
        assert tinytorch.arange(start, stop, step).tolist() == list(range(start, stop, step))


@pytest.mark.parametrize("args", [(5,), (2.5,), (1, 2, 0.25), (0, 1, 0.1), (1, -1, -0.5), (3, 3)])
def test_arange_like_pytorch(args):
    assert_same(tinytorch.arange(*args), torch.arange(*args))


def test_arange_errors():
    for step in (0, float("nan")):
        with pytest.raises(ShapeError, match=r"arange: start 0, stop 3, step .* is not a range"):
            tinytorch.arange(0, 3, step)


def test_linspace_and_eye():
    assert_same(tinytorch.linspace(-1, 1, 7), torch.linspace(-1, 1, 7))
    assert_same(tinytorch.linspace(0, 1, 1), torch.linspace(0, 1, 1))
    assert_same(tinytorch.eye(3), torch.eye(3))
    assert_same(tinytorch.eye(2, 4), torch.eye(2, 4))


@pytest.mark.parametrize(
    "ends", [(0, 1), (-3.7, 1e30), (5, -2), (1e-45, 3e-44), (2, 2), (-0.0, 0.0)]
)
@pytest.mark.parametrize("steps", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 20_000])
def test_a_long_linspace_is_numpys_bit_for_bit(ends, steps):
    found = tinytorch.linspace(*ends, steps).numpy()
    wanted = np.linspace(*ends, steps).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))


def test_a_linspace_of_bad_ends_is_numpys():
    wanted = np.linspace(0, np.nan, BLOCK + 1).astype(np.float32)
    np.testing.assert_array_equal(tinytorch.linspace(0, np.nan, BLOCK + 1).numpy(), wanted)
    with pytest.raises(ValueError, match="-1"):
        tinytorch.linspace(0, 1, -1)


def test_eye_can_be_written_to_and_needs_gradients():
    x = tinytorch.eye(3, requires_grad=True)
    assert x.requires_grad
    tinytorch.eye(3).fill_(2.0)
    assert tinytorch.eye(2, dtype="bfloat16").to("float32").tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**63, None), (-(2**70), None), (300, "uint8"), (-256, "uint8")]
)
def test_full_refuses_a_number_that_the_dtype_has_not(value, dtype):
    with pytest.raises(DTypeError, match=f"full: {value} is not within"):
        tinytorch.full((2,), value, dtype=dtype)
