"""LeNet's training step: the entry's kernels under it, NumPy's for what it does not have.

Right is what gives the loss and the gradient of every weight. The network is that of Y. LeCun and
others, "Gradient-based learning applied to document recognition", 1998, with ReLU and max pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tito.compete.event import Array, Problem
from tito.compete.steps import Torch, run_step, step_reference

__all__ = ["Torch", "call", "make", "reference"]

CLASSES, SIDE = 10, 28
SHAPES = [
    (6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,),
    (120, 400), (120,), (84, 120), (84,), (CLASSES, 84), (CLASSES,),
]  # fmt: skip
FORWARD_FLOPS = 2.0 * (6 * 25 * 28 * 28 + 16 * 150 * 100 + 400 * 120 + 120 * 84 + 84 * 10)
TOLERANCE = 3e-4  # of the largest gradient of a tensor: where ReLU and maxima turn, signs decide


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Images, labels, and weights as after a few steps."""
    n = int(draw.integers(*case["batch"], endpoint=True))
    images = draw.standard_normal((n, 1, SIDE, SIDE)).astype(np.float32)
    labels = draw.integers(0, CLASSES, n)
    weights = [_weight(draw, shape) for shape in SHAPES]
    outputs: list[tuple[tuple[int, ...], Any]] = [((), "f4"), *((s, "f4") for s in SHAPES)]
    return Problem([images, labels, *weights], outputs, flops=2.5 * n * FORWARD_FLOPS)


def _weight(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    inputs = int(np.prod(shape[1:])) or 1
    return (draw.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """Loss and gradients, computed on the entry's kernels."""
    return run_step(_step, entry, inputs)


def _step(from_array: Any, functional: Any, inputs: Sequence[Array]) -> list[Array]:
    """Written once for TinyTorch and PyTorch, which have the same names."""
    images, labels, *given = (from_array(np.array(a)) for a in inputs)
    weights = [w.requires_grad_() for w in given]
    c1, b1, c2, b2, *linear = weights
    x = functional.max_pool2d(functional.conv2d(images, c1, b1, padding=2).relu(), 2)
    x = functional.max_pool2d(functional.conv2d(x, c2, b2).relu(), 2).flatten(1)
    for i in range(0, len(linear), 2):
        x = functional.linear(x, linear[i], linear[i + 1])
        if i + 2 < len(linear):
            x = x.relu()
    loss = functional.cross_entropy(x, labels)
    loss.backward()
    return [loss.detach().numpy(), *(w.grad.numpy() for w in weights)]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64 on the NumPy backend; a share of the largest of each tensor may be off."""
    return step_reference(_step, inputs, TOLERANCE)
