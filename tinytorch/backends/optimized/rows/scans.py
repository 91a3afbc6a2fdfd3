"""Running sums, products and extremes along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.rows.order import number_key
from tinytorch.backends.optimized.rows.rows import plus, times
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

Scan = Callable[..., Array]
Kernel = Callable[..., None]

TOGETHER = 4  # rows: each addition waits for the one before it in its row


def _scan(combine: Callable[[Any, Any], Any], start: float) -> tuple[Kernel, Kernel]:
    @kernel(fastmath=EXACT)
    def rows(x: Array, out: Array) -> None:
        """Along each row, in float64."""
        count, n = x.shape
        whole = count // TOGETHER * TOGETHER
        for i in range(0, whole, TOGETHER):
            a, b, c, d = start, start, start, start
            for j in range(n):
                a, b = combine(a, x[i, j]), combine(b, x[i + 1, j])
                c, d = combine(c, x[i + 2, j]), combine(d, x[i + 3, j])
                out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = a, b, c, d
        for i in range(whole, count):
            a = start
            for j in range(n):
                a = combine(a, x[i, j])
                out[i, j] = a

    @kernel(fastmath=EXACT)
    def columns(x: Array, out: Array) -> None:
        """x (outer, length, inner): each row with what came of those before it."""
        for i in range(x.shape[0]):
            for k in range(x.shape[2]):
                out[i, 0, k] = x[i, 0, k]
            for j in range(1, x.shape[1]):
                before, row, now = out[i, j - 1], x[i, j], out[i, j]
                for k in range(row.size):
                    now[k] = combine(before[k], row[k])

    return rows, columns


def _along(rows: Callable[..., None], columns: Callable[..., None], dtype: Any = None) -> Scan:
    """A function of any dimension: of rows x (outer, length), of columns x (outer, length, inner).

    Args:
        dtype: of the result; None for that of the argument.
    """
    run_rows, run_columns = (shared(f, "x[:], out[:]") for f in (rows, columns))

    def scan(a: Array, *, dim: int) -> Array:
        out = buffers.empty(a.shape, dtype or a.dtype)
        if not a.size:
            return out
        inner, source = math.prod(a.shape[dim + 1 :]), contiguous(a)
        if inner == 1:
            shape: tuple[int, ...] = (-1, a.shape[dim])
            run_rows(2 * a.size, source.reshape(shape), out.reshape(shape))
        else:
            shape = (-1, a.shape[dim], inner)
            run_columns(a.size, source.reshape(shape), out.reshape(shape))
        return out

    return scan


@kernel(force_inline=True)
def _at_least(a: Any, b: Any) -> Any:
    return a >= b


@kernel(force_inline=True)
def _at_most(a: Any, b: Any) -> Any:
    return a <= b


@kernel(fastmath=EXACT, force_inline=True)
def _key(number: Any) -> Any:
    return number_key(number, 0)


@kernel(fastmath=EXACT, force_inline=True)
def _key_of_negative(number: Any) -> Any:
    return number_key(-number, 0)


@kernel(force_inline=True)
def _same(number: int) -> int:
    return number


@kernel(force_inline=True)
def _turned(number: int) -> int:
    return ~number


def _running(
    is_as_good: Callable[[Any, Any], Any], key_of: Callable[[Any], int]
) -> tuple[Kernel, Kernel]:
    """The index of the best element so far: of equal ones, and of NaN, the last.

    Args:
        key_of: an int64 for an element, the larger the better; the largest for NaN.
    """

    @kernel(force_inline=True)
    def better(key: int, at: int, best: int, place: int) -> Any:
        return max(key, best), at if key >= best else place

    @kernel(fastmath=EXACT)
    def rows(x: Array, out: Array) -> None:
        """Some rows at once by keys, which are compared in a cycle, where floats take several."""
        count, n = x.shape
        whole = count // TOGETHER * TOGETHER
        keys = np.empty((min(whole, TOGETHER), n), np.int64)
        for i in range(0, whole, TOGETHER):
            for k in range(TOGETHER):
                row, line = x[i + k], keys[k]
                for j in range(n):
                    line[j] = key_of(row[j])
            x0, x1, x2, x3 = keys[0], keys[1], keys[2], keys[3]
            out0, out1, out2, out3 = out[i], out[i + 1], out[i + 2], out[i + 3]
            first, second, third, fourth = x0[0], x1[0], x2[0], x3[0]
            a, b, c, d = 0, 0, 0, 0
            for j in range(n):
                first, a = better(x0[j], j, first, a)
                second, b = better(x1[j], j, second, b)
                third, c = better(x2[j], j, third, c)
                fourth, d = better(x3[j], j, fourth, d)
                out0[j], out1[j], out2[j], out3[j] = a, b, c, d
        for i in range(whole, count):
            first, a = key_of(x[i, 0]), 0
            for j in range(n):
                first, a = better(key_of(x[i, j]), j, first, a)
                out[i, j] = a

    @kernel(fastmath=EXACT)
    def columns(x: Array, out: Array) -> None:
        best = np.empty(x.shape[2], x.dtype)
        for i in range(x.shape[0]):
            best[:] = x[i, 0]
            out[i, 0, :] = 0
            for j in range(1, x.shape[1]):
                before, row, now = out[i, j - 1], x[i, j], out[i, j]
                for k in range(row.size):
                    wins = is_as_good(row[k], best[k]) or row[k] != row[k]
                    best[k] = row[k] if wins else best[k]
                    now[k] = j if wins else before[k]

    return rows, columns


KERNELS = {
    "cumsum": _scan(plus, 0.0),
    "cumprod": _scan(times, 1.0),
    "running_argmax": _running(_at_least, _key),
    "running_argmin": _running(_at_most, _key_of_negative),
}
"""Of rows, x (outer, length), and of columns, x (outer, length, inner)."""

_cumsum, _cumprod = _along(*KERNELS["cumsum"]), _along(*KERNELS["cumprod"])
_cumsum_of_integers, _cumprod_of_integers = _along(*_scan(plus, 0)), _along(*_scan(times, 1))
_best = {
    "f": [_along(*KERNELS[f"running_arg{m}"], np.dtype(np.int64)) for m in ("max", "min")],
    "i": [
        _along(*_running(*functions), np.dtype(np.int64))
        for functions in ((_at_least, _same), (_at_most, _turned))
    ],
}


def running_argmax(a: Array, *, dim: int) -> Array:
    """The index of the largest element up to each along `dim`, the last of equal ones, as int64."""
    return _best[a.dtype.kind][0](a, dim=dim)


def running_argmin(a: Array, *, dim: int) -> Array:
    """The index of the smallest element up to each along `dim`, the last of equal ones."""
    return _best[a.dtype.kind][1](a, dim=dim)


def cumsum(a: Array, *, dim: int) -> Array:
    """out[i] = a[0] + ... + a[i] along `dim`, of float32, float64 or int64."""
    return (_cumsum if a.dtype.kind == "f" else _cumsum_of_integers)(a, dim=dim)


def cumprod(a: Array, *, dim: int) -> Array:
    """out[i] = a[0] * ... * a[i] along `dim`, of float32, float64 or int64."""
    return (_cumprod if a.dtype.kind == "f" else _cumprod_of_integers)(a, dim=dim)


@kernel(fastmath=frozenset())
def _cumprod_backward_rows(g: Array, x: Array, out: Array) -> None:
    """In float64; `TOGETHER` rows at a time, since each step waits for the one before it."""
    count, n = x.shape
    whole, last = count // TOGETHER * TOGETHER, n - 1
    before = np.empty((min(count, TOGETHER), n), np.float64)
    for i in range(0, whole, TOGETHER):
        a, b, c, d = 1.0, 1.0, 1.0, 1.0
        for j in range(n):
            before[0, j], before[1, j], before[2, j], before[3, j] = a, b, c, d
            a, b = a * x[i, j], b * x[i + 1, j]
            c, d = c * x[i + 2, j], d * x[i + 3, j]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for j in range(last, -1, -1):
            if j < last:
                a, b = a * x[i, j + 1], b * x[i + 1, j + 1]
                c, d = c * x[i + 2, j + 1], d * x[i + 3, j + 1]
            a, b, c, d = a + g[i, j], b + g[i + 1, j], c + g[i + 2, j], d + g[i + 3, j]
            out[i, j], out[i + 1, j] = before[0, j] * a, before[1, j] * b
            out[i + 2, j], out[i + 3, j] = before[2, j] * c, before[3, j] * d
    for i in range(whole, count):
        a, b = 1.0, 0.0  # from both ends at once; where they have met, the other's is there
        for j in range(n):
            k = last - j
            if j > 0:
                b *= x[i, k + 1]
            b += g[i, k]
            if j < k:
                before[0, j], before[0, k] = a, b
            elif j == k:
                out[i, j] = a * b
            else:
                out[i, j], out[i, k] = before[0, j] * a, before[0, k] * b
            a *= x[i, j]


@kernel(fastmath=EXACT)
def _cumprod_backward_columns(g: Array, x: Array, out: Array) -> None:
    """x (outer, length, inner): each row with what came of those before it, and of those after."""
    last = x.shape[1] - 1
    total = np.empty(x.shape[2], x.dtype)
    for i in range(x.shape[0]):
        out[i, 0, :] = 1
        for j in range(1, last + 1):
            before, row, now = out[i, j - 1], x[i, j - 1], out[i, j]
            for k in range(row.size):
                now[k] = before[k] * row[k]
        for j in range(last, -1, -1):
            grads, now = g[i, j], out[i, j]
            if j == last:
                total[:] = grads
            else:
                row = x[i, j + 1]
                for k in range(row.size):
                    total[k] = grads[k] + row[k] * total[k]
            for k in range(now.size):
                now[k] *= total[k]


BACKWARD_KERNELS = _cumprod_backward_rows, _cumprod_backward_columns
_backward_of_rows, _backward_of_columns = (
    shared(f, "g[:], x[:], out[:]") for f in BACKWARD_KERNELS
)


def cumprod_backward(g: Array, x: Array, *, dim: int) -> Array:
    """The gradient of `cumprod` for x, of float32 or float64 and the shape of g."""
    out = buffers.empty(x.shape, x.dtype)
    if not x.size:
        return out
    inner = math.prod(x.shape[dim + 1 :])
    shape = (-1, x.shape[dim]) if inner == 1 else (-1, x.shape[dim], inner)
    run = _backward_of_rows if inner == 1 else _backward_of_columns
    arrays = (contiguous(a).reshape(shape) for a in (g, x))
    run(4 * x.size, *arrays, out.reshape(shape))
    return out
