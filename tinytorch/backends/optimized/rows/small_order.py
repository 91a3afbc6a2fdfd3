"""The order of the elements of small arrays along rows, by kernels called without numba's dispatch.

NumPy sorts between two of them: see `order`. The element at one place is found bit by bit.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.rows import order, small
from tinytorch.backends.optimized.rows.small import FLOATS, INT64, Kernel, compiled, is_small
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

LONG = 512  # elements of a row: NumPy finds a place among fewer in less than 33 walks over them


@cache
def _entries(dtype: np.dtype[Any]) -> Entries:
    is_single = dtype == np.float32

    def pack(length: int, bits: int, mask: int, x: Array, packed: Array) -> None:
        shape = (x.size // length, length)
        if is_single:
            order.pack_numbers(x.reshape(shape), packed.reshape(shape), mask)
        else:
            order.pack_doubles(x.reshape(shape), packed.reshape(shape), mask, bits)

    def unpack(length: int, bits: int, mask: int, x: Array, packed: Array) -> None:
        shape = (x.size // length, length)
        if is_single:
            order.unpack(packed, order.LOW)
        else:
            order.unpack_doubles(x.reshape(shape), packed.reshape(shape), mask, bits)

    kinds = *(types.intp,) * 3, flat_type(from_dtype(dtype)), flat_type(types.int64)
    return Entries(**{f.__name__: (compiled(f), *kinds) for f in (pack, unpack)})


def argsort(plan: Plan) -> Kernel | None:
    """See `order.argsort`."""
    (x,), shape = plan.operands, plan.meta.shape
    assert isinstance(x, TensorMeta)
    if not is_small(plan) or x.dtype.dtype not in FLOATS or plan.params["dim"] != x.ndim - 1:
        return None
    length, entries = shape[-1], _entries(x.dtype.dtype)
    given = length, length.bit_length(), -1 if plan.params["descending"] else 0
    pack, unpack = partial(entries.pack, *given), partial(entries.unpack, *given)

    def run(a: Array, **_: Any) -> Array:
        packed = np.empty(shape, INT64)
        try:
            pack(a, packed)
        except BufferError:
            a = in_order(a)
            pack(a, packed)
        packed.sort(-1)
        unpack(a, packed)
        return packed

    return run


# -- the element at one place ----------------------------------------------------------------------


@kernel(fastmath=EXACT, force_inline=True)
def _write_keys(row: Array, mask: Any, keys: Array) -> None:
    for j in range(row.size):
        keys[j] = order.single_key(row[j], mask)


@kernel(force_inline=True)
def _count_below(keys: Array, limit: Any) -> Any:
    count = np.float32(0)  # exact, and of the width of the keys: they are counted 16 at a time
    for j in range(keys.size):
        count += np.float32(1) if keys[j] < limit else np.float32(0)
    return np.int64(count)


@cache
def _place_entry() -> Any:
    @compiled
    def find(length: int, place: int, mask: int, x: Array, out: Array) -> None:
        keys = np.empty(length, np.int32)
        for i in range(out.size):
            _write_keys(x[i * length : (i + 1) * length], np.int32(mask), keys)
            key = -(np.int64(1) << 31)
            for bit in range(31, -1, -1):  # the largest that no more than `place` are below
                higher = key + (np.int64(1) << bit)
                key = higher if _count_below(keys, np.int32(higher)) <= place else key
            equals = place - _count_below(keys, np.int32(key))
            for j in range(length):
                if keys[j] == key:
                    if equals == 0:
                        out[i] = j
                        break
                    equals -= 1

    return small.entry(find, 3, FLOATS[0], INT64)


def partial_argsort(plan: Plan) -> Kernel | None:
    """See `selection.partial_argsort`; the first few, or one in the middle of long rows."""
    (x,), params = plan.operands, plan.params
    assert isinstance(x, TensorMeta)
    if (first := small.partial_argsort(plan)) is not None or not is_small(plan):
        return first
    dim, place, length = params["dim"], params["start"], x.shape[params["dim"]]
    if params["length"] != 1 or dim != x.ndim - 1 or x.dtype.dtype != np.float32 or length < LONG:
        return None
    return small.on_one(plan, partial(_place_entry(), length, place, -params["descending"]))
