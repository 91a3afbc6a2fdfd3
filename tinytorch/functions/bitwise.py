"""Functions of the bits of whole numbers; of bools they are the logical ones."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import as_dtype, bool_, int64, promote
from tinytorch.errors import DTypeError
from tinytorch.functions.elementwise import (
    arrays_of_integers,
    as_tensors,
    clip,
    eq,
    gt,
    logical_or,
    lt,
    of_array,
    where,
)
from tinytorch.functions.publish import publish

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def _are_bool(symbol: str, *operands: Tensor | int) -> bool:
    """Whether all are bool, not integers; floats are refused."""
    kinds: list[Any] = [getattr(x, "dtype", type(x)) for x in operands]
    return _kinds_are_bool(symbol, *kinds)


@cache
def _kinds_are_bool(symbol: str, *kinds: Any) -> bool:
    dtypes = [as_dtype(kind) for kind in kinds]
    for dtype in dtypes:
        if dtype.is_floating_point:
            raise DTypeError(
                f"{symbol} is for bool and integer tensors, not {dtype.name}; use logical_and, "
                f"logical_or, logical_not, which read a number as true if it is not zero"
            )
    return all(dtype is bool_ for dtype in dtypes)


def bitwise_and(a: Tensor | int, other: Tensor | int) -> Tensor:
    """a & other, for bool and integers; a tensor of floats raises DTypeError."""
    return apply(ops.logical_and if _are_bool("&", a, other) else ops.bitwise_and, a, other)


def bitwise_or(a: Tensor | int, other: Tensor | int) -> Tensor:
    """a | other, for bool and integers; a tensor of floats raises DTypeError."""
    return apply(ops.logical_or if _are_bool("|", a, other) else ops.bitwise_or, a, other)


def bitwise_xor(a: Tensor | int, other: Tensor | int) -> Tensor:
    """a ^ other, for bool and integers; a tensor of floats raises DTypeError."""
    return apply(ops.ne if _are_bool("^", a, other) else ops.bitwise_xor, a, other)


def bitwise_not(a: Tensor) -> Tensor:
    """~a, for bool and integers; a tensor of floats raises DTypeError."""
    if _are_bool("~", a):
        return apply(ops.logical_not, a)
    ones = int(np.iinfo(a.dtype.dtype).max) if a.dtype.name[0] == "u" else -1
    return apply(ops.bitwise_xor, a, ones)


def bitwise_left_shift(a: Tensor | int, other: Tensor | int) -> Tensor:
    """a << other, for integers: a * 2^other; bits that do not fit are lost, all for other < 0."""
    return _shifted("<<", a, other)


def bitwise_right_shift(a: Tensor | int, other: Tensor | int) -> Tensor:
    """a >> other, for integers: floor(a / 2^other); for other < 0 as for a large one."""
    return _shifted(">>", a, other)


def _shifted(symbol: str, a: Tensor | int, b: Tensor | int) -> Tensor:
    if int64 is getattr(a, "dtype", None) is getattr(b, "dtype", None):
        return _shifted_longs(symbol, a, b)  # type: ignore[arg-type]
    if _are_bool(symbol, a, b):
        raise DTypeError(f"{symbol} is for integer tensors, not bool; use x.int()")
    dtype = promote(*(getattr(t, "meta", type(t)) for t in (a, b)))
    return _shifted_longs(symbol, *(t.long() for t in as_tensors(a, b))).to(dtype)


def _shifted_longs(symbol: str, value: Tensor, bits: Tensor) -> Tensor:
    x, y = arrays_of_integers(value, bits)
    if x is not None:
        shift = np.left_shift if symbol == "<<" else np.right_shift
        return of_array(np.asarray(shift(x, y)))
    power = apply(ops.pow_, 2, clip(bits, 0, 62))
    beyond = logical_or(gt(bits, 62), lt(bits, 0))
    if symbol == "<<":
        all_lost = where(
            eq(bits, 63), apply(ops.mul, apply(ops.bitwise_and, value, 1), -(2**63)), 0
        )
        return apply(ops.where, beyond, all_lost, apply(ops.mul, value, power))
    sign = apply(ops.neg, lt(value, 0).long())
    return apply(ops.where, beyond, sign, apply(ops.floor_divide, value, power))


publish(globals())
