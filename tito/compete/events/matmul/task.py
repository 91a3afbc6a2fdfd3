"""c = a @ b in float32: a (m, k), b (k, n)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tito.compete.event import Array, Problem

INTEGERS = 0.2  # share of calls whose exact result float32 holds
LARGEST_INTEGER = 8


class Torch:
    """PyTorch in an entry's place."""

    def matmul(self, a: Array, b: Array) -> Array:
        import torch

        product: Array = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
        return product


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Sizes from the case's ranges; numbers of different sizes in each row and column."""
    m, k, n = (int(draw.integers(low, high + 1)) for low, high in case["sizes"])
    turned = case.get("transposed", [False, False])
    rows, columns = _scales(draw, m)[:, None], _scales(draw, n)
    inputs = [_values(draw, (m, k), rows, turned[0]), _values(draw, (k, n), columns, turned[1])]
    if draw.random() < INTEGERS:
        inputs = [np.rint(x).clip(-LARGEST_INTEGER, LARGEST_INTEGER) for x in inputs]
    return Problem(inputs, [((m, n), "f4")], flops=2.0 * m * k * n)


def _scales(draw: np.random.Generator, count: int) -> Array:
    return (10 ** draw.uniform(-2, 2, count)).astype(np.float32)


def _values(
    draw: np.random.Generator, shape: tuple[int, int], scales: Array, transposed: bool
) -> Array:
    """Drawn in the order in which they lie in memory: turning them round would take longer."""
    if transposed:
        return draw.standard_normal(shape[::-1], np.float32).T * scales
    return draw.standard_normal(shape, np.float32) * scales


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """The entry's product."""
    return [entry.matmul(*inputs)]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64, and what k sums in float32 may be off; whole numbers have to come out exactly."""
    from tinytorch.bench.accuracy import product_reference  # only the parent needs it

    a, b = inputs
    return [product_reference(a, b)]
