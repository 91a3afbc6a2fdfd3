"""A row at a time: a factor, the largest, exponentials, and gradients (emitted as LLVM IR).

With causal order each row is one element longer than the one before. A loop that a compiler makes
vectors of does what is left over one element at a time, which is up to a vector, or four: that was
more than half of the time of short rows. Here the last vector of a row is a whole one, of which the
lanes beyond the end are made something harmless. Rows need ROOM bytes beyond their end for that,
and for zeros: a tile of a product reads as far as its last row sees.

exp(x) for x <= 0 is 2**n 2**r with n = round(x log2(e)) and |r| <= 1/2:

    shifted = fma(x, log2(e), c)      c = 1.5 * 2**mantissa + bias: rounds to an integer, and the
    r = fma(x, log2(e), c - shifted)  low bits of the sum are n + bias, the exponent field of 2**n
    exp(x) = (1 + r p(r)) 2**n        p: of the least largest error

Below log(2**-bias) x is replaced by that: the field is 0, and so is the result. NaN stays, since
the last step is a product. That is 12 instructions for a vector, of which `exp_of_negative` of
`elementwise.math` has half as many again: it knows log2(e) in two parts. The error here is 2 ulp
near 0 and grows by |x| / 5 ulp, a third of what the rounding of a score alone makes of it.

Source: W. Cody, W. Waite, "Software manual for the elementary functions", 1980, chapter 6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from tinytorch.backends.optimized.elementwise.math import DOUBLE
from tinytorch.jit.cpu import MOST_ROWS
from tinytorch.jit.llvm import Value, VectorEmitter, memory, vector_intrinsic

ROOM = 192
"""Bytes: the rest of a vector, and as many elements as a tile has rows, in whole vectors."""

_LN2, _LOG2_E = math.log(2), 1 / math.log(2)
_SERIES = [_LN2, *(c * _LN2 ** (k + 2) for k, c in enumerate(DOUBLE.exp_terms))]
TERMS = {
    4: [0.6931469775989937, 0.24022242085262274, 0.055507337434970605, 0.00967151264482482,
        0.0013264727123604252],
    8: _SERIES,
}  # fmt: skip
"""Coefficients of (2**r - 1) / r by the bytes of an element. The largest error of 1 + r p(r) is
0.8 ulp in float32."""


def _exp(e: VectorEmitter, x: Value) -> Value:
    """exp of a vector whose elements are 0 or less, or NaN."""
    build, info = e.builder, np.finfo(f"f{e.itemsize}")
    bias, log2_e = int(info.maxexp) - 1, e.constant(_LOG2_E)
    rounder = 1.5 * 2.0**info.nmant
    x = e.at_least(x, e.constant(-bias * _LN2))
    shifted = e.fma(x, log2_e, e.constant(rounder + bias))
    r = e.fma(x, log2_e, build.fsub(e.constant(rounder + bias), shifted))
    series = e.constant(TERMS[e.itemsize][-1])
    for term in reversed(TERMS[e.itemsize][:-1]):
        series = e.fma(series, r, e.constant(term))
    series = e.fma(series, r, e.constant(1.0))
    field = ir.VectorType(ir.IntType(8 * e.itemsize), e.lanes)
    places = ir.Constant(field, [int(info.nmant)] * e.lanes)
    power = build.shl(build.bitcast(shifted, field), places)
    return build.fmul(series, build.bitcast(power, e.vector))


def _store_zeros(e: VectorEmitter, at: Value) -> None:
    """Whole vectors of zeros, for what the last row of a tile sees and this one does not."""
    for i in range(-(-MOST_ROWS // e.lanes)):
        e.store(e.zeros, e.at(at, i * e.register_bytes))


def _scale_twin(dtype: Any, row: int, count: int, factor: Any, to: int) -> None:
    memory(dtype, to, (count,))[...] = memory(dtype, row, (count,)) * dtype(factor)


@vector_intrinsic(_scale_twin)
def scale(e: VectorEmitter, row: Value, count: Value, factor: Value, to: Value) -> None:
    """`count` elements at `row`, times a factor, to the address `to`, which may be `row`."""
    build, factors = e.builder, e.splat(factor)

    def step(state: list[Value]) -> list[Value]:
        source, target = state
        e.store(build.fmul(e.load(source), factors), target)
        return [e.at(at, e.register_bytes) for at in state]

    whole, mask = e.vectors_of(count)
    source, target = e.loop(whole, [e.pointer(row), e.pointer(to)], step)
    e.store(build.fmul(e.load(source, mask), factors), target, mask)


def _find_largest_twin(dtype: Any, row: int, count: int, to: int) -> None:
    x = memory(dtype, row, (count,))
    memory(dtype, to, (1,))[0] = np.fmax.reduce(x, initial=-np.inf)


@vector_intrinsic(_find_largest_twin)
def find_largest(e: VectorEmitter, row: Value, count: Value, to: Value) -> None:
    """The largest of `count` elements at `row` to the address `to`: -inf where there is none; NaN
    is passed over."""
    build = e.builder

    def larger(x: Value, best: Value) -> Value:
        return build.select(build.fcmp_ordered(">", x, best), x, best)

    def step(state: list[Value]) -> list[Value]:
        at, best = state
        return [e.at(at, e.register_bytes), larger(e.load(at), best)]

    whole, mask = e.vectors_of(count)
    lowest = e.constant(-math.inf)
    at, best = e.loop(whole, [e.pointer(row), lowest], step)
    best = larger(build.select(mask, e.load(at), lowest), best)
    e.store_scalar(e.folded(best, larger), e.pointer(to))


def _exponentiate_twin(dtype: Any, row: int, count: int, shift: Any, to: int) -> None:
    x = memory(dtype, row, (count + MOST_ROWS,))
    with np.errstate(invalid="ignore"):  # inf - inf
        x[:count] = np.exp(x[:count] - dtype(shift))
    x[count:] = 0
    memory(dtype, to, (1,))[0] = x[:count].sum()


@vector_intrinsic(_exponentiate_twin)
def exponentiate(e: VectorEmitter, row: Value, count: Value, shift: Value, to: Value) -> None:
    """`count` elements at `row` become exp(x - shift), and MOST_ROWS after them 0; the sum goes to
    the address `to`. No element may be above the shift."""
    build, shifts, lowest = e.builder, e.splat(shift), e.constant(-math.inf)

    def step(state: list[Value]) -> list[Value]:
        at, total = state
        value = _exp(e, build.fsub(e.load(at), shifts))
        e.store(value, at)
        return [e.at(at, e.register_bytes), build.fadd(total, value)]

    whole, mask = e.vectors_of(count)
    at, total = e.loop(whole, [e.pointer(row), e.zeros], step)
    value = _exp(e, build.fsub(build.select(mask, e.load(at), lowest), shifts))
    e.store(value, at)
    e.store_scalar(e.folded(build.fadd(total, value), build.fadd), e.pointer(to))
    _store_zeros(e, e.at(at, e.register_bytes))


def _differentiate_twin(dtype: Any, weights: int, change: int, count: int, factor: Any) -> None:
    w, g = memory(dtype, weights, (count,)), memory(dtype, change, (count + MOST_ROWS,))
    w *= dtype(factor)
    g[:count] = w * (g[:count] - (w * g[:count]).sum())
    g[count:] = 0


@vector_intrinsic(_differentiate_twin)
def differentiate(
    e: VectorEmitter, weights: Value, change: Value, count: Value, factor: Value
) -> None:
    """`count` elements at `weights` are multiplied by a factor, and `change`, the gradient of the
    result, becomes that of the scores,  weights * (change - sum(weights * change)),  and MOST_ROWS
    elements after it 0."""
    build, factors = e.builder, e.splat(factor)
    whole, mask = e.vectors_of(count)

    def add_product(state: list[Value]) -> list[Value]:
        w, g, total = state
        following = [e.at(at, e.register_bytes) for at in (w, g)]
        return [*following, e.fma(e.load(w), e.load(g), total)]

    def step(state: list[Value]) -> list[Value]:
        w, g = state
        for at, value in zip(state, results(w, g, e.load(g)), strict=True):
            e.store(value, at)
        return [e.at(at, e.register_bytes) for at in state]

    def results(w: Value, g: Value, upper: Value) -> tuple[Value, Value]:
        weight = build.fmul(e.load(w), factors)
        return weight, build.fmul(weight, build.fsub(upper, inner))

    start = [e.pointer(weights), e.pointer(change)]
    w, g, total = e.loop(whole, [*start, e.zeros], add_product)
    last = build.select(mask, e.load(g), e.zeros)
    total = e.folded(e.fma(e.load(w), last, total), build.fadd)
    inner = build.fmul(e.splat(total), factors)
    w, g = e.loop(whole, start, step)
    for at, value in zip((w, g), results(w, g, last), strict=True):
        e.store(build.select(mask, value, e.zeros), at)  # a sum that is NaN is that of this row
    _store_zeros(e, e.at(g, e.register_bytes))
