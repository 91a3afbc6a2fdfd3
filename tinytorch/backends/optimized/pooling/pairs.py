"""Max pooling with windows of 2 by 2 side by side, on vectors (emitted as LLVM IR).

Two rows of the image make one row of maxima. The left and the right elements of pairs are shuffled
apart, so that the four elements of a window are in the same lane of four vectors:

    upper row   a b a b a b a b   -->   a a a a   b b b b
    lower row   c d c d c d c d   -->   c c c c   d d d d

The gradient goes back the same way: of four vectors, one has the gradient in a lane and the others
zero; they are shuffled together again. Ends are masked, so a short row costs one round of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.backends.optimized.conv.phases import deinterleave, interleave
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import Value, VectorEmitter, address, i64, memory, vector_intrinsic
from tinytorch.jit.operands import Rows


def _exceeds(e: VectorEmitter, later: Value, earlier: Value) -> Value:
    """Where a later element takes the place of an earlier one as the maximum; NaN is largest."""
    greater_or_nan = e.builder.fcmp_unordered(">", later, earlier)
    return e.builder.and_(greater_or_nan, e.builder.fcmp_ordered("ord", earlier, earlier))


def _maxima_of_pairs(e: VectorEmitter, row: Value, masks: Sequence[Value]) -> tuple[Value, Value]:
    """The larger of the left and right elements of the next pairs, and where it is the right."""
    halves = [e.load(e.at(row, i * e.register_bytes), mask) for i, mask in enumerate(masks)]
    left, right = deinterleave(e, *halves)
    is_right = _exceeds(e, right, left)
    return e.builder.select(is_right, right, left), is_right


def _store_pairs(
    e: VectorEmitter, value: Value, is_right: Value, row: Value, masks: Sequence[Value]
) -> None:
    """Pairs with `value` in the left or the right position, and zero in the other."""
    left = e.builder.select(is_right, e.zeros, value)
    right = e.builder.select(is_right, value, e.zeros)
    for i, half in enumerate(interleave(e, left, right)):
        e.store(half, e.at(row, i * e.register_bytes), masks[i])


def _over_windows(
    e: VectorEmitter, width: Value, pairs: Sequence[Value], singles: Sequence[Value], body: Any
) -> None:
    """Run body(pointers to rows of pairs, to rows of windows, masks of both) along the rows."""
    vectors = e.builder.sdiv(e.add(width, e.lanes - 1), i64(e.lanes))

    def step(state: list[Value]) -> list[Value]:
        left, *pointers = state
        rows, windows = pointers[: len(pairs)], pointers[len(pairs) :]
        elements = e.mul(left, 2)
        halves = [e.first_lanes(elements), e.first_lanes(e.add(elements, -e.lanes))]
        body(rows, windows, halves, e.first_lanes(left))
        return [
            e.add(left, -e.lanes),
            *(e.at(row, 2 * e.register_bytes) for row in rows),
            *(e.at(row, e.register_bytes) for row in windows),
        ]

    e.loop(vectors, [width, *(e.pointer(address) for address in (*pairs, *singles))], step)


def _first_maximum(upper: Array, lower: Array) -> tuple[Array, Array]:
    """The maxima of windows, and their indices 0 to 3: upper left, upper right, lower left, ..."""
    elements = np.stack([upper[::2], upper[1::2], lower[::2], lower[1::2]])
    index = elements.argmax(axis=0)  # for NumPy too, NaN is largest
    return np.take_along_axis(elements, index[None], axis=0)[0], index


def _max_twin(dtype: Any, width: int, x: Rows, out: int) -> None:
    rows = memory(dtype, x.address, (2, 2 * width), (x.stride,))
    memory(dtype, out, (width,))[...] = _first_maximum(*rows)[0]


def _both(e: VectorEmitter, rows: Rows) -> tuple[Value, Value]:
    """The addresses of two rows."""
    return rows.address, e.add(rows.address, rows.stride)


@vector_intrinsic(_max_twin)
def max_of_windows(e: VectorEmitter, width: Value, x: Rows, out: Value) -> None:
    """out[k] = the maximum of [2 k] and [2 k + 1] in two rows of x, for k < width."""

    def body(rows: list[Value], windows: list[Value], halves: list[Value], mask: Value) -> None:
        (above, _), (below, _) = (_maxima_of_pairs(e, row, halves) for row in rows)
        result = e.builder.select(_exceeds(e, below, above), below, above)
        e.store(result, windows[0], mask)

    _over_windows(e, width, _both(e, x), (out,), body)


def _max_backward_twin(dtype: Any, width: int, x: Rows, g: int, out: Rows) -> None:
    rows = memory(dtype, x.address, (2, 2 * width), (x.stride,))
    index = _first_maximum(*rows)[1]
    arriving = memory(dtype, g, (width,)).copy()
    target = memory(dtype, out.address, (2, 2 * width), (out.stride,))
    for i in range(4):
        target[i // 2, i % 2 :: 2] = np.where(index == i, arriving, 0)


@vector_intrinsic(_max_backward_twin)
def max_of_windows_backward(e: VectorEmitter, width: Value, x: Rows, g: Value, out: Rows) -> None:
    """Two rows of the gradient: g[k] where window k has its first maximum, zero beside it."""

    def body(rows: list[Value], windows: list[Value], halves: list[Value], mask: Value) -> None:
        (above, upper_right), (below, lower_right) = (
            _maxima_of_pairs(e, row, halves) for row in rows[:2]
        )
        is_below = _exceeds(e, below, above)
        arriving = e.load(windows[0], mask)
        to_upper = e.builder.select(is_below, e.zeros, arriving)
        to_lower = e.builder.select(is_below, arriving, e.zeros)
        _store_pairs(e, to_upper, upper_right, rows[2], halves)
        _store_pairs(e, to_lower, lower_right, rows[3], halves)

    _over_windows(e, width, (*_both(e, x), *_both(e, out)), (g,), body)


@kernel
def max_pool_2x2(x: Array, out: Array) -> None:
    """x (planes, h, w) -> out (planes, h // 2, w // 2)."""
    kind = x.dtype.type
    for n in range(x.shape[0]):
        for y in range(out.shape[1]):
            rows = Rows(address(x[n, 2 * y]), x.strides[1])
            max_of_windows(kind, out.shape[2], rows, address(out[n, y]))


@kernel
def max_pool_backward_2x2(g: Array, x: Array, dx: Array) -> None:
    """g (planes, h // 2, w // 2) -> dx (planes, h, w)."""
    kind = x.dtype.type
    for n in range(g.shape[0]):
        for y in range(g.shape[1]):
            rows = Rows(address(x[n, 2 * y]), x.strides[1])
            to = Rows(address(dx[n, 2 * y]), dx.strides[1])
            max_of_windows_backward(kind, g.shape[2], rows, address(g[n, y]), to)
        dx[n, :, 2 * g.shape[2] :] = 0  # the last row and column of an odd size are in no window
        dx[n, 2 * g.shape[1] :, :] = 0
