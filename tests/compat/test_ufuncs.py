"""NumPy's functions of elements, called with tensors."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch

import tinytorch


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")  # PyTorch's
@pytest.mark.parametrize(
    "use",
    [
        np.sqrt,
        np.floor,
        np.modf,
        lambda x: np.maximum(x, 1.5),
        lambda x: np.power(x, 2),
        lambda x: np.add(x, x),
    ],
)
def test_a_function_gives_what_it_gives_for_pytorchs_tensors(use):
    ours, theirs = use(tinytorch.tensor([1.25, 4.0])), use(torch.tensor([1.25, 4.0]))
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (ours, theirs)], strict=True):
        assert isinstance(a, tinytorch.Tensor) and a.tolist() == b.tolist()
        assert a.dtype.name == str(b.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "mod", "pow", "lt", "ge", "ne"])
def test_an_operator_between_an_array_and_a_tensor_is_the_tensors(name):
    x = tinytorch.tensor([3.0, 4.0], requires_grad=True)
    array, use = np.array([4.0, 2.5]), getattr(operator, name)
    for left in (array, np.float64(2), np.float32(2)):
        out = use(left, x)
        assert isinstance(out, tinytorch.Tensor)
        assert out.tolist() == pytest.approx(use(left, np.array([3.0, 4.0])).tolist())
        assert out.requires_grad is (name not in ("lt", "ge", "ne"))
    (array * x).sum().backward()
    assert x.grad.tolist() == array.tolist()


def test_what_a_function_cannot_follow_is_refused():
    x = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(tinytorch.AutogradError, match=r"use t\.detach\(\)\.numpy\(\)"):
        np.exp(x)


def test_writes_into_an_array_stay_there():
    array = np.ones(2)
    same = array
    array += tinytorch.tensor([1.0, 2.0])
    assert same is array and array.tolist() == [2.0, 3.0]
    assert np.add.reduce(tinytorch.arange(4)).item() == 6
