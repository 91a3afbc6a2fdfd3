"""Memory at an address as an array: how exported symbols and generated code see their operands.

A C symbol takes addresses, which are integers. In a kernel

    x = view(np.float32, address, (rows, columns))      # C-contiguous
    y = strided(np.float32, address, shape, strides)    # strides in bytes
    n, k, at = words(address, 3)                        # a record of int64

make arrays of them without a copy. Nothing keeps the memory alive but the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support

from tinytorch.dtypes import Array
from tinytorch.jit.library import JIT
from tinytorch.jit.llvm import I8, I64, i64, memory

_unpack: Callable[..., Any] = cgutils.unpack_tuple
_populate: Callable[..., Any] = arrayobj.populate_array
_uniform_tuple: Callable[..., Any] = types.UniTuple
_as_dtype: Callable[..., Any] = numpy_support.as_dtype


def _integers(context: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
    """The int64 values of an integer, or of a tuple of integers."""
    if not _is_tuple(kind):
        return [context.cast(builder, value, kind, types.int64)]
    values = _unpack(builder, value)
    return [
        context.cast(builder, v, k, types.int64) for v, k in zip(values, kind.types, strict=True)
    ]


def _build(
    context: Any, builder: Any, kind: Any, address: Any, shape: list[Any], strides: list[Any]
) -> Any:
    array = context.make_array(kind)(context, builder)
    element = context.get_data_type(kind.dtype)
    _populate(
        array,
        data=builder.inttoptr(address, element.as_pointer()),
        shape=shape,
        strides=strides,
        itemsize=i64(_as_dtype(kind.dtype).itemsize),
        meminfo=None,
    )
    return array._getvalue()


def _ndim(shape: Any) -> int:
    return len(shape) if _is_tuple(shape) else 1


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple)


def _emit_view(typing_context: Any, dtype: Any, address: Any, shape: Any) -> Any:
    kind = types.Array(dtype.dtype, _ndim(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lengths = _integers(context, builder, signature.args[2], values[2])
        strides = [i64(_as_dtype(kind.dtype).itemsize)]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        return _build(context, builder, kind, values[1], lengths, strides)

    return kind(dtype, types.int64, shape), generate


def _emit_strided(typing_context: Any, dtype: Any, address: Any, shape: Any, strides: Any) -> Any:
    kind = types.Array(dtype.dtype, _ndim(shape), "A")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lengths, steps = (_integers(context, builder, signature.args[i], values[i]) for i in (2, 3))
        return _build(context, builder, kind, values[1], lengths, steps)

    return kind(dtype, types.int64, shape, strides), generate


def _emit_words(typing_context: Any, address: Any, count: Any) -> Any:
    if not isinstance(count, types.IntegerLiteral):
        return None
    number = count.literal_value

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = builder.inttoptr(values[0], I8.as_pointer())
        loaded = [
            builder.load(builder.bitcast(builder.gep(start, [i64(8 * i)]), I64.as_pointer()))
            for i in range(number)
        ]
        return context.make_tuple(builder, signature.return_type, loaded)

    return _uniform_tuple(types.int64, number)(types.int64, count), generate


def _view_twin(dtype: Any, address: int, shape: Any) -> Array:
    lengths = tuple(shape) if isinstance(shape, tuple) else (int(shape),)
    return memory(dtype, address, (math.prod(lengths),)).reshape(lengths)


def _strided_twin(dtype: Any, address: int, shape: Any, strides: Any) -> Array:
    return memory(dtype, address, tuple(shape), tuple(strides))


def _words_twin(address: int, count: int) -> tuple[int, ...]:
    return tuple(int(word) for word in memory(np.int64, address, (count,)))


view: Any = intrinsic(_emit_view) if JIT else _view_twin
"""view(dtype, address, shape): C-contiguous; a number in place of the shape gives one dimension."""

strided: Any = intrinsic(_emit_strided) if JIT else _strided_twin
"""strided(dtype, address, shape, strides): any strides, in bytes."""

words: Any = intrinsic(prefer_literal=True)(_emit_words) if JIT else _words_twin
"""words(address, count): so many int64 as a tuple; `count` is a literal."""


def memory_of(x: Array) -> Array:
    """The memory from the first element of `x` to its last, as one row."""
    last = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)) // x.itemsize
    return np.lib.stride_tricks.as_strided(x, (last + 1,), (x.itemsize,))
