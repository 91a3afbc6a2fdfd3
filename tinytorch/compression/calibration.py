"""Calibration: the range of values that the codes are to cover.

A range that holds every value wastes codes on outliers; a narrower one clips them. Three ways to
choose it, for each row of values that shares a scale:

    range        from the smallest value to the largest
    percentile   so much of the values, by magnitude for symmetric codes
    error        the range, of those between SHARES and 1 times the first, whose codes give the
                 values back with the least mean squared error

Source: H. Wu et al., "Integer quantization for deep learning inference: principles and empirical
evaluation", 2020, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.shapes_quantized import LEAST

METHODS = ("range", "percentile", "error")
SHARES = np.linspace(0.5, 1.0, 26)[::-1]


@dataclass(frozen=True)
class Calibration:
    """A way to choose the range of a scale.

    Args:
        method: "range", "percentile" or "error".
        percentile: of the values inside the range, for the second.

    Raises:
        ValueError: there is no such method, or the percentile is not above 50 and at most 100.
    """

    method: str = "range"
    percentile: float = 99.9

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"calibration {self.method!r} is none of {', '.join(METHODS)}")
        if not 50 < self.percentile <= 100:
            raise ValueError(f"percentile {self.percentile} must be above 50 and at most 100")

    def bounds(self, rows: Array, bits: int, symmetric: bool) -> tuple[Array, Array]:
        """The lowest and the highest value that each row's codes cover; zero is between them.

        Args:
            rows: (n, m), finite.
            bits, symmetric: of the codes, for the error.

        Returns:
            Two arrays (n,) in float32; of symmetric codes the second is minus the first.

        Raises:
            ValueError: there are no values, or some are NaN or infinite.
        """
        check_finite(rows)
        low, high = self._widest(rows, symmetric)
        if self.method == "error":
            low, high = _least_error(rows, low, high, bits, symmetric)
        return low.astype(np.float32), high.astype(np.float32)

    def _widest(self, rows: Array, symmetric: bool) -> tuple[Array, Array]:
        share = self.percentile if self.method == "percentile" else 100.0
        if symmetric:
            most = np.abs(rows)
            high = most.max(1) if share == 100 else np.percentile(most, share, axis=1)
            high = np.maximum(high, LEAST)
            return -high, high
        if share == 100:
            low, high = rows.min(1), rows.max(1)
        else:
            low, high = np.percentile(rows, [100 - share, share], axis=1)
        return np.minimum(low, 0), np.maximum(np.maximum(high, 0), np.minimum(low, 0) + LEAST)


def check_finite(values: Array) -> None:
    """Raise ValueError where there are no values, or where one is NaN or infinite."""
    if not values.size:
        raise ValueError(f"there are no values to calibrate with: shape {values.shape}")
    wrong = ~np.isfinite(values)
    if wrong.any():
        place = tuple(map(int, np.argwhere(wrong)[0]))
        raise ValueError(
            f"{int(wrong.sum())} of {values.size} values are NaN or infinite, the first is "
            f"{values[place]} at {list(place)}: no scale can cover them"
        )


def _least_error(
    rows: Array, low: Array, high: Array, bits: int, symmetric: bool
) -> tuple[Array, Array]:
    """The bounds times the share with the least mean squared error, row by row."""
    steps = 2**bits - 2 if symmetric else 2**bits - 1
    best = np.full(len(rows), np.inf)
    chosen = np.ones(len(rows))
    for share in SHARES:
        a, b = (low * share)[:, None], (high * share)[:, None]
        scale = (b - a) / steps
        codes = np.clip(np.rint(rows / scale), np.rint(a / scale), np.rint(a / scale) + steps)
        error = np.square(codes * scale - rows).mean(1)
        better = error < best
        best, chosen = np.where(better, error, best), np.where(better, share, chosen)
    return low * chosen, high * chosen
