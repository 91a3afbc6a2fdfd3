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

        torch.set_num_threads(1)
        product: Array = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
        return product


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Sizes from the case's ranges; numbers of different sizes in each row and column."""
    m, k, n = (int(draw.integers(low, high + 1)) for low, high in case["sizes"])
    a, b = _values(draw, m, k), _values(draw, n, k).T
    if draw.random() < INTEGERS:
        a, b = np.rint(a).clip(-LARGEST_INTEGER, LARGEST_INTEGER), np.rint(b.clip(-8, 8))
    turned = case.get("transposed", [False, False])
    inputs = [_laid_out(x, t) for x, t in zip((a, b), turned, strict=True)]
    return Problem(inputs, [((m, n), "f4")], flops=2.0 * m * k * n)


def _values(draw: np.random.Generator, rows: int, columns: int) -> Array:
    scales = 10 ** draw.uniform(-2, 2, (rows, 1))
    return (draw.standard_normal((rows, columns)) * scales).astype(np.float32)


def _laid_out(matrix: Array, transposed: bool) -> Array:
    if transposed:
        return np.ascontiguousarray(matrix.T).T
    return np.ascontiguousarray(matrix)


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """The entry's product."""
    return [entry.matmul(*inputs)]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64, and what k sums in float32 may be off; whole numbers have to come out exactly."""
    from tinytorch.bench.accuracy import product_reference  # only the parent needs it

    a, b = inputs
    return [product_reference(a, b)]
