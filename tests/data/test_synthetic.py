from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.data.datasets import spirals, two_moons


def test_two_moons_lie_on_their_half_circles() -> None:
    points, classes = (t.numpy() for t in two_moons(400, noise=0, generator=1).tensors)
    upper, lower = points[classes == 0], points[classes == 1]
    assert len(upper) == len(lower) == 200
    np.testing.assert_allclose(np.linalg.norm(upper, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(lower - [1, 0.5], axis=1), 1, atol=1e-6)
    assert upper[:, 1].min() >= -1e-6 and lower[:, 1].max() <= 0.5 + 1e-6


def test_spiral_arms_lie_where_the_formula_says() -> None:
    data = spirals(500, classes=5, turns=1.5, noise=0, generator=1)
    points, arms = (t.numpy() for t in data.tensors)
    assert np.bincount(arms).tolist() == [100] * 5
    radius = np.linalg.norm(points, axis=1)
    assert radius.max() <= 1 + 1e-6
    angle = 2 * np.pi * (1.5 * radius + arms / 5)
    np.testing.assert_allclose(points[:, 0], radius * np.cos(angle), atol=1e-4)
    np.testing.assert_allclose(points[:, 1], radius * np.sin(angle), atol=1e-4)


@pytest.mark.parametrize("make", [two_moons, spirals])
def test_seed_order_noise_and_dtypes(make: object) -> None:
    assert callable(make)
    points, classes = make(300, noise=0.3, generator=4).tensors
    assert (points.dtype, classes.dtype) == (tinytorch.float32, tinytorch.int64)
    again = make(300, noise=0.3, generator=np.random.default_rng(4)).tensors
    np.testing.assert_array_equal(points.numpy(), again[0].numpy())
    clean, same_classes = make(300, noise=0, generator=4).tensors
    assert same_classes.tolist() == classes.tolist() != sorted(classes.tolist())
    assert 0.25 < (points.numpy() - clean.numpy()).std() < 0.35
    with pytest.raises(ValueError, match="at least one sample and class, got 0"):
        make(0)
