"""Scores become weights: masks, the softmax with its running maximum, and dropout.

The softmax of a row that is seen a block at a time keeps the largest score m so far, and the sum of
exp(score - m). When a block brings a larger one, what was added up is multiplied by
exp(old m - new m) first:

    m' = max(m, block)        sum' = sum exp(m - m') + sum of exp(block - m')

Where nothing is visible m is -inf and the sum 0: such a row stays 0.

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tinytorch.backends.optimized.attention.row_kernels import (
    differentiate,
    exponentiate,
    find_largest,
    scale,
)
from tinytorch.jit.library import export
from tinytorch.jit.operands import ROWS, SIZE, Int, Rows
from tinytorch.jit.views import view

NO_MASK, BOOL_MASK, FLOAT_MASK = range(3)
_SIZE, _REAL, _SEED = types.intp, types.float64, types.int64


class Running(NamedTuple):
    """Where the numbers of m rows are, with ROOM after each; all (m,).

    Attributes:
        maxima, totals: the largest score, and the sum of the weights, of the blocks so far.
        shrink: what all that was added up before is to be multiplied by.
        found: the largest score of a block; and then the sum of its weights.
    """

    maxima: Int
    totals: Int
    shrink: Int
    found: Int


_record: Any = types.NamedUniTuple
RUNNING = _record(SIZE, len(Running._fields), Running)


class Weights:
    """The steps in float32 or float64, of addresses of rows, and the bytes from row to row.

    They are C symbols: forward and backward call them, and are compiled without them.
    """

    scaled: Callable[..., None]
    mask_rows: Callable[..., None]
    exponentials: Callable[..., None]
    shrink_rows: Callable[..., None]
    divide: Callable[..., None]
    drop: Callable[..., None]
    score_gradients: Callable[..., None]

    def __init__(self, real: Any) -> None:
        itemsize = np.dtype(real).itemsize

        def symbol(name: str, *arguments: Any) -> Callable[[Callable[..., None]], Any]:
            signature = types.void(*arguments)
            return export(f"tinytorch_attention_{name}_f{8 * itemsize}", signature)

        @symbol("scaled", _SIZE, _SIZE, _SIZE, _SIZE, _REAL, _SIZE, _SIZE)
        def scaled(m: int, n: int, x: int, ldx: int, by: float, to: int, ld_to: int) -> None:
            """to = x * by, both (m, n)."""
            for i in range(m):
                scale(real, x + i * ldx, n, real(by), to + i * ld_to)

        @symbol("mask", ROWS, *[_SIZE] * 4, ROWS)
        def mask_rows(scores: Rows, m: int, n: int, seen: int, kind: int, mask: Rows) -> None:
            """Apply a mask (m, n), of bool or of floats to add, to scores (m, n).

            Row i needs the columns before seen + i.
            """
            for i in range(m):
                visible = max(min(n, seen + i), 0)
                row = view(real, scores.address + i * scores.stride, visible)
                if kind == BOOL_MASK:
                    shown = view(np.uint8, mask.address + i * mask.stride, visible)
                    for j in range(visible):
                        row[j] = row[j] if shown[j] else real(-np.inf)
                else:
                    added = view(real, mask.address + i * mask.stride, visible)
                    for j in range(visible):  # -inf hides a score that is NaN, too
                        hidden = added[j] == -np.inf
                        row[j] = real(-np.inf) if hidden else row[j] + added[j]

        @symbol("exponentials", ROWS, *[_SIZE] * 4, RUNNING)
        def exponentials(
            scores: Rows, m: int, n: int, seen: int, is_first: int, running: Running
        ) -> None:
            """Scores (m, n), with ROOM after each row, become exp(score - maximum so far), and 0
            where row i sees none, as far as a tile reads.

            Args:
                is_first: not 0: there are no blocks before.
            """
            maxima, totals = view(real, running.maxima, m), view(real, running.totals, m)
            shrink, found = view(real, running.shrink, m), view(real, running.found, m)
            lowest, zero = real(-np.inf), real(0)
            for i in range(m):
                at = scores.address + i * scores.stride
                find_largest(real, at, max(min(n, seen + i), 0), running.found + i * itemsize)
            for i in range(m):
                old = lowest if is_first != 0 else maxima[i]
                new = found[i] if found[i] > old else old
                maxima[i] = new
                shrink[i] = old - (zero if new == lowest else new)
            if is_first == 0:
                exponentiate(real, running.shrink, m, zero, running.found)
            for i in range(m):
                at = scores.address + i * scores.stride
                shift = zero if maxima[i] == lowest else maxima[i]
                visible = max(min(n, seen + i), 0)
                exponentiate(real, at, visible, shift, running.found + i * itemsize)
            for i in range(m):
                before = zero if is_first != 0 else totals[i] * shrink[i]
                totals[i] = before + found[i]

        @symbol("shrink", *[_SIZE] * 5)
        def shrink_rows(m: int, n: int, x: int, ldx: int, factors_at: int) -> None:
            """Rows of x (m, n) multiplied by their factors (m,)."""
            factors = view(real, factors_at, m)
            for i in range(m):
                factor = factors[i]
                if factor != real(1):  # most rows have seen their largest score
                    scale(real, x + i * ldx, n, factor, x + i * ldx)

        @symbol("divide", *[_SIZE] * 5)
        def divide(m: int, n: int, x: int, ldx: int, totals_at: int) -> None:
            """x (m, n) divided by the totals (m,) of its rows; 0 where the total is 0."""
            totals = view(real, totals_at, m)
            for i in range(m):
                factor = real(0) if totals[i] == 0 else real(1) / totals[i]
                scale(real, x + i * ldx, n, factor, x + i * ldx)

        @symbol("drop", ROWS, *[_SIZE] * 3, _REAL, _SEED, _SIZE, _SIZE)
        def drop(
            weights: Rows, m: int, n: int, seen: int, p: float, seed: int, first: int, step: int
        ) -> None:
            """Weights (m, n) become 0 where `uniform` is below p, are divided by 1 - p elsewhere.

            Element (i, j) is number first + i * step + j of those that `uniform` draws of the seed.
            Row i needs the columns before seen + i.
            """
            least, factor = real(p), real(1 / (1 - p))
            digits = np.uint64(24 if itemsize == 4 else 53)
            unit, golden = real(2.0 ** -float(digits)), np.uint64(0x9E3779B97F4A7C15)
            for i in range(m):
                visible = max(min(n, seen + i), 0)
                row = view(real, weights.address + i * weights.stride, visible)
                state = np.uint64(seed) + np.uint64(first + i * step + 1) * golden
                for j in range(visible):
                    z = state + np.uint64(j) * golden
                    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    z ^= z >> np.uint64(31)
                    drawn = real(np.int64(z >> (np.uint64(64) - digits))) * unit
                    row[j] = row[j] * factor if drawn >= least else real(0)

        @symbol("gradients", ROWS, ROWS, *[_SIZE] * 4)
        def score_gradients(
            weights: Rows, change: Rows, m: int, n: int, seen: int, totals_at: int
        ) -> None:
            """Weights (m, n) are divided by their totals (m,), and `change`, the gradient of what
            they become, becomes that of the scores, and 0 where row i sees nothing: from column
            seen + i on, as far as a tile goes."""
            totals = view(real, totals_at, m)
            for i in range(m):
                visible = max(min(n, seen + i), 0)
                factor = real(0) if totals[i] == 0 else real(1) / totals[i]
                differentiate(
                    real, weights.address + i * weights.stride, change.address + i * change.stride,
                    visible, factor,
                )  # fmt: skip

        self.scaled, self.mask_rows, self.exponentials = scaled, mask_rows, exponentials
        self.shrink_rows, self.divide = shrink_rows, divide
        self.drop, self.score_gradients = drop, score_gradients
