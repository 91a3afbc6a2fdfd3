"""The even and the odd elements of rows, taken apart and put together (emitted as LLVM IR).

With stride 2, windows read every other element of a row. Split into two *phases*, neighbouring
windows read neighbouring elements, and a vector is a vector of windows:

    row   0 1 2 3 4 5 6 7   -->   phase 0   0 2 4 6     phase 1   1 3 5 7

Ends are masked, so a short row costs one round of the loop.
"""

from __future__ import annotations

from typing import Any

from tinytorch.dtypes import Array
from tinytorch.jit.llvm import Value, VectorEmitter, i64, memory, vector_intrinsic
from tinytorch.jit.operands import Rows, Stack


def _over_pairs(
    e: VectorEmitter, width: Value, depth: Value, image: Rows, phases: Stack, body: Any
) -> None:
    """Run body(pointers, masks of two vectors of a row, masks of one of each phase) along rows.

    The pointers are two into the image and one into each phase; sizes are those of `split_pairs`.
    """
    build = e.builder
    rows = [image.address, phases.address, e.add(phases.address, phases.step)]
    steps = [image.stride, phases.stride, phases.stride]
    rounds = build.sdiv(e.add(width, 2 * e.lanes - 1), i64(2 * e.lanes))

    def vectors(state: list[Value]) -> list[Value]:
        left, image, *phases = state
        whole = [e.first_lanes(left), e.first_lanes(e.add(left, -e.lanes))]
        halves = [e.first_lanes(build.ashr(e.add(left, 1 - i), i64(1))) for i in (0, 1)]
        pointers = [image, e.at(image, e.register_bytes), *phases]
        body(pointers, whole, halves)
        return [
            e.add(left, -2 * e.lanes),
            e.at(image, 2 * e.register_bytes),
            *(e.at(phase, e.register_bytes) for phase in phases),
        ]

    def row(state: list[Value]) -> list[Value]:
        e.loop(rounds, [width, *state], vectors)
        return [e.at(pointer, step) for pointer, step in zip(state, steps, strict=True)]

    e.loop(depth, [e.pointer(address) for address in rows], row)


def deinterleave(e: VectorEmitter, x: Value, y: Value) -> list[Value]:
    """The even and the odd elements of x followed by y."""
    return [e.shuffle(x, y, range(first, 2 * e.lanes, 2)) for first in (0, 1)]


def interleave(e: VectorEmitter, even: Value, odd: Value) -> list[Value]:
    """The inverse of `deinterleave`."""
    lanes = [lane + side for lane in range(e.lanes) for side in (0, e.lanes)]
    return [e.shuffle(even, odd, lanes[: e.lanes]), e.shuffle(even, odd, lanes[e.lanes :])]


def _views(
    dtype: Any, width: int, depth: int, image: Rows, phases: Stack
) -> list[tuple[Array, Array]]:
    """The elements of each phase, in the image and in the phase."""
    rows = memory(dtype, image.address, (depth, width), (image.stride,))
    starts = [phases.address + i * phases.step for i in (0, 1)]
    sizes = [(depth, (width + 1 - i) // 2) for i in (0, 1)]
    return [
        (rows[:, i::2], memory(dtype, start, size, (phases.stride,)))
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


def _split_pairs_twin(dtype: Any, width: int, depth: int, image: Rows, phases: Stack) -> None:
    for elements, phase in _views(dtype, width, depth, image, phases):
        phase[...] = elements


@vector_intrinsic(_split_pairs_twin)
def split_pairs(e: VectorEmitter, width: Value, depth: Value, image: Rows, phases: Stack) -> None:
    """Split `depth` rows of `width` elements into two phases."""

    def body(pointers: list[Value], whole: list[Value], halves: list[Value]) -> None:
        row = [e.load(pointer, mask) for pointer, mask in zip(pointers[:2], whole, strict=True)]
        for half, pointer, mask in zip(deinterleave(e, *row), pointers[2:], halves, strict=True):
            e.store(half, pointer, mask)

    _over_pairs(e, width, depth, image, phases, body)


def _join_pairs_twin(dtype: Any, width: int, depth: int, image: Rows, phases: Stack) -> None:
    for elements, phase in _views(dtype, width, depth, image, phases):
        elements[...] = phase


@vector_intrinsic(_join_pairs_twin)
def join_pairs(e: VectorEmitter, width: Value, depth: Value, image: Rows, phases: Stack) -> None:
    """The inverse of `split_pairs`."""

    def body(pointers: list[Value], whole: list[Value], halves: list[Value]) -> None:
        parts = [e.load(pointer, mask) for pointer, mask in zip(pointers[2:], halves, strict=True)]
        for part, pointer, mask in zip(interleave(e, *parts), pointers[:2], whole, strict=True):
            e.store(part, pointer, mask)

    _over_pairs(e, width, depth, image, phases, body)
