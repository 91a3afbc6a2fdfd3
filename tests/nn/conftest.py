"""Tests of `nn` run on the numpy backend, in float64, and compare with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.autograd import gradgradcheck

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _numpy_backend() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield


@pytest.fixture(scope="session")
def agree() -> Callable[..., None]:
    """`agree(ours, theirs, *arrays)`: results and gradients are equal but for rounding."""
    return partial(assert_like_torch, rtol=1e-9)


@pytest.fixture(scope="session")
def check_twice() -> Callable[..., None]:
    """`check_twice(function, *arrays)`: first and second derivatives equal finite differences."""

    def check(function: Callable[..., Any], *arrays: Any) -> None:
        assert gradgradcheck(function, [tinytorch.tensor(a, requires_grad=True) for a in arrays])

    return check
