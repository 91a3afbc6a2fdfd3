"""LeNet's training step: the entry's kernels under it, NumPy's for what it does not have.

Right is what gives the loss and the gradient of every weight. The network is that of Y. LeCun and
others, "Gradient-based learning applied to document recognition", 1998, with ReLU and max pooling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    near = np.zeros(len(images), bool)
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        exact = [from_numpy(a.astype(np.float64)) for a in (images, *weights)]
        *hidden, _ = (x.numpy() for x in _sums(F, exact[0], exact[1:]))
    for sums in hidden:
        if sums.ndim == 4:
            n, channels, height, width = sums.shape
            windows = sums.reshape(n, channels, height // 2, 2, width // 2, 2)
            four = np.sort(np.moveaxis(windows, 3, 4).reshape(n, -1, 4))
            second, largest = np.maximum(four[..., 2], 0), four[..., 3]
            near |= ((np.abs(largest) < MARGIN) | (np.abs(largest - second) < MARGIN)).any(1)
        else:
            near |= (np.abs(sums) < MARGIN).any(1)
    return near


def _sums(functional: Any, x: Any, weights: Sequence[Any]) -> Iterator[Any]:
    """What each layer adds up, before ReLU and pooling; the logits are last.

    Written once for TinyTorch and PyTorch, which have the same names.
    """
    c1, b1, c2, b2, *linear = weights
    for weight, bias, padding in ((c1, b1, 2), (c2, b2, 0)):
        sums = functional.conv2d(x, weight, bias, padding=padding)
        yield sums
        x = functional.max_pool2d(sums.relu(), 2)
    x = functional.linear(x.flatten(1), *linear[:2])
    yield x
    for weight, bias in zip(linear[2::2], linear[3::2], strict=True):
        x = functional.linear(x.relu(), weight, bias)
        yield x


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """Loss and gradients, computed on the entry's kernels."""
    return run_step(_step, entry, inputs)


def _step(from_array: Any, functional: Any, inputs: Sequence[Array]) -> list[Array]:
    images, labels, *given = (from_array(np.array(a)) for a in inputs)
    weights = [w.requires_grad_() for w in given]
    *_, logits = _sums(functional, images, weights)
    loss = functional.cross_entropy(logits, labels)
    loss.backward()
    return [loss.detach().numpy(), *(w.grad.numpy() for w in weights)]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64 on the NumPy backend; a share of the largest of each tensor may be off."""
    return step_reference(_step, inputs, TOLERANCE)
