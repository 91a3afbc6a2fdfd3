"""The GEMM micro-kernel: a tile of C that stays in vector registers (emitted as LLVM IR).

                       row k of B:  vectors
                     +------+------+------+------+
                     |  B0  |  B1  |  B2  |  B3  |     4 vector loads
                     +------+------+------+------+
     column k  +-+   +------+------+------+------+
     of A      |a|-->|      |      |      |      |
               |a|-->|  C   +=  a  *  B          |     rows broadcasts of an element of A,
               |:|   |      |      |      |      |     rows * vectors fused multiply-adds
               |a|-->|      |      |      |      |
               +-+   +------+------+------+------+

The FMA units are the limit, not the loads: a step of k costs rows + vectors loads for rows *
vectors FMAs, and C leaves the registers only when a block of k is done.

For ragged columns the last vector of a row begins where it ends with the row, and computes some
columns a second time: a mask would take a register, of which AVX2 has none left. A single vector is
masked. So the last one is never aligned, and lies in two lines of the cache. Where there are
registers for masks and the rows of B are aligned, as those of a packed panel are, it begins where
the one before it ends: of B it is whole (a masked load takes one of the two ports of the FMA
units), with lanes beyond the row that are not stored, and of C it is masked. An aligned vector of
which one element may be read may be read whole: it is in one page. Ragged rows are other entries of
a jump table over (vectors, rows).

The sums of a block begin at zero, and what C starts from is added to them: one running sum over all
of k would have the rounding errors of a large sum at every step. So an error grows with KC + k / KC
and not with k (blocked summation: Higham, Accuracy and Stability of Numerical Algorithms, 2nd
edition, section 4.2).

Two things keep LLVM from spoiling the loop:

- k is not unrolled, or neighbouring loads of A are merged into short vectors and shuffled apart.
- The addresses of the rows of A are p + {1, 2, 4, 8} * s, where s is the row stride times an odd
  number, kept in a register whose origin is hidden; LLVM would otherwise keep one pointer per row
  and run out of registers.

Source: Goto and van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34
(2008); Van Zee and van de Geijn, BLIS, ACM TOMS 41 (2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.blocking import (
    ASKS_AHEAD,
    KC_BYTES,
    LEAST_PHASE,
    LINE_BYTES,
)
from tinytorch.jit.cpu import MOST_ROWS, host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import MATRIX, ROWS, SIZE, STACK, Matrix, Rows, Stack

PAGE_BYTES = 4096
"""Where the rows of C lie in different pages, the processor does not foresee which lines of C will
be stored to: they are asked for. The widest tile does so in phases (`emit_phases`), others before
the sums begin."""

WIDEST = host_vector_unit().tile_vectors[-1]

Operands = Callable[[list[Value]], tuple[Value, list[Value], list[Value]]]


def emit_tile(
    e: VectorEmitter,
    k: Value,
    rsa: Value,
    rows: int,
    walk: Sequence[Value],
    sums: Sequence[Value],
    operands: Operands,
    unroll: bool = False,
) -> list[Value]:
    """The tile sums[r][j] + the sum over k of A[r, k] * (vector j of row k of B), row after row.

    Args:
        k: number of steps.
        rsa: bytes from one row of A to the next.
        rows: of the tile.
        walk: the values that the walk through A and B carries from step to step.
        sums: the tile before the first step.
        operands: from `walk` a pointer to A[0, k], the vectors of row k of B, and the next values.
        unroll: let LLVM do two steps of k in one.

    Returns:
        The values of the walk after the last step, and then the tile.
    """
    vectors = len(sums) // rows
    odd = {factor: e.opaque(e.mul(rsa, factor)) for factor in range(1, rows, 2)}
    offsets = [i64(0)]
    for r in range(1, rows):
        power = min(r & -r, 8)  # the scales that an x86 address has
        offsets.append(e.mul(odd[r // power], power))

    def step(state: list[Value]) -> list[Value]:
        now = state[len(walk) :]
        column, b, carried = operands(state[: len(walk)])
        for r in range(rows):
            x = e.splat(e.load_scalar(e.at(column, offsets[r])))
            for j in range(vectors):
                now[r * vectors + j] = e.fma(x, b[j], now[r * vectors + j])
        return [*carried, *now]

    return e.loop(k, [*walk, *sums], step, unroll)


class Requests(NamedTuple):
    """Memory that a tile asks for while it sums up, a row of a tile at a time.

    Attributes:
        are_made: whether there are any: a truth value.
        c: the tile's own rows of C, in every block of k.
        ahead: what a later tile reads: `count` rows in each phase; `stride` is from row to row,
            `step` from the first of one phase to that of the next.
        count: of those rows.
    """

    are_made: Value
    c: Rows
    ahead: Stack
    count: Value


def emit_phases(
    e: VectorEmitter,
    k: Value,
    rows: int,
    vectors: int,
    requests: Requests,
    ahead: Value,
    sum_up: Callable[[Value, list[Value]], list[Value]],
    state: Sequence[Value],
) -> list[Value]:
    """The steps of k in as many phases as the tile has rows; each asks for a row before it begins.

    A core waits for 10 to 16 lines at a time, lines of B that come from L2 among them: were all of
    a tile asked for at once, its first steps would wait for memory.

    Args:
        ahead: pointer to the first row that is asked for.
        sum_up: from a number of steps and the state before them to that after them.
        state: before the first phase.

    Returns:
        The pointer after the last row that was asked for, and then the state.
    """
    build, size = e.builder, vectors * e.register_bytes
    whole = build.sdiv(e.add(k, rows - 1), i64(rows))
    steps = build.select(requests.are_made, whole, k)

    def phase(now: list[Value]) -> list[Value]:
        left, c, ahead, *state = now
        for line in range(0, size, LINE_BYTES):
            e.prefetch(e.at(c, line), write=True)

        def ask(place: list[Value]) -> list[Value]:
            for line in range(0, size, LINE_BYTES):
                e.prefetch(e.at(place[0], line), level=2)
            return [e.at(place[0], requests.ahead.stride)]

        e.loop(requests.count, [ahead], ask)
        depth = build.select(build.icmp_signed("<", left, steps), left, steps)
        c, ahead = e.at(c, requests.c.stride), e.at(ahead, requests.ahead.step)
        return [build.sub(left, depth), c, ahead, *sum_up(depth, state)]

    phases = build.select(requests.are_made, i64(rows), i64(1))
    return e.loop(phases, [k, e.pointer(requests.c.address), ahead, *state], phase)[2:]


def emit_blocks(
    e: VectorEmitter,
    k: Value,
    rsa: Value,
    rows: int,
    vectors: int,
    walk: Sequence[Value],
    operands: Operands,
    unroll: bool = False,
    requests: Requests | None = None,
) -> list[Value]:
    """`emit_tile` from zero in blocks of KC steps, each of which begins at zero.

    The total of the blocks that are done waits in memory: the registers are those of the next one.
    """
    build, most, size = e.builder, KC_BYTES // e.itemsize, rows * vectors
    places = e.places(size)
    asked = [e.pointer(requests.ahead.address)] if requests else []

    def sum_up(depth: Value, state: list[Value]) -> list[Value]:
        now, sums = state[: len(walk)], state[len(walk) :]
        return emit_tile(e, depth, rsa, rows, now, sums, operands, unroll)

    def block(state: list[Value]) -> list[Value]:
        left, now = state[0], state[1 : 1 + len(asked) + len(walk)]
        is_last = build.icmp_signed("<=", left, i64(most))
        depth = build.select(is_last, left, i64(most))
        zeros = [e.zeros] * size
        if requests:
            begin = [*now[1:], *zeros]
            found = emit_phases(e, depth, rows, vectors, requests, now[0], sum_up, begin)
        else:
            found = sum_up(depth, [*now, *zeros])
        now, sums = found[:-size], found[-size:]
        sums = e.either(
            build.icmp_signed("==", left, k),
            lambda: sums,
            lambda: [build.fadd(e.load(at), x) for at, x in zip(places, sums, strict=True)],
        )
        with build.if_then(build.not_(is_last)):
            for at, x in zip(places, sums, strict=True):
                e.store(x, at)
        return [build.sub(left, depth), *now, *sums]

    blocks = build.sdiv(e.add(k, most - 1), i64(most))
    return e.loop(blocks, [k, *asked, *walk, *[e.zeros] * size], block)[-size:]


def tile_table(e: VectorEmitter, rows: Value, columns: Value, emit: Callable[..., None]) -> None:
    """A jump table over the sizes of a tile: run emit(rows, vectors) for the one at hand."""
    unit = host_vector_unit()
    vectors = e.builder.sdiv(e.add(columns, e.lanes - 1), i64(e.lanes))
    cases = {
        v * (MOST_ROWS + 1) + r: partial(emit, r, v)
        for v in unit.tile_vectors
        for r in range(1, unit.tile_rows(v) + 1)
    }
    e.switch(e.add(e.mul(vectors, MOST_ROWS + 1), rows), cases)


class Tile(NamedTuple):
    """The arguments of `gemm_tile` but for the rows."""

    columns: Value
    k: Value
    a: Matrix
    b: Rows
    start: Rows
    c: Rows
    relu: Value
    ahead: Stack
    count: Value


def _columns_of(e: VectorEmitter, tile: Tile, vectors: int) -> tuple[list[Any], list[Value]]:
    """Where the vectors of a row begin, in bytes, and which of their lanes are in C (None: all)."""
    build, size = e.builder, e.register_bytes
    offsets: list[Any] = [j * size for j in range(vectors)]
    masks: list[Value] = [None] * vectors
    if vectors == 1:
        return offsets, [e.first_lanes(tile.columns)]
    # all loads of C come before the stores, so that no column is added to twice
    in_row = e.mul(e.add(tile.columns, -e.lanes), e.itemsize)
    if not host_vector_unit().has_masks:
        return [*offsets[:-1], in_row], masks
    off_line = build.and_(build.or_(tile.b.address, tile.b.stride), i64(size - 1))
    is_aligned = build.icmp_signed("==", off_line, i64(0))
    rest = e.add(tile.columns, -(vectors - 1) * e.lanes)
    offsets[-1] = build.select(is_aligned, i64(offsets[-1]), in_row)
    masks[-1] = e.first_lanes(build.select(is_aligned, rest, i64(e.lanes)))
    return offsets, masks


def emit_gemm_tile(e: VectorEmitter, tile: Tile, rows: int, vectors: int) -> None:
    """One tile size: accumulate, add what C starts from, store."""
    build = e.builder
    offsets, masks = _columns_of(e, tile, vectors)
    placed = (tile.a, tile.b, tile.start, tile.c)
    a, b, start, c = (e.pointer(operand.address) for operand in placed)
    steps, ldc = tile.a.column, tile.c.stride

    def at(base: Value, ld: Value, r: int, j: int) -> Value:
        return e.at(e.at(base, e.mul(ld, r)), offsets[j])

    def from_memory() -> list[Value]:
        return [
            e.load(at(start, tile.start.stride, r, j), masks[j])
            for r in range(rows)
            for j in range(vectors)
        ]

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        place, b = walk
        row = [e.load(e.at(b, offset), masks[0] if vectors == 1 else None) for offset in offsets]
        return place, row, [e.at(place, steps), e.at(b, tile.b.stride)]

    asks = build.icmp_signed(">", tile.count, i64(0))
    is_far = build.or_(build.icmp_signed(">=", ldc, i64(PAGE_BYTES)), asks)
    requests = None
    if ASKS_AHEAD and vectors == WIDEST:
        is_long = build.icmp_signed(">=", tile.k, i64(LEAST_PHASE // vectors))
        in_phases = build.and_(is_far, is_long)
        ahead = build.select(asks, tile.ahead.address, tile.c.address)
        count = build.select(in_phases, tile.count, i64(0))
        requests = Requests(in_phases, tile.c, tile.ahead._replace(address=ahead), count)
        is_far = build.and_(is_far, build.not_(is_long))
    with build.if_then(is_far):
        for r in range(rows):
            for j in range(vectors):
                e.prefetch(at(c, ldc, r, j), write=True)
    # Later LLVM may take two steps at a time: it asks earlier for the lines of a transposed A.
    sums = emit_blocks(e, tile.k, tile.a.row, rows, vectors, [a, b], operands, True, requests)
    sums = e.either(
        build.icmp_signed("!=", build.ptrtoint(start, I64), i64(0)),
        lambda: [build.fadd(x, y) for x, y in zip(from_memory(), sums, strict=True)],
        lambda: sums,
    )
    # a branch: comparisons would take as many cycles as two steps of k
    sums = e.either(
        build.icmp_signed("!=", tile.relu, i64(0)),
        lambda: [e.at_least(value, e.zeros) for value in sums],
        lambda: sums,
    )
    if vectors == 1:
        e.store_first(sums, c, ldc, tile.columns)
        return
    for r in range(rows):
        for j in range(vectors):
            e.store(sums[r * vectors + j], at(c, ldc, r, j), masks[j])


def _gemm_tile_twin(dtype: Any, rows: int, *arguments: Any) -> None:
    columns, k, a, b, start, c, relu, *_ = Tile(*arguments)
    left = memory(dtype, a.address, (rows, k), (a.row, a.column))
    result = left @ memory(dtype, b.address, (k, columns), (b.stride,))
    if start.address:
        result += memory(dtype, start.address, (rows, columns), (start.stride,))
    target = memory(dtype, c.address, (rows, columns), (c.stride,))
    target[...] = np.maximum(result, 0) if relu else result


@vector_intrinsic(_gemm_tile_twin)
def _gemm_tile(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    tile = Tile(*arguments)
    tile_table(e, rows, tile.columns, partial(emit_gemm_tile, e, tile))


_SIGNATURE = types.void(SIZE, SIZE, SIZE, MATRIX, ROWS, ROWS, ROWS, SIZE, STACK, SIZE)


def _make_gemm_tile(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_gemm_tile_f{8 * np.dtype(real).itemsize}", _SIGNATURE, is_emitted=True)
    def gemm_tile(
        rows: int,
        columns: int,
        k: int,
        a: Matrix,
        b: Rows,
        start: Rows,
        c: Rows,
        relu: int,
        ahead: Stack,
        count: int,
    ) -> None:
        """C = start + A @ B (then relu, if set) for one register tile.

        Args:
            rows, columns: size of the tile; columns up to `tile_vectors` registers, rows up to what
                `VectorUnit.tile_rows` says for them.
            k: columns of A and rows of B.
            a, b: the operands.
            start: what C starts from (a stride of 0 repeats one row: a bias; C itself
                accumulates); address 0 starts from zero.
            c: the result.
            relu: not 0: store max(value, 0).
            ahead, count: rows that a later tile reads, to be brought to L2 meanwhile: `count` of
                them, `stride` apart, for each row of this tile and block of KC steps, `step` apart.
                Not 0 says, too, that C is far: its rows are asked for.
        """
        _gemm_tile(real, rows, columns, k, a, b, start, c, relu, ahead, count)

    return gemm_tile


gemm_tile_f32, gemm_tile_f64 = map(_make_gemm_tile, (np.float32, np.float64))
