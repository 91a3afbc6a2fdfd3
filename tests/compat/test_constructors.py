"""Tensors made by PyTorch's constructors and samplers: dtypes, shapes, limits, distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.errors import DTypeError, ShapeError

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


@pytest.mark.parametrize("data", [[1, 2], [[1], [2]], [True, False], [1.5, 2], [], (3, 4)])
def test_the_class_makes_float32_of_a_list(data: Any) -> None:
    ours, theirs = tinytorch.Tensor(data), torch.Tensor(data)
    assert ours.dtype is tinytorch.float32 and theirs.dtype is torch.float32
    assert ours.tolist() == theirs.tolist()


NEW = {
    "zeros": lambda x: x.new_zeros(2, 3),
    "zeros of a tuple": lambda x: x.new_zeros((2, 3)),
    "ones": lambda x: x.new_ones((4,)),
    "ones of a size": lambda x: x.new_ones(size=(2, 2)),
    "full": lambda x: x.new_full((2, 2), 3),
    "tensor": lambda x: x.new_tensor([[1, 0]]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("name", NEW)
def test_a_tensor_makes_others_of_its_dtype(name: str, dtype: str) -> None:
    ours = NEW[name](tinytorch.zeros(1, dtype=dtype))
    theirs = NEW[name](torch.zeros(1, dtype=getattr(torch, dtype)))
    assert name_of(ours.dtype) == name_of(theirs.dtype) == dtype
    assert ours.shape == tuple(theirs.shape) and ours.tolist() == theirs.tolist()


def test_new_tensors_take_another_dtype_and_have_no_history() -> None:
    for library in (tinytorch, torch):
        x = library.ones(2, requires_grad=True)
        y = (x * 2).new_zeros(3, dtype=library.int64)
        assert y.dtype is library.int64 and not y.requires_grad
        assert tuple(x.new_empty(2, 5).shape) == (2, 5)
        assert x.new_ones(1, requires_grad=True).requires_grad


@pytest.mark.parametrize("dtype", FLOATS)
def test_limits_of_floats(dtype: str) -> None:
    ours, theirs = tinytorch.finfo(getattr(tinytorch, dtype)), torch.finfo(getattr(torch, dtype))
    assert (ours.bits, ours.dtype) == (theirs.bits, theirs.dtype)
    for name in ("eps", "min", "max", "tiny", "smallest_normal", "resolution"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12), name
    with pytest.raises(TypeError, match=f"not {dtype}"):
        tinytorch.iinfo(dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_limits_of_integers(dtype: str) -> None:
    ours, theirs = tinytorch.iinfo(getattr(tinytorch, dtype)), torch.iinfo(getattr(torch, dtype))
    for name in ("bits", "min", "max", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    with pytest.raises(TypeError, match=f"not {dtype}; use iinfo"):
        tinytorch.finfo(dtype)


DRAWS = 20_000


@pytest.mark.parametrize("weights", [[1.0, 0.0, 3.0], [[1.0, 2.0, 1.0], [0.0, 0.0, 5.0]]])
def test_multinomial_draws_in_proportion(weights: Any) -> None:
    w = np.array(weights)
    drawn = tinytorch.multinomial(tinytorch.tensor(w), DRAWS, replacement=True)
    assert drawn.dtype is tinytorch.int64 and drawn.shape == (*w.shape[:-1], DRAWS)
    for row, expected in zip(np.atleast_2d(drawn.numpy()), np.atleast_2d(w), strict=True):
        share = np.bincount(row, minlength=3) / DRAWS
        p = expected / expected.sum()
        # five standard deviations of a share of DRAWS draws
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / DRAWS)).all()


def test_multinomial_without_replacement_draws_each_index_once() -> None:
    weights = tinytorch.tensor([[0.1, 0.0, 5.0, 1.0]] * 200)
    drawn = tinytorch.multinomial(weights, 3).numpy()
    assert (np.sort(drawn, axis=1) == [0, 2, 3]).all()
    first = (drawn[:, 0] == 2).mean()  # expected 5 / 6.1 = 0.82, deviation 0.027
    assert 0.68 < first < 0.96


def test_multinomial_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match=r"not shape \(1, 1, 2\)"):
        tinytorch.multinomial(tinytorch.ones(1, 1, 2), 1)
    with pytest.raises(DTypeError, match="not int64"):
        tinytorch.multinomial(tinytorch.tensor([1, 2]), 1)
    for weights in ([1.0, -1.0], [float("nan"), 1.0], [0.0, 0.0]):
        with pytest.raises(ValueError):
            tinytorch.multinomial(tinytorch.tensor(weights), 1)
    with pytest.raises(ValueError):
        tinytorch.multinomial(tinytorch.tensor([1.0, 0.0]), 2)


def test_normal_has_the_mean_and_deviation_it_is_given() -> None:
    mean, std = tinytorch.tensor([[-3.0], [10.0]]), tinytorch.tensor([0.5, 4.0])
    x = tinytorch.normal(mean.expand(2, 2), std.expand(2, 2))
    assert x.shape == (2, 2) and x.dtype is tinytorch.float32
    drawn = tinytorch.normal(-3.0, 0.5, (DRAWS,)).numpy()
    assert abs(drawn.mean() + 3) < 5 * 0.5 / np.sqrt(DRAWS)
    assert abs(drawn.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * DRAWS)
    many = tinytorch.normal(mean.expand(2, DRAWS), 2.0).numpy()
    assert np.abs(many.mean(1) - [-3, 10]).max() < 5 * 2 / np.sqrt(DRAWS)


def test_samplers_repeat_with_their_generator() -> None:
    def draw() -> list[Any]:
        g = tinytorch.Generator().manual_seed(3)
        drawn = tinytorch.normal(0.0, 1.0, (4,), generator=g).tolist()
        return drawn + tinytorch.multinomial(tinytorch.ones(9), 4, generator=g).tolist()

    assert draw() == draw()
    with pytest.raises(TypeError, match="needs a size"):
        tinytorch.normal(0.0, 1.0)
