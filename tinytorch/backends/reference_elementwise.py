"""Elementwise ops as NumPy functions, none of which warns."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from tinytorch.backends import reference_special
from tinytorch.dtypes import Array


class _Silence(threading.local):
    """For each thread a context in which NumPy does not warn of division by zero or overflow.

    The results are what IEEE 754 says, infinities and NaN. Entering a prepared context costs less
    than `with np.errstate(...)`.
    """

    def __init__(self) -> None:
        context = contextvars.copy_context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


silence = _Silence()


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def quiet(*arrays: Any, **params: Any) -> Any:
        return silence.run(function, *arrays, **params)

    return quiet


def _sign(a: Array) -> Array:
    if a.dtype.kind != "f":
        return np.sign(a)
    return np.subtract(a > 0, a < 0, dtype=a.dtype)  # 0 for NaN, as in PyTorch


def _integer_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy answers 0 to an integer divided by zero; that would be a wrong number."""

    def safe(a: Any, b: Any) -> Any:
        if np.result_type(a, b).kind in "iu" and not np.all(b) and np.broadcast(a, b).size:
            raise ZeroDivisionError("integer division by zero")
        return function(a, b)

    return safe


def power(a: Any, b: Any) -> Any:
    """a to the power of b. NumPy refuses negative powers of integers: 0, but for those of 1, -1."""
    try:
        return np.power(a, b)
    except ValueError:
        powers = np.power(a, np.where(b < 0, b & 1, b))
        return powers * ((b >= 0) | (np.abs(a) == 1))


def clip(a: Any, low: Any, high: Any, out: Array | None = None) -> Any:
    """minimum(high, maximum(low, a)), in `out` if that is given."""
    if isinstance(a, np.ndarray) and a.dtype.kind in "iu" and type(low) is type(high) is int:
        return a.clip(low, high, out)  # one pass; of floats it takes another one of two zeros
    return np.minimum(high, np.maximum(low, a), out=out)


def negative(a: Array, out: Array) -> None:
    """-a, in `out`. np.negative reads other elements of some strided arrays (NumPy 2.4)."""
    np.subtract(out.dtype.type(-0.0), a, out)


def _round(a: Array) -> Array:
    return np.asarray(np.rint(a)) if a.dtype.kind == "f" else np.round(a)  # that is Python


def _relu(a: Array) -> Array:
    if a.dtype.kind != "f":
        return np.asarray(np.maximum(a, 0))
    out = np.asarray(np.maximum(0, a))
    # Which zero np.maximum(0, -0.0) is depends on the processor: ARM's is 0.0. Ours keeps its sign.
    np.copyto(out, a, where=np.equal(a, 0))
    return out


def _relu_backward(g: Array, out: Array) -> Array:
    return np.where(out <= 0, np.zeros((), np.result_type(g, out)), g)


def _where(condition: Any, a: Any, b: Any) -> Array:
    return np.where(condition, a, b)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.absolute,
    "sign": _sign,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "tanh": np.tanh,
    "sigmoid": reference_special.sigmoid,
    "erf": reference_special.erf,
    "relu": _relu,
    "floor": np.floor,
    "round": _round,
    "logical_not": np.logical_not,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_divide": _integer_safe(np.floor_divide),
    "remainder": _integer_safe(np.remainder),
    "pow": power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "relu_backward": _relu_backward,
    "where": _where,
    "clip": clip,
}

# Of these NumPy never warns, so nothing is between the kernel and dispatch.
SILENT = frozenset(
    (
        *("neg", "abs", "sign", "floor", "round", "relu", "maximum", "minimum", "eq", "ne", "lt"),
        *("le", "logical_not", "logical_and", "logical_or", "where", "relu_backward", "clip"),
    )
)
