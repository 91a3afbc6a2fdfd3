"""Scores become weights: masks, the softmax with its running maximum, and dropout.

The softmax of a row that is seen a block at a time keeps the largest score m so far, and the sum of
exp(score - m). When a block brings a larger one, what was added up is multiplied by
exp(old m - new m) first:

    m' = max(m, block)        sum' = sum exp(m - m') + sum of exp(block - m')

Where nothing is visible m is -inf and the sum 0: such a row stays 0.

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.optimized.elementwise.math import exp_of_negative
from tinytorch.backends.optimized.rows.rows import largest
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.views import view

NO_MASK, BOOL_MASK, FLOAT_MASK = range(3)


@kernel
def mask_rows(
    scores: Array, m: int, n: int, seen: int, kind: int, hides: Array, adds: Array
) -> None:
    """Apply the mask of a block to its scores (m, n): `hides` of bool, or `adds`, both (m, n).

    The elements of a row of the mask are adjacent. Row i needs the columns before seen + i.
    """
    real = scores.dtype.type
    for i in range(m):
        row, visible = scores[i], max(min(n, seen + i), 0)
        if kind == BOOL_MASK:
            shown = view(np.uint8, address(hides) + i * hides.strides[0], visible)
            for j in range(visible):
                row[j] = row[j] if shown[j] else real(-np.inf)
        else:
            added = view(real, address(adds) + i * adds.strides[0], visible)
            for j in range(visible):
                row[j] += added[j]


@kernel
def exponentials(
    scores: Array, m: int, n: int, seen: int, maxima: Array, totals: Array, shrink: Array
) -> None:
    """Scores (m, n) become exp(score - maximum so far), and 0 where row i does not see them.

    Args:
        maxima, totals: (m,): of the blocks before, and then with this one.
        shrink: (m,), becomes what everything added up before is to be multiplied by.
    """
    real = scores.dtype.type
    lowest, zero = real(-np.inf), real(0)
    for i in range(m):
        visible = max(min(n, seen + i), 0)
        found = largest(scores[i, :visible]) if visible else lowest
        old = maxima[i]
        new = old if found <= old else found  # NaN stays
        maxima[i] = new
        shrink[i] = old - (zero if new == lowest else new)
    for i in range(m):
        row, visible, total = scores[i], max(min(n, seen + i), 0), zero
        shift = zero if maxima[i] == lowest else maxima[i]
        for j in range(visible):
            e = exp_of_negative(row[j] - shift)
            total += e
            row[j] = e
        for j in range(visible, n):
            row[j] = zero
        shrink[i] = exp_of_negative(shrink[i])
        totals[i] = totals[i] * shrink[i] + total


@kernel
def drop(weights: Array, m: int, n: int, p: float, seed: int, first: int, step: int) -> None:
    """Weights (m, n) become 0 where `uniform` is below p, and are divided by 1 - p elsewhere.

    Element (i, j) is number first + i * step + j of those that `uniform` draws from the seed.
    """
    real = weights.dtype.type
    least, factor = real(p), real(1 / (1 - p))
    digits = np.uint64(24 if weights.itemsize == 4 else 53)
    unit, golden = real(2.0 ** -float(digits)), np.uint64(0x9E3779B97F4A7C15)
    for i in range(m):
        row = weights[i]
        state = np.uint64(seed) + np.uint64(first + i * step + 1) * golden
        for j in range(n):
            z = state + np.uint64(j) * golden
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z ^= z >> np.uint64(31)
            drawn = real(np.int64(z >> (np.uint64(64) - digits))) * unit
            row[j] = row[j] * factor if drawn >= least else real(0)


@kernel
def score_gradients(weights: Array, change: Array, m: int, n: int, seen: int) -> None:
    """`change`, the gradient of the weights, becomes that of the scores:

        weights * (change - sum(weights * change))

    and 0 where row i sees nothing: from column seen + i on.
    """
    real = weights.dtype.type
    for i in range(m):
        row, g, visible, inner = weights[i], change[i], max(min(n, seen + i), 0), real(0)
        for j in range(visible):
            inner += row[j] * g[j]
        for j in range(visible):
            g[j] = row[j] * (g[j] - inner)
        for j in range(visible, n):
            g[j] = real(0)
