from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions.publish import FUNCTIONS, METHODS, publish
from tinytorch.tensor import Tensor


def test_attributes_like_pytorch():
    data = np.zeros((2, 3), np.float32)
    ours, theirs = tinytorch.tensor(data), torch.from_numpy(data)
    assert ours.shape == tuple(theirs.shape) == ours.size()
    assert (ours.ndim, ours.dim(), ours.numel()) == (theirs.ndim, theirs.dim(), theirs.numel())
    assert ours.size(-1) == theirs.size(-1)
    assert ours.nbytes == theirs.nbytes
    assert len(ours) == len(theirs)
    assert ours.is_floating_point() and ours.is_leaf and ours.is_contiguous()
    assert not ours.T.is_contiguous()
    assert_like_torch(lambda x: x.T, None, data)


def test_construction_copies():
    array = np.ones(3)
    x = Tensor(array)
    array[0] = 5
    assert x.tolist() == [1, 1, 1]
    y = Tensor(x)
    y.zero_()
    assert x.tolist() == [1, 1, 1]


# -- exchange with NumPy and PyTorch ---------------------------------------------------------------


def test_numpy_shares_memory():
    array = np.zeros((2, 3), np.float32)
    x = Tensor.from_numpy(array)
    array[0, 0] = 7
    assert x[0, 0].item() == 7
    assert x.numpy() is array
    x.numpy()[1, 1] = 3
    assert array[1, 1] == 3


def test_from_numpy_of_any_layout():
    base = np.arange(12.0).reshape(3, 4)
    for view in (base.T, base[::-1], base[:, ::2], np.broadcast_to(base[0], (2, 4))):
        x = Tensor.from_numpy(view)
        np.testing.assert_array_equal((x + 1).numpy(), view + 1)


def test_from_numpy_refuses_what_it_cannot_share():
    with pytest.raises(TypeError, match="from_numpy takes a NumPy array, not list"):
        Tensor.from_numpy([1.0])
    with pytest.raises(DTypeError, match="is not in this machine's byte order"):
        Tensor.from_numpy(np.zeros(2, np.dtype(np.float32).newbyteorder()))
    with pytest.raises(DTypeError, match="is not a TinyTorch dtype; there are bool, uint8"):
        Tensor.from_numpy(np.zeros(2, np.complex64))


def test_array_protocol():
    x = tinytorch.tensor([1.0, 2.0])
    assert np.asarray(x) is not None and np.shares_memory(np.asarray(x), x.numpy())
    assert not np.shares_memory(np.array(x), x.numpy())
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.sum(np.asarray(x)) == 3
    with pytest.raises(ValueError, match=r"float32 cannot become .*float64.* without a copy"):
        x.__array__(np.float64, copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32", "float64"])
def test_dlpack_both_ways_without_copying(dtype):
    ours = tinytorch.tensor([[0, 1], [2, 3]], dtype=dtype)
    theirs = torch.from_dlpack(ours)
    assert theirs.dtype == getattr(torch, dtype)
    assert theirs.data_ptr() == ours.numpy().ctypes.data
    back = tinytorch.from_dlpack(theirs)
    assert np.shares_memory(back.numpy(), ours.numpy())
    theirs[0, 0] = 1
    assert ours[0, 0].item() == back[0, 0].item() == 1
    array = np.from_dlpack(ours)
    assert np.shares_memory(array, ours.numpy())


def test_dlpack_of_views():
    base = torch.arange(12.0).reshape(3, 4)
    for view in (base.T, base[1:, ::2], base[0]):
        x = tinytorch.from_dlpack(view)
        np.testing.assert_array_equal(x.numpy(), view.numpy())
        assert x.numpy().ctypes.data == view.data_ptr()


def test_values_leave_only_without_a_gradient():
    x = tinytorch.tensor([1.0], requires_grad=True)
    for leave in (x.numpy, lambda: np.asarray(x), lambda: torch.from_dlpack(x)):
        with pytest.raises(AutogradError, match=r"numpy.. on a tensor that requires a gradient"):
            leave()
    assert x.item() == 1 and x.tolist() == [1] and float(x) == 1
    assert np.shares_memory(x.detach().numpy(), x._data)


def test_python_numbers():
    assert float(tinytorch.tensor([2.5])) == 2.5
    assert int(tinytorch.tensor(3)) == 3
    assert [10, 20, 30][tinytorch.tensor(1)] == 20
    assert bool(tinytorch.tensor([True])) and not tinytorch.tensor(0.0)
    assert type(tinytorch.tensor(3).item()) is int
    assert type(tinytorch.tensor(True).item()) is bool
    with pytest.raises(ShapeError, match=r"item\(\) needs exactly one element, not shape \(2,\)"):
        tinytorch.zeros(2).item()
    with pytest.raises(ShapeError, match=r"the truth of a tensor of shape .* is ambiguous"):
        bool(tinytorch.zeros(2) == 0)
    with pytest.raises(TypeError, match="a float32 tensor is not an index"):
        range(5)[tinytorch.tensor(1.0)]
    for call in (len, iter):
        with pytest.raises(TypeError, match="a 0-d tensor"):
            call(tinytorch.tensor(1.0))


def test_hash_is_by_identity():
    x, y = tinytorch.zeros(2), tinytorch.zeros(2)
    assert len({x, y, x}) == 2


# -- conversion ------------------------------------------------------------------------------------


def test_conversions_like_pytorch():
    data = np.array([-1.5, 0.0, 2.5, 100.0])
    for name in ("float", "double", "half", "int", "long", "bool"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(), None, data)
    x = tinytorch.tensor(data)
    assert x.double() is x and x.to("float64") is x
    assert x.to(np.float32).dtype is tinytorch.float32
    assert x.to(float).dtype is tinytorch.float32
    with pytest.raises(DTypeError, match="'complex64' is not a TinyTorch dtype"):
        x.to("complex64")


def test_copies():
    x = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert not np.shares_memory(x.clone()._data, x._data)
    assert np.shares_memory(x.detach()._data, x._data)
    assert x.contiguous() is x
    assert x.T.contiguous().is_contiguous()
    assert_like_torch(lambda x: x.T.contiguous() * x.clone(), None, x.detach().numpy())
    assert not x.detach().requires_grad and not x.data.requires_grad


# -- printing and keeping --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: tinytorch.tensor([1.0, 2.5]), "tensor([1. , 2.5])"),
        (lambda: tinytorch.tensor([1, 2]), "tensor([1, 2])"),
        (lambda: tinytorch.tensor([True]), "tensor([ True])"),
        (lambda: tinytorch.tensor(3.0), "tensor(3.)"),
        (lambda: tinytorch.tensor([1], dtype="int32"), "tensor([1], dtype=int32)"),
        (lambda: tinytorch.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: tinytorch.tensor([1.0], requires_grad=True) * 2, "tensor([2.], grad_fn=<mul>)"),
        (lambda: tinytorch.zeros(0, 3), "tensor([], shape=(0, 3), dtype=float32)"),
        (lambda: tinytorch.zeros(2, 2), "tensor([[0., 0.],\n        [0., 0.]])"),
    ],
)
def test_repr(make, text):
    assert repr(make()) == text


def test_repr_of_a_long_tensor_is_short():
    assert len(repr(tinytorch.zeros(100, 1000))) < 500


@pytest.mark.parametrize("requires_grad", [False, True])
def test_pickle_and_deepcopy(requires_grad):
    x = tinytorch.tensor([[1.0, 2.0]], requires_grad=requires_grad)
    x.grad = tinytorch.ones(1, 2)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert other.tolist() == x.tolist() and other.dtype is x.dtype
        assert other.requires_grad == requires_grad
        assert not np.shares_memory(other._data, x._data)
    assert copy.deepcopy(x).grad.tolist() == [[1, 1]]
    shared = copy.deepcopy([x, x])
    assert shared[0] is shared[1]


def test_history_is_not_kept():
    y = tinytorch.tensor([1.0], requires_grad=True) * 2
    with pytest.raises(AutogradError, match=r"a tensor with history cannot be pickled; use"):
        pickle.dumps(y)
    with pytest.raises(AutogradError, match="a tensor with history cannot be deep-copied"):
        copy.deepcopy(y)


# -- in place --------------------------------------------------------------------------------------

IN_PLACE = {
    "add_": lambda x: x.add_(2),
    "add_ alpha": lambda x: x.add_(x.detach().clone(), alpha=3),
    "sub_": lambda x: x.sub_(x[0].clone()),
    "mul_": lambda x: x.mul_(0.5),
    "div_": lambda x: x.div_(4),
    "clamp_": lambda x: x.clamp_(1, 3),
    "fill_": lambda x: x.fill_(7),
    "zero_": lambda x: x.zero_(),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, -1),
    "view": lambda x: x[:, 1].mul_(10),
    "transposed view": lambda x: x.mT.add_(x.mT[0].clone().reshape(1, -1)),
}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_like_pytorch(write):
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    ours, theirs = Tensor(array), torch.from_numpy(array.copy())
    memory = ours.numpy()
    result = write(ours)
    write(theirs)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert ours.numpy() is memory and np.shares_memory(result.numpy(), memory)


def test_copy_broadcasts_and_converts():
    x = tinytorch.zeros(2, 3)
    assert x.copy_(tinytorch.tensor([1, 2, 3])).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert x.copy_(np.array([[4.0], [5.0]])).tolist() == [[4] * 3, [5] * 3]
    assert x.copy_(6).tolist() == [[6] * 3] * 2
    whole = tinytorch.zeros(2, dtype="int64")
    assert whole.copy_(tinytorch.tensor([1.9, -1.9])).tolist() == [1, -1]


def test_augmented_assignment_is_in_place_where_nothing_is_recorded():
    x = tinytorch.ones(3)
    alias = x
    x += 1
    x -= 0.5
    x *= 4
    x /= 2
    assert alias is x and alias.tolist() == [3, 3, 3]
    w = tinytorch.ones(3, requires_grad=True)
    y = w * 1
    before = y
    y += 1
    assert y is before and before.tolist() == [2, 2, 2]
    y.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]


def test_in_place_on_integers_does_not_round():
    x = tinytorch.tensor([1, 2])
    assert x.add_(1).tolist() == [2, 3]
    for write in (lambda: x.add_(0.5), lambda: x.mul_(tinytorch.tensor([0.5]))):
        with pytest.raises(DTypeError, match="a float32 result does not fit into a int64 tensor"):
            write()
    with pytest.raises(DTypeError, match="in-place division would round int64; use t = t / other"):
        x.div_(2)
    assert x.tolist() == [2, 3]
    half = tinytorch.zeros(2, dtype="float32")
    assert half.add_(tinytorch.ones(2, dtype="float64")).dtype is tinytorch.float32


def test_in_place_errors():
    x = tinytorch.ones(3, requires_grad=True)
    with pytest.raises(AutogradError, match=r"in-place add on a leaf that requires a gradient"):
        x.add_(1)
    with pytest.raises(AutogradError, match=r"in-place add on a leaf that requires a gradient"):
        x += 1
    with pytest.raises(AutogradError, match=r"in-place mul on a tensor of .* shares memory"):
        y = x * 2
        y.reshape(3, 1).mul_(2)
    with pytest.raises(ShapeError, match=r"in-place add: a result of shape \(2, 3\) does not fit"):
        tinytorch.ones(3).add_(tinytorch.ones(2, 3))
    with pytest.raises(AutogradError, match=r"shape \(2, 3\) is a broadcast or read-only view"):
        tinytorch.ones(3).expand(2, 3).add_(1)
    assert x.tolist() == [1, 1, 1]
    with tinytorch.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 2, 2]


def test_random_in_place():
    x = tinytorch.zeros(1000)
    x.uniform_(2, 3)
    assert x.min().item() >= 2 and x.max().item() < 3
    x.normal_(5, 0.1)
    assert abs(x.mean().item() - 5) < 0.05
    g = tinytorch.Generator(1)
    a = tinytorch.zeros(3).uniform_(generator=g)
    assert a.tolist() == tinytorch.zeros(3).uniform_(generator=tinytorch.Generator(1)).tolist()


def test_requires_grad_is_for_floats_and_leaves():
    with pytest.raises(DTypeError, match="only floating-point tensors have gradients, not int64"):
        tinytorch.tensor([1], requires_grad=True)
    y = tinytorch.tensor([1.0], requires_grad=True) * 2
    with pytest.raises(AutogradError, match=r"this tensor was computed; use t.detach"):
        y.requires_grad_(False)
    assert not (tinytorch.tensor([1.0], requires_grad=True).long()).requires_grad
    assert not (tinytorch.tensor([1.0], requires_grad=True) > 0).requires_grad


def test_a_function_is_published_by_being_defined():
    for name, function in FUNCTIONS.items():
        assert getattr(tinytorch, name) is function
    for name, method in METHODS.items():
        assert getattr(Tensor, name) is method
    several = {"cat", "stack", "einsum", "tensordot", "meshgrid", "cdist", "pad"}
    assert several <= FUNCTIONS.keys() - METHODS.keys()
    assert {"add_", "to", "expand"} <= METHODS.keys() - FUNCTIONS.keys()


def test_a_name_is_published_once():
    def total(x): ...

    total.__module__ = "elsewhere"
    with pytest.raises(ValueError, match=r"elsewhere\.sum is published already, from tinytorch\.f"):
        publish({"__name__": "elsewhere", "total": total}, aliases={"sum": "total"})
    FUNCTIONS.pop("total", None), METHODS.pop("total", None)
