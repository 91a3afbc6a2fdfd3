"""Is it still right? An output against the exact result, element by element.

A norm over the whole output would let small elements be anything. So each element has its own
bound, from the sizes of the numbers that were added up for it.

    exact, bound = product_reference(a, b)
    wrong = difference([a @ b], [(exact, bound)])        # None, or what is wrong, and where

Source: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 2002, section 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BOUND_FACTOR = 2.0


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


def rounding_bound(terms: int, sizes: Array, dtype: Any = np.float32) -> Array:
    """How far a sum of products may be off in this dtype: 2 sqrt(terms) eps sizes.

    Each of the `terms` additions rounds, by eps / 2 of its result at most. About half of them round
    up and half down, so the errors add up like the steps of a random walk, with the square root of
    their number.

    >>> float(rounding_bound(4, np.array(8.0))) == 2 * 2 * 2**-23 * 8
    True

    Args:
        terms: how many products are added up for an element.
        sizes: for each element the sum of the absolute values of its products.
        dtype: in which the sum is taken; eps is the distance from 1 to its next number.

    Source: N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM
    Journal on Scientific Computing 41(5), 2019.
    """
    bound: Array = BOUND_FACTOR * np.sqrt(terms) * np.finfo(dtype).eps * sizes
    return bound


def product_reference(a: Array, b: Array) -> tuple[Array, Array]:
    """a @ b in float64, and how far each element may be off if it is computed in a's dtype.

    The bound is `rounding_bound` of k terms whose sizes are abs(a) @ abs(b). Where all of a and b
    are whole numbers and the size is at most 1 / eps, nothing is rounded, and the bound is 0.

    Args:
        a: (m, k).
        b: (k, n).

    Returns:
        Two float64 arrays (m, n): the exact product, and the bound.
    """
    left, right = a.astype(np.float64), b.astype(np.float64)
    sizes = np.abs(left) @ np.abs(right)
    bound = rounding_bound(a.shape[1], sizes, a.dtype)
    if np.array_equal(left, np.rint(left)) and np.array_equal(right, np.rint(right)):
        bound[sizes <= 1 / np.finfo(a.dtype).eps] = 0
    return left @ right, bound


def furthest_off(output: Array, exact: Array, bound: Array) -> tuple[int, ...] | None:
    """The index of the element that is furthest beyond its bound; None if all are within.

    NaN and infinity are within nothing. How far beyond is abs(output - exact) - bound.

    >>> furthest_off(np.array([1.0, 2.5]), np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    (1,)

    Raises:
        ValueError: the shapes of output and exact differ.
    """
    if output.shape != exact.shape:
        raise ValueError(f"the output has the shape {output.shape}, the reference {exact.shape}")
    error = np.abs(output.astype(np.float64) - exact)
    beyond = np.where(np.isfinite(error), error - bound, np.inf)
    if not beyond.size or beyond.max() <= 0:
        return None
    return tuple(map(int, np.unravel_index(beyond.argmax(), beyond.shape)))


def difference(
    found: Sequence[Array], expected: Sequence[tuple[Array, Array]]
) -> Difference | None:
    """The worst element of the first output that is wrong; None if there is none.

    Args:
        found: outputs.
        expected: for each the reference in float64, and the bound of each element.
    """
    for i, (output, (reference, bound)) in enumerate(zip(found, expected, strict=True)):
        at = furthest_off(output, reference, bound)
        if at is not None:
            limit = float(np.broadcast_to(bound, reference.shape)[at])
            return Difference(i, at, float(output[at]), float(reference[at]), limit)
    return None
