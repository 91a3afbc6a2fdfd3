"""Sums of one row: what normalization, softmax and reductions are made of."""

from __future__ import annotations

from typing import Any

from tinytorch.jit.library import kernel


@kernel(force_inline=True)
def total(row: Any) -> Any:
    """The sum, in the row's own type."""
    result = row.dtype.type(0)
    for j in range(row.size):
        result += row[j]
    return result


@kernel(force_inline=True)
def squares(row: Any, mean: Any) -> Any:
    """The sum of squared differences from the mean."""
    result = row.dtype.type(0)
    for j in range(row.size):
        difference = row[j] - mean
        result += difference * difference
    return result
