"""Reductions, sorts and scans as NumPy functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.reference_elementwise import quiet
from tinytorch.dtypes import Array

Dims = tuple[int, ...]

# the ufuncs' own reductions: np.sum and its like cost twice as much on a small array
_sum: Any = np.add.reduce
_max: Any = np.maximum.reduce
_min: Any = np.minimum.reduce
_prod: Any = np.multiply.reduce


@quiet
def sum(a: Array, *, dims: Dims, keepdim: bool) -> Array:
    return _sum(a, dims, None, None, keepdim)


def amax(a: Array, *, dims: Dims, keepdim: bool) -> Array:
    return _max(a, dims, None, None, keepdim)


def amin(a: Array, *, dims: Dims, keepdim: bool) -> Array:
    return _min(a, dims, None, None, keepdim)


def argmax(a: Array, *, dim: int, keepdim: bool) -> Array:
    return np.argmax(a, axis=dim, keepdims=keepdim)


def argmin(a: Array, *, dim: int, keepdim: bool) -> Array:
    return np.argmin(a, axis=dim, keepdims=keepdim)


def argsort(a: Array, *, dim: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(a, axis=dim, kind="stable")
    # reversed before and after, so that equal elements keep their order
    order = np.argsort(np.flip(a, dim), axis=dim, kind="stable")
    return np.ascontiguousarray(a.shape[dim] - 1 - np.flip(order, dim))


def partial_argsort(a: Array, *, dim: int, descending: bool, start: int, length: int) -> Array:
    order = argsort(a, dim=dim, descending=descending)
    return order[(slice(None),) * dim + (slice(start, start + length),)].copy()


@quiet
def cumsum(a: Array, *, dim: int) -> Array:
    return np.cumsum(a, axis=dim)


def _running_index(extreme: Any) -> Callable[..., Array]:
    def index(a: Array, *, dim: int) -> Array:
        is_best = (a == extreme.accumulate(a, dim)) | (a != a)
        places = np.arange(a.shape[dim]).reshape(-1, *(1,) * (a.ndim - dim - 1))
        return np.maximum.accumulate(np.where(is_best, places, 0), dim)

    return index


running_argmax, running_argmin = _running_index(np.maximum), _running_index(np.minimum)


@quiet
def prod(x: Array, *, dim: int, keepdim: bool) -> Array:
    return _prod(x, dim, None, None, keepdim)


@quiet
def cumprod(x: Array, *, dim: int) -> Array:
    return np.multiply.accumulate(x, dim)


MOST_STEPS = 4096  # of a loop in Python over rows of few numbers


@quiet
def cumprod_backward(g: Array, x: Array, *, dim: int) -> Array:
    out = np.ones(x.shape, x.dtype)
    if not x.size:
        return out
    grads, factors, result = (np.moveaxis(a, dim, 0) for a in (g, x, out))
    np.multiply.accumulate(factors[:-1], 0, out=result[1:])
    n = len(result)
    if n > MOST_STEPS and x.size < 64 * n:  # few numbers in each: in log2(n) steps of all
        total, steps = grads[::-1].copy(), np.roll(factors[::-1], 1, 0)
        reach = 1
        while reach < n:
            total[reach:] += steps[reach:] * total[:-reach]
            steps[reach:] *= steps[:-reach].copy()
            reach *= 2
        result *= total[::-1]
        return out
    total = grads[-1].copy()
    result[-1] *= total
    for i in range(n - 2, -1, -1):
        total *= factors[i + 1]
        total += grads[i]
        result[i] *= total
    return out


@quiet
def cross(a: Array, b: Array, *, dim: int) -> Array:
    out = np.empty(a.shape, a.dtype)
    (a0, a1, a2), (b0, b1, b2), result = (np.moveaxis(t, dim, 0) for t in (a, b, out))
    result[0], result[1] = a1 * b2 - a2 * b1, a2 * b0 - a0 * b2
    result[2] = a0 * b1 - a1 * b0
    return out
