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
from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.elementwise.math import exp_of_negative
from tinytorch.backends.optimized.rows.rows import largest
from tinytorch.jit.library import export
from tinytorch.jit.operands import ROWS, Rows
from tinytorch.jit.views import view

NO_MASK, BOOL_MASK, FLOAT_MASK = range(3)
_SIZE, _REAL, _SEED = types.intp, types.float64, types.int64


class Weights:
    """The steps in float32 or float64, of addresses of rows, and the bytes from row to row.

    They are C symbols: forward and backward call them, and are compiled without them.
    """

    scaled: Callable[..., None]
    mask_rows: Callable[..., None]
    exponentials: Callable[..., None]
    divide: Callable[..., None]
    drop: Callable[..., None]
    score_gradients: Callable[..., None]

    def __init__(self, real: Any) -> None:
        itemsize = np.dtype(real).itemsize

        def symbol(name: str, *arguments: Any) -> Callable[[Callable[..., None]], Any]:
            signature = types.void(*arguments)
            return export(f"tinytorch_attention_{name}_f{8 * itemsize}", signature)

        @symbol("scaled", _SIZE, _SIZE, _SIZE, _SIZE, _REAL, _SIZE, _SIZE)
        def scaled(m: int, n: int, x: int, ldx: int, scale: float, to: int, ld_to: int) -> None:
            """to = x * scale, both (m, n)."""
            factor = real(scale)
            for i in range(m):
                source, target = view(real, x + i * ldx, n), view(real, to + i * ld_to, n)
                for j in range(n):
                    target[j] = source[j] * factor

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
                    for j in range(visible):
                        row[j] += added[j]

        @symbol("exponentials", ROWS, *[_SIZE] * 6)
        def exponentials(
            scores: Rows, m: int, n: int, seen: int, maxima_at: int, totals_at: int, shrink_at: int
        ) -> None:
            """Scores (m, n) become exp(score - maximum so far), and 0 where row i sees none.

            Args:
                maxima_at, totals_at: of (m,): of the blocks before, and then with this one.
                shrink_at: of (m,), which becomes what all that was added up before is to be
                    multiplied by.
            """
            maxima, totals = view(real, maxima_at, m), view(real, totals_at, m)
            shrink = view(real, shrink_at, m)
            lowest, zero = real(-np.inf), real(0)
            for i in range(m):
                visible = max(min(n, seen + i), 0)
                row = view(real, scores.address + i * scores.stride, visible)
                found = largest(row) if visible else lowest
                old = maxima[i]
                new = old if found <= old else found  # NaN stays
                maxima[i] = new
                shrink[i] = old - (zero if new == lowest else new)
            for i in range(m):
                row = view(real, scores.address + i * scores.stride, n)
                visible = max(min(n, seen + i), 0)
                total = zero
                shift = zero if maxima[i] == lowest else maxima[i]
                for j in range(visible):
                    e = exp_of_negative(row[j] - shift)
                    total += e
                    row[j] = e
                for j in range(visible, n):
                    row[j] = zero
                shrink[i] = exp_of_negative(shrink[i])
                totals[i] = totals[i] * shrink[i] + total

        @symbol("divide", *[_SIZE] * 5)
        def divide(m: int, n: int, x: int, ldx: int, totals_at: int) -> None:
            """x (m, n) divided by the totals (m,) of its rows; 0 where the total is 0."""
            totals = view(real, totals_at, m)
            for i in range(m):
                row = view(real, x + i * ldx, n)
                factor = real(0) if totals[i] == 0 else real(1) / totals[i]
                for j in range(n):
                    row[j] *= factor

        @symbol("drop", _SIZE, _SIZE, _SIZE, _SIZE, _REAL, _SEED, _SIZE, _SIZE)
        def drop(
            weights: int, pitch: int, m: int, n: int, p: float, seed: int, first: int, step: int
        ) -> None:
            """Weights (m, n) become 0 where `uniform` is below p, are divided by 1 - p elsewhere.

            Element (i, j) is number first + i * step + j of those that `uniform` draws of the seed.
            """
            least, factor = real(p), real(1 / (1 - p))
            digits = np.uint64(24 if itemsize == 4 else 53)
            unit, golden = real(2.0 ** -float(digits)), np.uint64(0x9E3779B97F4A7C15)
            for i in range(m):
                row = view(real, weights + i * pitch, n)
                state = np.uint64(seed) + np.uint64(first + i * step + 1) * golden
                for j in range(n):
                    z = state + np.uint64(j) * golden
                    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    z ^= z >> np.uint64(31)
                    drawn = real(np.int64(z >> (np.uint64(64) - digits))) * unit
                    row[j] = row[j] * factor if drawn >= least else real(0)

        @symbol("gradients", *[_SIZE] * 6)
        def score_gradients(
            weights: int, change: int, pitch: int, m: int, n: int, seen: int
        ) -> None:
            """`change`, the gradient of the weights, becomes that of the scores:

                weights * (change - sum(weights * change))

            and 0 where row i sees nothing: from column seen + i on.
            """
            for i in range(m):
                row, g = view(real, weights + i * pitch, n), view(real, change + i * pitch, n)
                visible, inner = max(min(n, seen + i), 0), real(0)
                for j in range(visible):
                    inner += row[j] * g[j]
                for j in range(visible):
                    g[j] = row[j] * (g[j] - inner)
                for j in range(visible, n):
                    g[j] = real(0)

        self.scaled, self.mask_rows, self.exponentials = scaled, mask_rows, exponentials
        self.divide, self.drop, self.score_gradients = divide, drop, score_gradients
