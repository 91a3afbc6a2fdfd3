"""Casts that NumPy does number by number: floats to float16, that to float32, and floats to bool.

Rounding is to the nearest float16, ties to even, as NumPy's. What is NaN stays NaN; which NaN, the
processor decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tinytorch.dtypes import Array, DType, TensorMeta, bool_, float16, float32, float64
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import in_order, inverse, order_in_memory
from tinytorch.jit.cpu import NEON, host_features, host_vector_unit
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import JIT, kernel
from tinytorch.op import Plan

_BITS, _HALF, _SINGLE = ir.IntType(16), ir.HalfType(), ir.FloatType()
_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_WIDE_COMPARISON = 16 * 1024  # numbers, from which NumPy's comparison is faster than its cast


def _emit_bits_of_half(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(builder.fptrunc(values[0], _HALF), _BITS)

    return types.uint16(types.float32), generate


def _emit_single_of_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fpext(builder.bitcast(values[0], _HALF), _SINGLE)

    return types.float32(types.uint16), generate


def _emit_odd_single(typing_context: Any, x: Any) -> Any:
    """float64 to a float32 that rounds to the same float16 as x does: of the two around x the
    nearer one to 0, with its last bit set for what is cut off, so that it is no tie by chance.

    Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
    using rounding to odd", IEEE Trans. Computers 57 (2008), theorem 3.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (exact,) = values
        near = builder.fptrunc(exact, _SINGLE)
        back, bits = builder.fpext(near, exact.type), builder.bitcast(near, _WORD)
        size = [
            builder.and_(builder.bitcast(v, _LONG), _LONG((1 << 63) - 1)) for v in (back, exact)
        ]
        is_beyond = builder.zext(builder.icmp_unsigned(">", *size), _WORD)
        is_cut = builder.zext(builder.fcmp_unordered("!=", back, exact), _WORD)
        odd = builder.or_(builder.sub(bits, is_beyond), is_cut)
        return builder.bitcast(odd, _SINGLE)

    return types.float32(types.float64), generate


# a float16 is known to numba by its bits
_bits_of_half: Any = intrinsic(_emit_bits_of_half)
_single_of_bits: Any = intrinsic(_emit_single_of_bits)
_odd_single: Any = intrinsic(_emit_odd_single)


@kernel(nogil=False)
def _to_half(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = _bits_of_half(x[i])


@kernel(nogil=False)
def _to_single(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = _single_of_bits(x[i])


@kernel(nogil=False)
def _doubles_to_half(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = _bits_of_half(_odd_single(x[i]))


_SINGLES, _HALVES = flat_type(types.float32), flat_type(types.uint16)
_ENTRIES = Entries(
    to_half=(_to_half, _SINGLES, _HALVES),
    doubles_to_half=(_doubles_to_half, flat_type(types.float64), _HALVES),
    to_single=(_to_single, _HALVES, _SINGLES),
)
_BY_DTYPES = {
    (float32, float16): "to_half",
    (float64, float16): "doubles_to_half",
    (float16, float32): "to_single",
}


def converts_halves() -> bool:
    """Whether the processor has instructions for them: without, LLVM calls a function each."""
    return JIT and (host_features().get("f16c", False) or host_vector_unit() is NEON)


def cast(plan: Plan) -> Callable[..., Array] | None:
    """The kernel for tensors of the plan's shape; None where NumPy's is as fast."""
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    if plan.meta.dtype is bool_ and x.dtype is float32 and x.size >= _WIDE_COMPARISON:
        return _to_bool
    name = _BY_DTYPES.get((x.dtype, plan.meta.dtype))
    if name is None or not converts_halves():
        return None
    convert, shape, real = getattr(_ENTRIES, name), plan.meta.shape, plan.meta.dtype.dtype
    empty = buffers.allocator(shape, real)

    def converted(a: Array, *, dtype: DType) -> Array:
        out = empty(shape, real)
        try:
            convert(a, out)
        except BufferError:  # in another order
            order = order_in_memory([a]) if out.nbytes >= buffers.POOLED_FROM else None
            if order is None:
                convert(in_order(a), out)
                return out
            turned = a.transpose(order)
            out = out.reshape(turned.shape)
            convert(turned, out)
            return out.transpose(inverse(order))
        return out

    converted.gives_arrays = True  # type: ignore[attr-defined]
    return converted


def _to_bool(a: Array, *, dtype: DType) -> Array:
    return np.not_equal(a, 0)
