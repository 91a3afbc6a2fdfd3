"""y = x w + b through a sigmoid, times itself and a mask: five operations that want to be one loop.

t = x * w + b;   y = mask * t / (1 + exp(-t))         x, mask (rows, columns), w, b (columns)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tinytorch
from tinytorch.backends import ComputeBackend
from tinytorch.creation import from_numpy
from tito.compete.event import Array, Problem
from tito.compete.steps import running_on

EPS = float(np.finfo(np.float32).eps)
SLOPE = 1.1  # the largest of t * sigmoid(t)
ROUNDINGS = 8.0  # in units of eps, of exp, the quotient and two products


class Torch:
    """PyTorch in an entry's place."""

    def masked_silu(self, x: Array, w: Array, b: Array, mask: Array) -> Array:
        import torch

        x_, w_, b_, mask_ = map(torch.from_numpy, (x, w, b, mask))
        found: Array = (mask_ * torch.nn.functional.silu(torch.addcmul(b_, x_, w_))).numpy()
        return found


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Sizes from the case's ranges; values on both sides of where exp saturates."""
    rows, columns = (int(draw.integers(*case[k], endpoint=True)) for k in ("rows", "columns"))
    scales = 10 ** draw.uniform(-3, 1.5, (rows, 1))
    x = (draw.standard_normal((rows, columns)) * scales).astype(np.float32)
    w, b = draw.standard_normal((2, columns)).astype(np.float32)
    mask = (draw.random((rows, columns)) < 0.8).astype(np.float32)
    # one multiplication, one addition, one quotient and one exponential an element at the least
    return Problem([x, w, b, mask], [((rows, columns), "f4")], flops=6.0 * rows * columns)


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """The entry's `masked_silu`; of a backend, its operations one by one."""
    if not isinstance(entry, ComputeBackend):
        return [entry.masked_silu(*inputs)]
    with running_on(entry), tinytorch.no_grad():
        x, w, b, mask = map(from_numpy, inputs)
        t = x * w + b
        return [(mask * t * t.sigmoid()).numpy()]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64; what t may be off goes into y with the slope, the rest is relative."""
    x, w, b, mask = (a.astype(np.float64) for a in inputs)
    t = x * w + b
    with np.errstate(over="ignore"):
        y = mask * t / (1 + np.exp(-t))
    off_in_t = 2 * EPS * (np.abs(x * w) + np.abs(b))
    smallest = float(np.finfo(np.float32).tiny)
    return [(y, SLOPE * off_in_t + ROUNDINGS * EPS * np.abs(y) * (1 + np.abs(t) / 8) + smallest)]
