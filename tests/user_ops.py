"""Ops as a user adds them, for tests of what works without any other line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinytorch import dtype_rules, ops, shapes
from tinytorch.backends.reference import _FUNCTIONS as KERNELS
from tinytorch.decompositions import decomposition
from tinytorch.dispatch import apply
from tinytorch.gradients import gradient
from tinytorch.op import OPS, Op
from tinytorch.ops import _row, elementwise
from tinytorch.tensor import Tensor
from tinytorch.testing.source import SAMPLERS, TWINS, Sample, Source, samples

SLOPE = 0.1


@contextmanager
def rolled() -> Iterator[Op]:
    """A primitive that is not elementwise: its lines in the four files that an op has."""
    op = _row("rolled", "a", "movement", shapes.same, dtype_rules.any_type)  # ops.py
    gradient("rolled", a=lambda g, shift, dim: apply(op, g, shift=-shift, dim=dim))  # gradients.py
    KERNELS["rolled"] = lambda a, *, shift, dim: np.roll(a, shift, dim)  # backends/reference.py

    @samples("rolled", torch=lambda torch, a, shift, dim: torch.roll(a, shift, dim))
    def _rolled(s: Source) -> Sample:  # testing/op_samples.py
        shape = s.shape(1)
        params = {"shift": s.integer(-3, 3), "dim": s.integer(0, len(shape) - 1)}
        return Sample((s.array(shape),), params)

    with _removed("rolled"):
        yield op


@contextmanager
def reversed_view() -> Iterator[Op]:
    """The same for a view."""
    op = _row("reversed_view", "a", "movement", shapes.same, dtype_rules.any_type, view=True)
    gradient("reversed_view", a=lambda g, dim: apply(op, g, dim=dim))
    KERNELS["reversed_view"] = lambda a, *, dim: np.flip(a, dim)

    @samples("reversed_view", torch=lambda torch, a, dim: a.flip(dim))
    def _reversed(s: Source) -> Sample:
        shape = s.shape(1)
        return Sample((s.array(shape),), {"dim": s.integer(0, len(shape) - 1)})

    with _removed("reversed_view"):
        yield op


@contextmanager
def tripled() -> Iterator[Op]:
    """An op made of others: its lines in the three files that such an op has."""
    op = _row("tripled", "a", "fused", shapes.same, dtype_rules.only_floating)  # ops.py

    @decomposition  # decompositions.py
    def tripled(a: Tensor) -> Tensor:
        return apply(ops.mul, a, 3.0)

    @samples("tripled", torch=lambda torch, a: a * 3)  # testing/op_samples.py
    def _tripled(s: Source) -> Sample:
        return Sample((s.array(s.shape()),), {})

    with _removed("tripled"):
        yield op


@contextmanager
def _removed(name: str) -> Iterator[None]:
    """An op is in the tables until the block ends."""
    try:
        yield
    finally:
        for table in (OPS, KERNELS, SAMPLERS, TWINS):
            table.pop(name, None)  # type: ignore[attr-defined]


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
