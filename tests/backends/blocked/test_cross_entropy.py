from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.nn import functional as F


def loss_and_gradient(backend, logits, labels):
    x = tinytorch.tensor(logits, requires_grad=True)
    with tinytorch.using_backend(backend):
        loss = F.cross_entropy(x, tinytorch.tensor(labels)) * 3.0
        loss.backward()
    return loss.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_its_parts(dtype, rng):
    logits = (rng.standard_normal((9, 5)) * 30).astype(dtype)
    logits[3] = [1_000, -1_000, 90, 0, 1_000]
    labels = rng.integers(0, 5, 9)
    fused, parts = (loss_and_gradient(name, logits, labels) for name in ("blocked", "numpy"))
    for ours, theirs in zip(fused, parts, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_nan_stays_and_no_rows_have_no_mean():
    blocked = tinytorch.backends.find_backend("blocked")
    x, labels = np.array([[0.0, np.nan], [1.0, 2.0]]), np.array([0, 1])
    assert np.isnan(blocked.cross_entropy(x, labels))
    gradient = blocked.cross_entropy_backward(np.ones(()), x, labels)
    assert np.isnan(gradient[0]).all() and np.isfinite(gradient[1]).all()
    assert np.isnan(blocked.cross_entropy(x[:0], labels[:0]))
