"""Copies, joined arrays, arrays put into zeros, of one shape: by rows where rows are short."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tinytorch.backends import reference
from tinytorch.backends.reference_movement import fill_array
from tinytorch.dtypes import Array, Shape, TensorMeta
from tinytorch.jit.buffers import POOLED_FROM, empty
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.runs import FEW, FEWEST, LONG, copy_into
from tinytorch.op import Plan

Kernel = Callable[..., Any]


def copy(plan: Plan) -> Kernel | None:
    """NumPy's, which programs contain as it is, of a small array."""
    return reference.copy if plan.meta.size < FEWEST else None


def written(target: Array, source: Array) -> None:
    """`source`, of the target's shape and dtype, which may share its memory, into the target."""
    if np.may_share_memory(target, source):
        np.copyto(target, source)
    else:
        copy_into(target, source)


def reshape(plan: Plan) -> Kernel | None:
    """NumPy's, likewise."""
    return reference.reshape if plan.meta.size < FEWEST else None


def reshaped(a: Array, *, shape: Shape) -> Array:
    """A view, where memory allows, otherwise of a copy."""
    if not a.flags.c_contiguous and not _is_view(a.shape, a.strides, shape):
        a = contiguous(a)
    return a.reshape(shape)


@lru_cache(4096)
def _is_view(shape: Shape, strides: tuple[int, ...], other: Shape) -> bool:
    """Whether an array with these strides has that other shape without a copy: dimensions become
    one, and one becomes several, only where they lie one behind the other."""
    groups: list[tuple[int, int]] = []
    for n, step in zip(shape, strides, strict=True):
        if n != 1:
            behind = groups and groups[-1][1] == n * step
            groups.append((n * groups.pop()[0] if behind else n, step))
    lengths = iter(other)
    for n, _ in groups:
        size = 1
        while size < n:
            size *= next(lengths)
        if size != n:
            return False
    return True


def cat(plan: Plan) -> Kernel | None:
    """Into memory that was used before, where more of it would be new; short rows by our loop."""
    shape, dtype, into = plan.meta.shape, plan.meta.dtype.dtype, cat_into(plan)
    if into is None and plan.meta.nbytes < 4 * POOLED_FROM:  # of less, malloc has some
        return None

    def joined(*arrays: Array, dim: int) -> Array:
        out = empty(shape, dtype)
        return np.concatenate(arrays, dim, out)

    def joined_by_rows(*arrays: Array, dim: int) -> Array:
        out = empty(shape, dtype)
        into(*arrays, out, dim=dim)  # type: ignore[misc]
        return out

    return joined if into is None else joined_by_rows


def cat_into(plan: Plan) -> Kernel | None:
    """A function of arrays and of one that they become; None where their rows are few, or long, or
    of one number."""
    shape, dtype, dim = plan.meta.shape, plan.meta.dtype.dtype, plan.params["dim"]
    metas = [x for x in plan.operands if isinstance(x, TensorMeta)]
    if plan.meta.size < FEWEST or {x.dtype.dtype for x in metas} != {dtype}:
        return None
    sizes = [x.shape[dim] for x in metas]
    longest = max(sizes) * math.prod(shape[dim + 1 :])
    if math.prod(shape[:dim]) < FEW or longest == 1 or longest * dtype.itemsize >= LONG:
        return None
    ends = pairwise(accumulate(sizes, initial=0))
    parts = [(*(slice(None),) * dim, slice(start, end)) for start, end in ends]

    def join(*arrays: Array, dim: int) -> None:
        *given, out = arrays
        for part, x in zip(parts, given, strict=True):
            copy_into(out[part], x)

    return join


def unslice(plan: Plan) -> Kernel | None:
    """Zeros, in memory that was used before, with an array inside."""
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    if x.size < FEWEST:
        return None
    shape, dtype = plan.meta.shape, plan.meta.dtype.dtype

    def in_zeros(a: Array, **params: Any) -> Array:
        out = empty(shape, dtype)
        _unslice_into(a, out, **params)
        return out

    return in_zeros


def _unslice_into(a: Array, out: Array, *, shape: Shape, bounds: Any) -> None:
    fill_array(out, 0)
    copy_into(reference.slice_(out, bounds=bounds), a)


def _copy_into(a: Array, out: Array) -> None:
    copy_into(out, a)


#: For plans, the kernels that are given the memory of their result.
INTO: dict[str, Callable[[Plan], Kernel | None]] = {
    "copy": lambda plan: _copy_into,
    "unslice": lambda plan: _unslice_into,
    "cat": cat_into,
}
