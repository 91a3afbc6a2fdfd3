"""An output against the reference, element by element.

A norm over the whole output would let small elements be anything. So each element has its own
bound, which the event computes: for a sum of K products c sqrt(K) eps (|A| |B|).

Source: N. J. Higham, "Accuracy and stability of numerical algorithms", 2nd ed., section 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """The element that is furthest outside of its bound."""

    output: int
    index: tuple[int, ...]
    found: float
    expected: float
    bound: float

    def __str__(self) -> str:
        return (
            f"output {self.output} at {list(self.index)} is {self.found:.9g}, the reference is "
            f"{self.expected:.9g}, and at most {self.bound:.3g} off is right"
        )


def difference(found: list[Array], expected: list[tuple[Array, Array]]) -> Difference | None:
    """The worst element outside of its bound; None if there is none.

    Args:
        found: outputs.
        expected: for each the reference in float64, and the bound of each element.
    """
    for i, (output, (reference, bound)) in enumerate(zip(found, expected, strict=True)):
        values = output.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(values - reference)
        beyond = np.where(np.isfinite(error), error - bound, np.inf)  # NaN is not within anything
        if beyond.size and beyond.max() > 0:
            index = np.unravel_index(int(beyond.argmax()), beyond.shape)
            at = tuple(map(int, index))
            limit = float(np.broadcast_to(bound, reference.shape)[at])
            return Difference(i, at, float(values[at]), float(reference[at]), limit)
    return None
