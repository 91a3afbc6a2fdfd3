"""Every op as a NumPy function: what backends fall back to and are tested against."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import numpy as np

from tinytorch.backends import reference_special
from tinytorch.backends.reference_conv import (
    avg_pool2d,
    avg_pool2d_backward,
    conv2d,
    conv2d_input,
    conv2d_input_by,
    conv2d_weight,
    conv2d_weight_by,
    max_pool2d,
    max_pool2d_backward,
    max_pool2d_select,
)
from tinytorch.dtypes import Array, DType, Shape, bfloat16, bfloat16_values, bits_of_bfloat16
from tinytorch.op import Op

Dims = tuple[int, ...]


# -- elementwise -----------------------------------------------------------------------------------


class _Silence(threading.local):
    """For each thread a context in which NumPy does not warn of division by zero or overflow.

    The results are what IEEE 754 says, infinities and NaN. Entering a prepared context costs less
    than `with np.errstate(...)`.
    """

    def __init__(self) -> None:
        context = contextvars.copy_context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


_silence = _Silence()


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def quiet(*arrays: Any, **params: Any) -> Any:
        return _silence.run(function, *arrays, **params)

    return quiet


def _sign(a: Array) -> Array:
    return np.subtract(a > 0, a < 0, dtype=a.dtype)  # 0 for NaN, as in PyTorch


def _integer_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy answers 0 to an integer divided by zero; that would be a wrong number."""

    def safe(a: Any, b: Any) -> Any:
        if np.result_type(a, b).kind in "iu" and not np.all(b):
            raise ZeroDivisionError("integer division by zero")
        return function(a, b)

    return safe


def _relu(a: Array) -> Array:
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
    "round": np.round,
    "logical_not": np.logical_not,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_divide": _integer_safe(np.floor_divide),
    "remainder": _integer_safe(np.remainder),
    "pow": np.power,
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
    "clip": lambda a, low, high: np.minimum(high, np.maximum(low, a)),
}

# Of these NumPy never warns, so nothing is between the kernel and dispatch.
_SILENT = frozenset(
    (
        *("neg", "abs", "sign", "floor", "round", "relu", "maximum", "minimum", "eq", "ne", "lt"),
        *("le", "logical_not", "logical_and", "logical_or", "where", "relu_backward", "clip"),
    )
)


# -- reductions ------------------------------------------------------------------------------------

# the ufuncs' own reductions: np.sum and its like cost twice as much on a small array
_sum: Any = np.add.reduce
_max: Any = np.maximum.reduce
_min: Any = np.minimum.reduce
_prod: Any = np.multiply.reduce


@_quiet
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


@_quiet
def cumsum(a: Array, *, dim: int) -> Array:
    return np.cumsum(a, axis=dim)


# -- movement --------------------------------------------------------------------------------------


@lru_cache(4096)
def slices(bounds: tuple[tuple[int, int, int], ...]) -> tuple[slice, ...]:
    """The slices that a slice op's bounds stand for."""
    # a negative stop means "past the first element", which a Python slice writes as None
    return tuple(
        slice(start, stop if stop >= 0 else None, step)
        if len(range(start, stop, step))
        else slice(0, 0)
        for start, stop, step in bounds
    )


def reshape(a: Array, *, shape: Shape) -> Array:
    return a.reshape(shape)


def permute(a: Array, *, dims: Dims) -> Array:
    return a.transpose(dims)


def expand(a: Array, *, shape: Shape) -> Array:
    new = len(shape) - a.ndim
    strides = [0 if a.shape[i] == 1 != n else a.strides[i] for i, n in enumerate(shape[new:])]
    return _read_only_view(a, shape, (*(0,) * new, *strides))


def _read_only_view(a: Array, shape: Shape, strides: tuple[int, ...]) -> Array:
    """`as_strided`, whose Python takes many times as long as the view."""
    if not a.flags.c_contiguous:
        return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=False)
    view: Array = np.ndarray(shape, a.dtype, a, 0, strides)
    view.setflags(write=False)
    return view


def slice_(a: Array, *, bounds: tuple[tuple[int, int, int], ...]) -> Array:
    key: Any = (*slices(bounds), ...)
    return a[key]


def unslice(a: Array, *, shape: Shape, bounds: tuple[tuple[int, int, int], ...]) -> Array:
    """Zeros of `shape` in which `slice` with the same bounds finds `a`."""
    out = np.zeros(shape, a.dtype)
    key: Any = (*slices(bounds), ...)
    out[key] = a
    return out


def unfold(a: Array, *, size: int, step: int) -> Array:
    *before, each = a.strides
    count = (a.shape[-1] - size) // step + 1
    return _read_only_view(a, (*a.shape[:-1], count, size), (*before, step * each, each))


@_quiet
def fold(a: Array, *, length: int, step: int) -> Array:
    """Windows added back to where `unfold` took them."""
    out = np.zeros((*a.shape[:-2], length), a.dtype)
    count, size = a.shape[-2:]
    if count <= size:
        for i in range(count):
            out[..., i * step : i * step + size] += a[..., i, :]
    else:  # from the last element on: what meets at one place is added in the same order
        for j in reversed(range(size)):
            out[..., j : j + (count - 1) * step + 1 : step] += a[..., j]
    return out


def cat(*arrays: Array, dim: int) -> Array:
    return np.concatenate(arrays, axis=dim)


def detach(a: Array) -> Array:
    return a.view()


def copy(a: Array) -> Array:
    return np.array(a, order="C", copy=True)


@_quiet
def cast(a: Array, *, dtype: DType) -> Array:
    if a.dtype == np.uint16:  # no other dtype of ours is stored so
        a = bfloat16_values(a)
    return bits_of_bfloat16(a) if dtype is bfloat16 else a.astype(dtype.dtype)


# -- indexing, creation ----------------------------------------------------------------------------


def take(a: Array, index: Array) -> Array:
    return np.take(a, index, axis=0)


def within_reach(x: Array, index: Array, dim: int) -> Array:
    """The part of x that an index, which may be shorter in other dimensions, reads along `dim`."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def gather(x: Array, index: Array, *, dim: int) -> Array:
    """out[i][j] = x[index[i][j]][j] (for dim 0)."""
    return np.take_along_axis(within_reach(x, index, dim), index, dim)


def scatter(x: Array, index: Array, src: Array, *, dim: int, reduce: str) -> Array:
    """x, with src[i][j] put at [index[i][j]][j] (for dim 0), the last of several, or added."""
    out = np.array(x, order="C", copy=True)
    near = within_reach(out, index, dim)
    places = list(np.ix_(*map(np.arange, index.shape)))
    places[dim] = index
    if reduce == "add":
        with np.errstate(all="ignore"):
            np.add.at(near, tuple(places), src)
    else:
        near[tuple(places)] = src
    return out


def dynamic_update_slice(a: Array, update: Array, start: Array, *, dim: int) -> Array:
    """A copy of `a` with `update` along `dim` from `start` on.

    Raises:
        IndexError: the slice would not lie within `a`.
    """
    first, most = int(start), a.shape[dim] - update.shape[dim]
    if not 0 <= first <= most:
        raise IndexError(f"a slice that begins at {first} must begin at 0 to {most}")
    out = np.array(a, order="C", copy=True)
    out[(slice(None),) * dim + (slice(first, first + update.shape[dim]),)] = update
    return out


def _running_index(extreme: Any) -> Callable[..., Array]:
    def index(a: Array, *, dim: int) -> Array:
        is_best = (a == extreme.accumulate(a, dim)) | (a != a)
        places = np.arange(a.shape[dim]).reshape(-1, *(1,) * (a.ndim - dim - 1))
        return np.maximum.accumulate(np.where(is_best, places, 0), dim)

    return index


running_argmax, running_argmin = _running_index(np.maximum), _running_index(np.minimum)


@_quiet
def prod(x: Array, *, dim: int, keepdim: bool) -> Array:
    return _prod(x, dim, None, None, keepdim)


@_quiet
def cumprod(x: Array, *, dim: int) -> Array:
    return np.multiply.accumulate(x, dim)


MOST_STEPS = 4096  # of a loop in Python over rows of few numbers


@_quiet
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


@_quiet
def scatter_add(a: Array, index: Array, *, length: int) -> Array:
    out = np.zeros((length, *a.shape[index.ndim :]), a.dtype)
    np.add.at(out, index, a)
    return out


def full(*, shape: Shape, value: Any, dtype: DType) -> Array:
    out = np.empty(shape, dtype.dtype)
    out.fill(bits_of_bfloat16(np.asarray(value)) if dtype is bfloat16 else value)
    return out


def arange(*, start: float, stop: float, step: float, dtype: DType) -> Array:
    return np.arange(start, stop, step, dtype=dtype.dtype)


def uniform(seed: Array, *, shape: Shape, dtype: DType) -> Array:
    """Numbers in [0, 1): element i is the i-th output of SplitMix64 started at `seed`.

    Every backend gives the same bits, in any order of evaluation. Source: G. Steele, D. Lea,
    C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17.
    """
    size = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += seed.astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    bits = 53 if dtype.name == "float64" else 24  # as many as the type's mantissa holds
    values = (z >> np.uint64(64 - bits)).astype(dtype.dtype) * dtype.dtype.type(2.0**-bits)
    return values.reshape(shape)


# -- contractions ----------------------------------------------------------------------------------


@_quiet
def matmul(a: Array, b: Array) -> Array:
    return np.matmul(a, b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: f if name in _SILENT else _quiet(f) for name, f in ELEMENTWISE.items()},
    "slice": slice_,
    "sum": sum,
    "cumsum": cumsum,
    **{
        f.__name__: f
        for f in (
            *(amax, amin, argmax, argmin, argsort),
            *(reshape, permute, expand, unslice, unfold, fold, cat, detach, copy, cast),
            *(take, scatter_add, full, arange, uniform, matmul),
            *(conv2d, conv2d_input, conv2d_weight, max_pool2d, max_pool2d_backward),
            *(max_pool2d_select, avg_pool2d, avg_pool2d_backward),
        )
    },
}

__all__ = [
    "conv2d",
    "conv2d_input",
    "conv2d_input_by",
    "conv2d_weight",
    "conv2d_weight_by",
    "find_kernel",
]


def _looped(scalar: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that calls a scalar definition for each element, by `np.vectorize`.

    The result is bool if `scalar` answers with bool (it is tried on ones), otherwise it has the
    common dtype of the operands; also where there are no elements, of which NumPy could not see a
    type.
    """

    def kernel(*operands: Any) -> Array:
        ones = [1] * len(operands)
        dtype: Any = bool if isinstance(scalar(*ones), bool) else np.result_type(*operands)
        return np.vectorize(scalar, otypes=[dtype])(*operands)

    return kernel


def find_kernel(op: Op) -> Callable[..., Any] | None:
    """The NumPy function of this op, or None.

    `_FUNCTIONS` is the table: NumPy's function by the name of the op. An elementwise op that a user
    added is not in it, and has only its scalar definition; NumPy then loops over that (`_looped`).
    """
    if op.name in _FUNCTIONS:
        return _FUNCTIONS[op.name]
    if op.kind == "elementwise":
        assert op.scalar is not None
        return _looped(op.scalar)
    return None
