"""Gradient clipping beside PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import Tensor
from tinytorch.optim import clip_grad_norm_, clip_grad_value_

SHAPES = [(3, 4), (5,), (), (2, 1, 2)]


def both(seed: int, scale: float) -> tuple[list[Tensor], list[Any]]:
    rng = np.random.default_rng(seed)
    ours, theirs = [], []
    for i, shape in enumerate(SHAPES):
        p = tinytorch.zeros(shape, dtype="float64", requires_grad=True)
        q = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        if i != 1:  # one has no gradient
            g = np.asarray(scale * rng.normal(size=shape))
            p.grad, q.grad = tinytorch.tensor(g), torch.tensor(g)
        ours.append(p)
        theirs.append(q)
    return ours, theirs


def assert_same_gradients(ours: list[Tensor], theirs: list[Any]) -> None:
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-12)


@given(
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.1, 100.0]),
    st.sampled_from([0.5, 2.0]),
    st.sampled_from([1.0, 2.0, 3.0, math.inf]),
)
def test_norm(seed: int, scale: float, max_norm: float, p: float) -> None:
    ours, theirs = both(seed, scale)
    total = clip_grad_norm_(ours, max_norm, p)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, p)
    assert total.shape == ()
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    assert_same_gradients(ours, theirs)


@given(st.integers(0, 1000), st.sampled_from([0.1, 10.0]))
def test_value(seed: int, limit: float) -> None:
    ours, theirs = both(seed, 1.0)
    clip_grad_value_(ours, limit)
    torch.nn.utils.clip_grad_value_(theirs, limit)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("foreach", [None, False])
def test_what_programs_for_pytorch_pass(foreach: bool | None) -> None:
    ours, theirs = both(0, 1.0)
    for clip, clip_value, p in (
        (clip_grad_norm_, clip_grad_value_, ours),
        (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_, theirs),
    ):
        clip(p, 1.5, math.inf, foreach=foreach)  # type: ignore[operator]
        clip_value([q for q in p if q.grad is not None], 0.5, foreach)  # type: ignore[operator]
    assert_same_gradients(ours, theirs)


def test_one_tensor_and_none() -> None:
    p = tinytorch.zeros(2, requires_grad=True)
    assert clip_grad_norm_(p, 1.0).item() == 0.0
    p.grad = tinytorch.tensor([3.0, 4.0])
    assert clip_grad_norm_(p, 1.0).item() == 5.0
    assert p.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-6)


def test_a_norm_that_is_not_finite() -> None:
    p = tinytorch.zeros(2, requires_grad=True)
    p.grad = tinytorch.tensor([math.inf, 1.0])
    with pytest.raises(ValueError, match=r"the 2.0-norm of the gradients is inf, so they cannot"):
        clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist() == [math.inf, 1.0]
    assert clip_grad_norm_([p], 1.0).item() == math.inf
    assert math.isnan(p.grad.tolist()[0]) and p.grad.tolist()[1] == 0.0
