"""Elementwise ops as a user adds them, for tests of what goes by the scalar definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tinytorch.op import OPS, Op
from tinytorch.ops import elementwise

SLOPE = 0.1


@contextmanager
def registered(definition: Callable[..., Any], dtypes: Any) -> Iterator[Op]:
    """The definition is an op of the table in this block."""
    op = elementwise(dtypes)(definition)
    try:
        yield op
    finally:
        del OPS[op.name]


def softsign(a):  # type: ignore[no-untyped-def]
    return a / (1 + abs(a))


def leaky(a):  # type: ignore[no-untyped-def]
    return max(a, SLOPE * a)


def triangle(a):  # type: ignore[no-untyped-def]
    if a < -1 or a > 1:
        return 0
    height = 1 - abs(a)
    if a > 0.5:
        height *= 2
    return height


def quadrant(a, b):  # type: ignore[no-untyped-def]
    """1 to 4; 0 on an axis."""
    if not (a and b):
        return 0
    return (1 if b > 0 else 4) if a > 0 else (2 if b > 0 else 3)


def _squared(x):  # type: ignore[no-untyped-def]
    return x**2


def bump(a, b):  # type: ignore[no-untyped-def]
    inside = 0 <= a < math.pi and isinstance(b, float)
    return math.exp(-_squared(b)) * math.sin(a) if inside else math.copysign(1.0, b)


DEFINITIONS = (softsign, leaky, triangle, quadrant, bump)
