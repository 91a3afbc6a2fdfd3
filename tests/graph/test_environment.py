"""What a function can reach ends where installed packages begin."""

from __future__ import annotations

import numba
import numpy as np
import torch

import tinytorch
from tinytorch.graph.environment import Environment


def with_packages(x):
    return x * 2 if torch.is_tensor(x) or numba.config else np.negative(x)


class Mixed(tinytorch.nn.Module):
    """Its methods mention another framework."""

    like = torch.nn.Linear(2, 2)

    def forward(self, x):
        return x + self.like.in_features


def test_installed_packages_are_not_walked() -> None:
    for function in (with_packages, Mixed()):
        assert len(Environment(function).reached) < 20


def test_code_that_mentions_them_is_compiled() -> None:
    x = tinytorch.ones(2)
    assert tinytorch.compile(with_packages)(x).tolist() == [2, 2]
    assert tinytorch.compile(Mixed())(x).tolist() == [3, 3]
