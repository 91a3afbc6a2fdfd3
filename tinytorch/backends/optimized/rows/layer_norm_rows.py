"""A row of layer normalisation at a time, and its gradients (emitted as LLVM IR).

Loops that a compiler makes vectors of take four at once, and what is left of a row one number after
the other: a row of 32 took as long as one of 128. Here the last vector of a row is a masked one, as
in `attention.row_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tinytorch.jit.llvm import Value, VectorEmitter, i64, memory, vector_intrinsic

AT_ONCE = 4
"""Vectors of a row that are added side by side."""

Step = Callable[[Sequence[Value], Value, Sequence[Value]], Sequence[Value]]


def _over_row(
    e: VectorEmitter, count: Value, starts: Sequence[Value], step: Step, sums: int = 0
) -> list[Value]:
    """Go through rows of `count` elements side by side, and add up what is to be summed.

    Args:
        starts: the addresses of the rows.
        step: from places in the rows, the mask of a vector there (None: all of it) and the vectors
            of the sums so far to those with this vector; in lanes outside the mask, whatever.
        sums: how many.
    """
    whole, mask = e.vectors_of(count)
    add = e.builder.fadd

    def rounds(count: Value, state: list[Value], at_once: int) -> list[Value]:
        """The state after so many rounds, in each of which several vectors have sums of their
        own: an addition waits for the one before."""

        def round_of(state: list[Value]) -> list[Value]:
            places, totals = state[: len(starts)], state[len(starts) :]
            for i in range(at_once):
                there = [e.at(place, i * e.register_bytes) for place in places]
                totals[i * sums : (i + 1) * sums] = step(there, None, totals[i * sums :][:sums])
            return [*[e.at(place, at_once * e.register_bytes) for place in places], *totals]

        more = [e.zeros] * (sums * (at_once - 1))
        state = e.loop(count, [*state, *more], round_of)
        totals = state[len(starts) :]
        joined = [reduce(add, totals[k::sums]) for k in range(sums)]
        return [*state[: len(starts)], *joined]

    several = e.builder.sdiv(whole, i64(AT_ONCE))
    state = rounds(several, [*map(e.pointer, starts), *[e.zeros] * sums], AT_ONCE)
    left = e.builder.sub(whole, e.mul(several, AT_ONCE))
    state = rounds(left, state, 1)
    totals = state[len(starts) :]
    last = step(state[: len(starts)], mask, totals)
    pairs = zip(last, totals, strict=True)
    return [e.folded(e.builder.select(mask, after, before), add) for after, before in pairs]


def _write_row(
    e: VectorEmitter,
    count: Value,
    starts: Sequence[Value],
    result: Callable[[Sequence[Value], Value], Value],
    streamed: Value,
) -> None:
    """Write `result`, of places in rows and a mask, to the last of the rows; past the caches if
    `streamed` is not 0 and the row is aligned."""
    build, to = e.builder, starts[-1]

    def write(places: Sequence[Value], mask: Value, _: Sequence[Value]) -> list[Value]:
        e.store(result(places, mask), places[-1], mask)
        return []

    def stream(places: Sequence[Value], mask: Value, _: Sequence[Value]) -> list[Value]:
        if mask is not None:
            return write(places, mask, _)
        e.stream(result(places, mask), places[-1])
        return []

    is_aligned = build.icmp_signed("==", build.and_(to, i64(e.register_bytes - 1)), i64(0))
    is_wanted = build.icmp_signed("!=", streamed, i64(0))
    with build.if_else(build.and_(is_wanted, is_aligned)) as (past, through):
        with past:
            _over_row(e, count, starts, stream)
        with through:
            _over_row(e, count, starts, write)


def _scale(e: VectorEmitter, spread: Value, size: Value, eps: Value) -> Value:
    """1 / sqrt(variance + eps)."""
    build, name = e.builder, f"sqrt.f{e.dtype.bitwidth}"
    variance = build.fadd(build.fdiv(spread, size), eps)
    return build.fdiv(e.element(1.0), e.call(name, e.element, [variance]))


def _statistics(e: VectorEmitter, row: Value, count: Value, eps: Value) -> tuple[Value, Value]:
    """Vectors of the mean and of the scale of a row."""
    build = e.builder
    size = build.sitofp(count, e.element)

    def add(places: Sequence[Value], mask: Value, sums: Sequence[Value]) -> list[Value]:
        return [build.fadd(sums[0], e.load(places[0], mask))]

    (total,) = _over_row(e, count, [row], add, 1)
    means = e.splat(build.fdiv(total, size))

    def add_square(places: Sequence[Value], mask: Value, sums: Sequence[Value]) -> list[Value]:
        difference = build.fsub(e.load(places[0], mask), means)
        return [e.fma(difference, difference, sums[0])]

    (spread,) = _over_row(e, count, [row], add_square, 1)
    return means, e.splat(_scale(e, spread, size, eps))


def _normalised(x: Any, eps: Any) -> Any:
    x = x - x.mean(dtype=x.dtype)
    return x / np.sqrt(np.square(x).mean(dtype=x.dtype) + eps)


def _normalise_twin(
    dtype: Any, row: int, count: int, w: int, b: int, eps: Any, streamed: int, to: int
) -> None:
    x, factor, shift, out = (memory(dtype, at, (count,)) for at in (row, w, b, to))
    out[...] = _normalised(x, eps) * factor + shift


@vector_intrinsic(_normalise_twin)
def normalise(
    e: VectorEmitter,
    row: Value,
    count: Value,
    w: Value,
    b: Value,
    eps: Value,
    streamed: Value,
    to: Value,
) -> None:
    """A row of `count` elements, normalised, times w, plus b, to the address `to`; past the caches
    if `streamed` is not 0."""
    build = e.builder
    means, scales = _statistics(e, row, count, eps)

    def result(places: Sequence[Value], mask: Value) -> Value:
        x, factor, shift = (e.load(place, mask) for place in places[:3])
        return e.fma(build.fmul(build.fsub(x, means), scales), factor, shift)

    _write_row(e, count, [row, w, b, to], result, streamed)


def _add_weight_twin(dtype: Any, upper: int, row: int, count: int, eps: Any, dw: int) -> None:
    g, x, total = (memory(dtype, at, (count,)) for at in (upper, row, dw))
    total += g * _normalised(x, eps)


@vector_intrinsic(_add_weight_twin)
def add_weight(
    e: VectorEmitter, upper: Value, row: Value, count: Value, eps: Value, dw: Value
) -> None:
    """Add what a row contributes to the gradient of w at the address `dw`."""
    build = e.builder
    means, scales = _statistics(e, row, count, eps)

    def write(places: Sequence[Value], mask: Value, _: Sequence[Value]) -> list[Value]:
        g, x, total = (e.load(place, mask) for place in places)
        e.store(e.fma(g, build.fmul(build.fsub(x, means), scales), total), places[2], mask)
        return []

    _over_row(e, count, [upper, row, dw], write)


def _differentiate_twin(
    dtype: Any,
    upper: int,
    row: int,
    count: int,
    w: int,
    eps: Any,
    add: int,
    streamed: int,
    to: int,
    dw: int,
    db: int,
) -> None:
    g, x, factor, out = (memory(dtype, at, (count,)) for at in (upper, row, w, to))
    deviation = np.sqrt(x.var(dtype=dtype) + eps)
    normal, h = _normalised(x, eps), g * factor
    change = (h - h.mean(dtype=dtype) - normal * (h * normal).mean(dtype=dtype)) / deviation
    out[...] = change + (out if add else 0)
    if dw:
        memory(dtype, dw, (count,))[...] += g * normal
        memory(dtype, db, (count,))[...] += g


@vector_intrinsic(_differentiate_twin)
def differentiate(
    e: VectorEmitter,
    upper: Value,
    row: Value,
    count: Value,
    w: Value,
    eps: Value,
    add: Value,
    streamed: Value,
    to: Value,
    dw: Value,
    db: Value,
) -> None:
    """The gradient for a row to the address `to` (past the caches if `streamed` is not 0), or, if
    `add` is not 0, added there; what the row contributes to those of w and b is added at `dw` and
    `db`, unless these are 0."""
    build = e.builder
    size = build.sitofp(count, e.element)

    def add_both(places: Sequence[Value], mask: Value, sums: Sequence[Value]) -> list[Value]:
        g, x, factor = (e.load(place, mask) for place in places)
        return [build.fadd(sums[0], x), e.fma(g, factor, sums[1])]

    total, total_h = _over_row(e, count, [upper, row, w], add_both, 2)
    means, shifts = (e.splat(build.fdiv(each, size)) for each in (total, total_h))

    def add_products(places: Sequence[Value], mask: Value, sums: Sequence[Value]) -> list[Value]:
        g, x, factor = (e.load(place, mask) for place in places)
        difference = build.fsub(x, means)
        h = build.fmul(g, factor)
        return [e.fma(difference, difference, sums[0]), e.fma(h, difference, sums[1])]

    spread, along = _over_row(e, count, [upper, row, w], add_products, 2)
    scale = _scale(e, spread, size, eps)
    slope = build.fdiv(build.fmul(build.fmul(along, scale), scale), size)
    scales, slopes = e.splat(scale), e.splat(slope)

    def change(places: Sequence[Value], mask: Value) -> Value:
        g, x, factor = (e.load(place, mask) for place in places[:3])
        h = build.fsub(build.fmul(g, factor), shifts)
        centred = build.fsub(h, build.fmul(build.fsub(x, means), slopes))
        return build.fmul(centred, scales)

    def write_sum(places: Sequence[Value], mask: Value, _: Sequence[Value]) -> list[Value]:
        before = e.load(places[3], mask)
        e.store(build.fadd(change(places, mask), before), places[3], mask)
        return []

    def write_weights(places: Sequence[Value], mask: Value, _: Sequence[Value]) -> list[Value]:
        g, x, of_w, of_b = (e.load(place, mask) for place in places)
        normal = build.fmul(build.fsub(x, means), scales)
        e.store(e.fma(g, normal, of_w), places[2], mask)
        e.store(build.fadd(g, of_b), places[3], mask)
        return []

    rows = [upper, row, w, to]
    with build.if_else(build.icmp_signed("!=", add, i64(0))) as (added, put):
        with added:
            _over_row(e, count, rows, write_sum)
        with put:
            _write_row(e, count, rows, change, streamed)
    with build.if_then(build.icmp_signed("!=", dw, i64(0))):
        _over_row(e, count, [upper, row, dw, db], write_weights)
