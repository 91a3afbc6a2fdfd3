"""Pooling of a few small images of one shape, called without numba's dispatch.

What the kernels are asked for follows from the plan: eleven to thirteen numbers, which the entry
gets with the flat arrays (`rows.small` says more).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tinytorch.backends.optimized.pooling.average import avg_pool
from tinytorch.backends.optimized.pooling.maximum import is_2x2, max_pool
from tinytorch.backends.optimized.pooling.pairs import max_pool_2x2
from tinytorch.backends.optimized.rows.small import FLOATS, Kernel, entry, is_small, on_one
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

_compiled = partial(kernel, nogil=False)


@_compiled
def _average(
    planes: int,
    h: int,
    w: int,
    oh: int,
    ow: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    x: Array,
    out: Array,
) -> None:
    images, means = x.reshape((planes, h, w)), out.reshape((planes, oh, ow))
    avg_pool(images, means, (kh, kw), (sh, sw), (ph, pw))


@_compiled
def _maximum(
    planes: int,
    h: int,
    w: int,
    oh: int,
    ow: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
    x: Array,
    out: Array,
) -> None:
    images, best = x.reshape((planes, h, w)), out.reshape((planes, oh, ow))
    max_pool(images, best, (kh, kw), (sh, sw), (ph, pw), (dh, dw))


@_compiled
def _maximum_of_pairs(planes: int, h: int, w: int, oh: int, ow: int, x: Array, out: Array) -> None:
    max_pool_2x2(x.reshape((planes, h, w)), out.reshape((planes, oh, ow)))


_entry = cache(entry)


def avg_pool2d(plan: Plan) -> Kernel | None:
    """See `average.avg_pool2d`; None for large images."""
    return _step(plan, _average, "kernel_size", "stride", "padding")


def max_pool2d(plan: Plan) -> Kernel | None:
    """See `maximum.max_pool2d`; None for large images."""
    if is_2x2(**plan.params):
        return _step(plan, _maximum_of_pairs)
    return _step(plan, _maximum, "kernel_size", "stride", "padding", "dilation")


def _step(plan: Plan, step: Callable[..., Any], *names: str) -> Kernel | None:
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    dtype, (n, c, h, w) = x.dtype.dtype, x.shape
    if not is_small(plan) or dtype not in FLOATS:
        return None
    numbers = (n * c, h, w, *plan.meta.shape[2:], *(n for name in names for n in plan.params[name]))
    return on_one(plan, partial(_entry(step, len(numbers), dtype, dtype), *numbers))
