"""Windows of small arrays added back to where they were taken, in the order of memory.

Five nested loops: over three dimensions (those that a walk can take together are one), the windows,
and the positions in a window. The one along memory is the innermost. What meets at one place is
added in the order of the windows, as the reference adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends import reference
from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.elementwise.nest import collapse
from tinytorch.backends.optimized.rows.small import NUMBERS, Kernel, are_small
from tinytorch.dtypes import Array, Shape, TensorMeta
from tinytorch.jit.contiguous import inverse
from tinytorch.jit.entries import Entries, flat_type, memory_type
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

LOOPS = 5
LAYOUTS = 64  # of one plan, to remember


@kernel(nogil=False, fastmath=EXACT)
def _add(geometry: Array, a: Array, out: Array) -> None:
    """`geometry` has where a begins and where out does; then of each loop the length, and the steps
    in a and in out."""
    out[:] = 0
    begin, to = geometry[0], geometry[1]
    loops = geometry[2:].reshape((LOOPS, 3))
    n, by, on = loops[:, 0], loops[:, 1], loops[:, 2]
    m, s, t = n[4], by[4], on[4]
    for i in range(n[0]):
        for j in range(n[1]):
            for k in range(n[2]):
                for w in range(n[3]):
                    p = begin + i * by[0] + j * by[1] + k * by[2] + w * by[3]
                    q = to + i * on[0] + j * on[1] + k * on[2] + w * on[3]
                    if s == 1 and t == 1:
                        part, sums = a[p : p + m], out[q : q + m]
                        for each in range(m):
                            sums[each] += part[each]
                    else:
                        for each in range(m):
                            out[q + each * t] += a[p + each * s]


@cache
def _entry(dtype: np.dtype[Any]) -> Callable[..., None]:
    real = from_dtype(dtype)
    kinds = flat_type(types.intp), memory_type(real), flat_type(real)
    return Entries(add=(_add, *kinds)).add


class _Walk(NamedTuple):
    """How windows in one layout are walked.

    Attributes:
        shape: of the result, in the order of its memory.
        back: turns it to the order of its dimensions.
        geometry: see `_add`.
    """

    shape: Shape
    back: tuple[int, ...]
    geometry: Array


def _walk_of(a: Array, length: int, step: int) -> _Walk | None:
    """None where five loops do not suffice, or memory is not walked in whole elements."""
    count, size = a.shape[-2:]
    if any(s < 0 or s % a.itemsize for s in a.strides):
        return None
    *outer, of_windows, of_size = (s // a.itemsize for s in a.strides)
    # the result is stored in the order of the windows, or of what is in one
    along = (*outer, of_windows if count > size else of_size)
    order = tuple(sorted(range(a.ndim - 1), key=lambda d: -along[d]))
    shape = (*a.shape[:-2], length)
    stored = np.empty([shape[d] for d in order], np.uint8).transpose(inverse(order))
    sizes, (by, on) = collapse(a.shape[:-2], [tuple(outer), stored.strides[:-1]])
    if len(sizes) > LOOPS - 2:
        return None
    each = stored.strides[-1]
    loops = [*zip(sizes, by, on, strict=True), (count, of_windows, step * each)]
    # from the end of a window, so that of two that meet the earlier comes first
    loops.append((size, -of_size, -each))
    loops += [(1, 0, 0)] * (LOOPS - len(loops))
    loops.sort(key=lambda loop: -abs(loop[1]) if loop[0] > 1 else -np.inf)
    begin = (size - 1) * of_size, (size - 1) * each
    geometry = np.array([*begin, *np.ravel(loops)], np.int64)
    return _Walk(tuple([shape[d] for d in order]), inverse(order), geometry)


def fold(plan: Plan) -> Kernel | None:
    """See `reference.fold`; None where a plan is not for small arrays of numbers."""
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    dtype = x.dtype.dtype
    if not are_small(x, plan.meta) or dtype not in NUMBERS:
        return None
    add, known = _entry(dtype), dict[Shape, _Walk | None]()

    def run(a: Array, *, length: int, step: int) -> Array:
        try:
            walk = known[a.strides]
        except KeyError:
            if len(known) >= LAYOUTS:
                known.clear()
            walk = known[a.strides] = _walk_of(a, length, step)
        if walk is None:
            return reference.fold(a, length=length, step=step)
        out = np.empty(walk.shape, dtype)
        try:
            add(walk.geometry, a, out)
        except BufferError:  # not aligned
            return reference.fold(a, length=length, step=step)
        return out.transpose(walk.back)

    return run
