"""Tensors of random numbers, and whether two are the same to the last bit."""

from __future__ import annotations

import numpy as np

import tinytorch


def floats(rng: np.random.Generator, *shape: int) -> tinytorch.Tensor:
    return tinytorch.tensor(rng.standard_normal(shape).astype(np.float32))


def same(a: tinytorch.Tensor, b: tinytorch.Tensor) -> bool:
    return a.dtype is b.dtype and np.array_equal(a.detach().numpy(), b.detach().numpy())
