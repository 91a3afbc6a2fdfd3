"""Small made-up problems in the plane that no straight line solves."""

from __future__ import annotations

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.dataset import TensorDataset
from tinytorch.data.seeding import Randomness, as_generator
from tinytorch.dtypes import Array


def two_moons(
    samples: int = 200, *, noise: float = 0.1, generator: Randomness = None
) -> TensorDataset:
    """Two interleaved half circles: (cos t, sin t) and (1 - cos t, 1/2 - sin t), t in [0, pi].

    Args:
        samples: points in all; class 0 has one more if it is odd.
        noise: standard deviation of the Gaussian noise on both coordinates.
        generator: a generator or a seed; None means the default generator.

    Returns:
        Points (samples, 2) float32 and classes (samples,) int64, in random order.

    >>> points, classes = two_moons(5, generator=0).tensors
    >>> points.shape, sorted(classes.tolist())
    ((5, 2), [0, 0, 0, 1, 1])
    """
    rng = as_generator(generator)
    classes = _classes(samples, 2, rng)
    t = rng.uniform(0, np.pi, samples)
    upper = np.stack([np.cos(t), np.sin(t)], axis=1)
    lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1)
    return _noisy(np.where(classes[:, None] == 0, upper, lower), classes, noise, rng)


def spirals(
    samples: int = 300,
    *,
    classes: int = 3,
    turns: float = 0.75,
    noise: float = 0.02,
    generator: Randomness = None,
) -> TensorDataset:
    """Arms of a spiral: radius r in [0, 1] at angle 2 pi (turns r + class / classes).

    Args:
        samples: points in all, shared out evenly.
        classes: number of arms.
        turns: how often an arm goes round.
        noise: standard deviation of the Gaussian noise on both coordinates.
        generator: a generator or a seed; None means the default generator.

    Returns:
        Points (samples, 2) float32 and classes (samples,) int64, in random order.

    >>> points, arms = spirals(6, generator=0).tensors
    >>> points.shape, sorted(arms.tolist())
    ((6, 2), [0, 0, 1, 1, 2, 2])
    """
    rng = as_generator(generator)
    arms = _classes(samples, classes, rng)
    radius = rng.uniform(0, 1, samples)
    angle = 2 * np.pi * (turns * radius + arms / classes)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _noisy(points, arms, noise, rng)


def _classes(samples: int, classes: int, rng: np.random.Generator) -> Array:
    if samples < 1 or classes < 1:
        raise ValueError(f"there must be at least one sample and class, got {samples}, {classes}")
    return rng.permutation(np.arange(samples, dtype=np.int64) % classes)


def _noisy(points: Array, classes: Array, noise: float, rng: np.random.Generator) -> TensorDataset:
    points = points + rng.normal(0, noise, points.shape)
    return TensorDataset(from_numpy(points.astype(np.float32)), from_numpy(classes))
