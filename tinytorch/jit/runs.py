"""Copies between arrays of one shape and any strides, a run of adjacent bytes at a time.

NumPy starts its loop over the innermost dimension anew for each row, which takes some 3 ns: as long
as a cache takes to move 100 bytes. Here the loop goes over rows, and a row is one or two moves of
vectors: of 12 bytes the first 8 and the last 8, as `memcpy` does. What is moved twice is the same,
so that neither the memory before a row nor that after it is read or written.

How an array is walked is found once for its shape and strides: dimensions are ordered by the
target's strides, and those that lie one behind the other are merged. Two remain for most arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tinytorch.dtypes import Array, Shape
from tinytorch.jit.caches import core_caches
from tinytorch.jit.entries import DATA, Entries
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.llvm import memory
from tinytorch.jit.operands import SIZE
from tinytorch.jit.views import view, words

FEW = 128  # rows: so many starts of NumPy's loop take as long as the calls around a kernel
FEWEST = 32 * FEW  # numbers: an array of less has seldom so many rows
LONG = 2048  # bytes of a row, which take ten times as long as the start
SHORT = 16  # rounds of a loop of single numbers, which take as long as its start
TURNED = 16  # bytes, of which one instruction reverses the numbers
NEAR = 2**14  # bytes of target, and as many of source, that the smallest cache holds
FEW_NUMBERS = 5  # which take as long as a start, one by one and each far from the next
STORES = 64  # that wait for their lines at the same time
STORED = 4096  # bytes that they hold

Dim = tuple[int, int, int]  # a length, a stride, a stride of the target

_signature: Callable[..., Any] = types.void


def _emitter(is_turned: bool) -> Callable[..., Any]:
    """What emits a move of the numbers of one vector, in their order or in the other."""

    def emit(typing_context: Any, width: Any, source: Any, target: Any) -> Any:
        number = width.literal_value
        lanes, item = (TURNED // number, number) if is_turned else (number, 1)
        vector = ir.VectorType(ir.IntType(8 * item), lanes)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, y = (builder.inttoptr(value, vector.as_pointer()) for value in values[1:])
            bits = builder.load(x, align=1)
            if is_turned:
                order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [*range(lanes)][::-1])
                bits = builder.shuffle_vector(bits, bits, order)
            builder.store(bits, y, align=1)
            return context.get_dummy_value()

        return _signature(width, types.int64, types.int64), generate

    return emit


def _move_twin(width: int, source: int, target: int) -> None:
    memory(np.uint8, target, (width,))[:] = memory(np.uint8, source, (width,))


def _turn_twin(itemsize: int, source: int, target: int) -> None:
    numbers, step = (TURNED // itemsize, itemsize), (itemsize,)
    memory(np.uint8, target, numbers, step)[:] = memory(np.uint8, source, numbers, step)[::-1]


_move: Any = intrinsic(prefer_literal=True)(_emitter(False)) if JIT else _move_twin
"""_move(width, source, target): so many bytes (a literal) from an address to another."""

_turn: Any = intrinsic(prefer_literal=True)(_emitter(True)) if JIT else _turn_twin
"""_turn(itemsize, source, target): the numbers (of a literal size) in `TURNED` bytes, reversed."""


@kernel(refcounts=False, inner=True)
def _turn_rows(itemsize: int, size: int, rows: int, x: int, step: int, y: int, to: int) -> None:
    """Rows of `size` bytes reversed, number by number; the address x is that of the lowest byte."""
    last = size - TURNED
    for _ in range(rows):
        if itemsize == 1:
            for i in range(0, last, TURNED):
                _turn(1, x + last - i, y + i)
            _turn(1, x, y + last)
        elif itemsize == 2:
            for i in range(0, last, TURNED):
                _turn(2, x + last - i, y + i)
            _turn(2, x, y + last)
        elif itemsize == 4:
            for i in range(0, last, TURNED):
                _turn(4, x + last - i, y + i)
            _turn(4, x, y + last)
        else:
            for i in range(0, last, TURNED):
                _turn(8, x + last - i, y + i)
            _turn(8, x, y + last)
        x += step
        y += to


@kernel(refcounts=False, inner=True)
def _copy_rows(size: int, rows: int, x: int, step: int, y: int, to: int) -> None:
    """Rows of `size` bytes from the address x on, so many bytes from row to row, to y."""
    if size >= 32:
        last = size - 32
        for _ in range(rows):
            for i in range(0, last, 32):
                _move(32, x + i, y + i)
            _move(32, x + last, y + last)
            x += step
            y += to
    elif size > 16:
        last = size - 16
        for _ in range(rows):
            _move(16, x, y)
            _move(16, x + last, y + last)
            x += step
            y += to
    elif size == 16:
        for r in range(rows):
            _move(16, x + r * step, y + r * to)
    elif size > 8:
        last = size - 8
        for _ in range(rows):
            _move(8, x, y)
            _move(8, x + last, y + last)
            x += step
            y += to
    elif size == 8:
        for r in range(rows):
            _move(8, x + r * step, y + r * to)
    elif size > 4:
        last = size - 4
        for _ in range(rows):
            _move(4, x, y)
            _move(4, x + last, y + last)
            x += step
            y += to
    elif size == 4:
        for r in range(rows):
            _move(4, x + r * step, y + r * to)
    elif size > 1:
        for r in range(rows):
            _move(2, x + r * step, y + r * to)
            if size == 3:
                _move(1, x + r * step + 2, y + r * to + 2)
    else:
        for r in range(rows):
            _move(1, x + r * step, y + r * to)


@kernel(refcounts=False)
def _copy(source: int, target: int, plan: int) -> None:
    """What is in an array into another one, two objects of NumPy, by the plan at an address.

    A row is `size` bytes. Where its numbers are reversed, `turned` is the size of one (otherwise
    0), and the source's lowest byte is at an `offset` from its first number. `rows` are `step`
    bytes from each other in the source, and `to` in the target. Blocks of them are taken one after
    the other: with all indices of `others` dimensions, of which `rounds` is the product, and of one
    more, `across`.
    """
    (first_x,), (first_y,) = words(source + DATA, 1), words(target + DATA, 1)
    size, turned, offset, rows, step, to = words(plan, 6)
    across, across_step, across_to, block, others, rounds = words(plan + 8 * 6, 6)
    dims = view(np.int64, plan + 8 * 12, (others, 3))
    for r in range(0, rows, block):
        height = min(block, rows - r)
        for index in range(rounds):
            x, y, rest = first_x + offset + r * step, first_y + r * to, index
            for i in range(others - 1, -1, -1):
                x += rest % dims[i, 0] * dims[i, 1]
                y += rest % dims[i, 0] * dims[i, 2]
                rest //= dims[i, 0]
            for i in range(across):
                at, put = x + i * across_step, y + i * across_to
                if turned:
                    _turn_rows(turned, size, height, at, step, put, to)
                else:
                    _copy_rows(size, height, at, step, put, to)


_entries = Entries(copy=(_copy, SIZE, SIZE, SIZE))


def _merged(dims: Sequence[Dim]) -> list[Dim]:
    """The dimensions in the target's order, those that lie one behind the other as one."""
    merged: list[Dim] = []
    for n, step, to in sorted(dims, key=lambda dim: -abs(dim[2])):
        if n == 1:
            continue
        if merged and merged[-1][1:] == (n * step, n * to):
            n *= merged.pop()[0]
        merged.append((n, step, to))
    return merged


@lru_cache(4096)
def _plan(
    shape: Shape, strides: tuple[int, ...], target: tuple[int, ...], itemsize: int
) -> tuple[int, Array] | None:
    """The address of a plan for `_copy`, and what is there; None where NumPy's loop is as fast."""
    dims = _merged(list(zip(shape, strides, target, strict=True)))
    if not dims or 0 in shape:
        return None
    (n, step, to), turned, offset = dims[-1], 0, 0
    starts, size = math.prod(dim[0] for dim in dims[:-1]), itemsize
    if step == to == itemsize:
        size *= dims.pop()[0]
        pays = starts >= FEW and size < LONG
    elif -step == to == itemsize and n * itemsize >= TURNED and itemsize in (1, 2, 4, 8):
        size *= dims.pop()[0]
        turned, offset = itemsize, itemsize - size
        pays = starts * n >= FEWEST
    else:
        pays = starts >= FEW and n < (SHORT if step else SHORT // 2)
    return _walk(size, turned, offset, dims, starts) if pays else None


def _walk(
    size: int, turned: int, offset: int, dims: list[Dim], starts: int
) -> tuple[int, Array] | None:
    """The walk over rows along the last dimension that is no short loop, otherwise the longest.

    None where the index of so many dimensions is computed that NumPy's starts take less.
    """
    dims = [(1, 0, 0)] * (2 - len(dims)) + dims
    lengths = [n for n, _, _ in dims]
    long = [i for i, n in enumerate(lengths) if n >= 2 * SHORT]
    along = long[-1] if long else lengths.index(max(lengths))
    inside = size * math.prod(lengths[along + 1 :])
    if NEAR // inside < SHORT and math.prod(lengths) > FEW_NUMBERS * starts:
        return None
    block = max(NEAR // inside, SHORT) if inside > size else lengths[along]
    rows, across = dims.pop(along), dims.pop()
    rounds = math.prod(n for n, _, _ in dims)
    if rounds * len(dims) > starts or _crowded(size, rows[0], rows[2]):
        return None
    walk = size, turned, offset, *rows, *across, block, len(dims), rounds
    plan = np.array([*walk, *(number for dim in dims for number in dim)], np.int64)
    return plan.ctypes.data, plan


def _crowded(size: int, rows: int, to: int) -> bool:
    """Whether the lines of rows so far apart, of the stores that wait, find no room in a cache.

    They fall into few of its sets then, and a line that one store has asked for is driven out by
    the next ones before it is written. NumPy's starts keep the stores apart.
    """
    cache, _ = core_caches()
    sets = cache.way_bytes // math.gcd(max(abs(to), cache.line), cache.way_bytes)
    return min(rows, STORES, STORED // size) > sets * cache.ways


def copied_by_rows(out: Array, x: Array) -> bool:
    """Copy `x` into `out`, of its shape and dtype (one without references to objects).

    They share no memory, and no element of `out` is repeated.

    Returns:
        False where NumPy's loop is as fast; then nothing is copied.
    """
    plan = _plan(x.shape, x.strides, out.strides, x.itemsize)
    if plan is None:
        return False
    _entries.copy(id(x), id(out), plan[0])
    return True


def copy_into(out: Array, x: Array) -> None:
    """The same, by NumPy's loop where that is as fast, or has to broadcast or to cast."""
    is_alike = x.shape == out.shape and x.dtype == out.dtype
    if not is_alike or not copied_by_rows(out, x):
        np.copyto(out, x)
