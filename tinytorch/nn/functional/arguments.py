"""Reading of arguments that may be one number or one for each spatial dimension."""

from __future__ import annotations

import operator
from collections.abc import Sequence

Pair = tuple[int, int]
Size = int | Sequence[int]


def pair(value: Size, what: str) -> Pair:
    """(height, width) from a pair, or from one number for both.

    Raises:
        ValueError: it has another length.
        TypeError: it is not made of whole numbers.

    >>> pair(3, "kernel_size")
    (3, 3)
    """
    if not isinstance(value, Sequence):
        return (operator.index(value),) * 2
    if len(value) != 2:
        raise ValueError(f"{what} must be one number or two, not {value}")
    return operator.index(value[0]), operator.index(value[1])


def single(value: Size, what: str) -> int:
    """The number itself, or the only one of a sequence; raises as `pair`."""
    if not isinstance(value, Sequence):
        return operator.index(value)
    if len(value) != 1:
        raise ValueError(f"{what} must be one number, not {value}")
    return operator.index(value[0])
