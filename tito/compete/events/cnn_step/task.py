"""LeNet's training step: the entry's kernels under it, NumPy's for what it does not have.

Right is what gives the loss and the gradient of every weight. The network is that of Y. LeCun and
others, "Gradient-based learning applied to document recognition", 1998, with ReLU and max pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tinytorch
from tinytorch.creation import from_numpy
from tinytorch.nn import functional as F
from tito.compete.event import Array, Problem
from tito.compete.steps import Torch, run_step, step_reference

__all__ = ["Torch", "call", "make", "reference"]

CLASSES, SIDE = 10, 28
SHAPES = [
    (6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,),
    (120, 400), (120,), (84, 120), (84,), (CLASSES, 84), (CLASSES,),
]  # fmt: skip
FORWARD_FLOPS = 2.0 * (6 * 25 * 28 * 28 + 16 * 150 * 100 + 400 * 120 + 120 * 84 + 84 * 10)
TOLERANCE = 3e-4  # of the largest gradient of a tensor
MARGIN = 1e-5  # by which sums of some hundred float32 terms near 1 never differ


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Images, labels, and weights as after a few steps.

    Where ReLU or a maximum turns, the last bit of a sum decides which weights have a gradient, and
    two right answers are far apart. Images for which that happens are drawn again.
    """
    n = int(draw.integers(*case["batch"], endpoint=True))
    images = draw.standard_normal((n, 1, SIDE, SIDE)).astype(np.float32)
    labels = draw.integers(0, CLASSES, n)
    weights = [_weight(draw, shape) for shape in SHAPES]
    while (turning := near_a_turn(images, weights)).any():
        again = draw.standard_normal((int(turning.sum()), 1, SIDE, SIDE))
        images[turning] = again.astype(np.float32)
    outputs: list[tuple[tuple[int, ...], Any]] = [((), "f4"), *((s, "f4") for s in SHAPES)]
    return Problem([images, labels, *weights], outputs, flops=2.5 * n * FORWARD_FLOPS)


def _weight(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    inputs = int(np.prod(shape[1:])) or 1
    return (draw.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)


def near_a_turn(images: Array, weights: Sequence[Array]) -> NDArray[np.bool_]:
    """Whether an image has a sum within MARGIN of where ReLU or a maximum turns. Shape: (n,)."""
    c1, b1, c2, b2, *linear = (from_numpy(w.astype(np.float64)) for w in weights)
    near = np.zeros(len(images), bool)
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        x = from_numpy(images.astype(np.float64))
        for weight, bias, padding in ((c1, b1, 2), (c2, b2, 0)):
            x = F.conv2d(x, weight, bias, padding=padding)
            n, channels, height, width = x.shape
            windows = x.numpy().reshape(n, channels, height // 2, 2, width // 2, 2)
            four = np.sort(np.moveaxis(windows, 3, 4).reshape(n, -1, 4))
            second, largest = np.maximum(four[..., 2], 0), four[..., 3]
            near |= ((np.abs(largest) < MARGIN) | (np.abs(largest - second) < MARGIN)).any(1)
            x = F.max_pool2d(x.relu(), 2)
        x = x.flatten(1)
        for weight, bias in zip(linear[:-2:2], linear[1:-2:2], strict=True):
            x = F.linear(x, weight, bias)
            near |= (np.abs(x.numpy()) < MARGIN).any(1)
            x = x.relu()
    return near


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
