"""The order of the elements of small arrays along rows, by kernels called without numba's dispatch.

NumPy sorts between two of them: see `order`.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.rows import order
from tinytorch.backends.optimized.rows.small import FLOATS, Kernel, is_small
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

_INT64 = np.dtype(np.int64)


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
    return Entries(**{f.__name__: (kernel(nogil=False)(f), *kinds) for f in (pack, unpack)})


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
        packed = np.empty(shape, _INT64)
        try:
            pack(a, packed)
        except BufferError:
            a = in_order(a)
            pack(a, packed)
        packed.sort(-1)
        unpack(a, packed)
        return packed

    return run
