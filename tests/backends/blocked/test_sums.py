from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.backends.blocked import sums


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (0, 3, 2), (2, 3, 0, 1)])
def test_sums_over_all_but_the_channels(shape, keepdim, rng):
    x = rng.standard_normal(shape)
    dims = tuple(d for d in range(x.ndim) if d != 1)
    out = sums.channel_sums(x, dims=dims, keepdim=keepdim)
    np.testing.assert_allclose(out, x.sum(dims, keepdims=keepdim), atol=1e-13)
    assert out.shape == x.sum(dims, keepdims=keepdim).shape


def test_which_sums_the_backend_takes(rng):
    x = tinytorch.tensor(rng.standard_normal((4, 3, 5, 2)).astype(np.float32)).transpose(2, 3)
    for dims in ((0, 2, 3), (1, 2, 3), (0,), (0, 1, 2, 3)):
        with tinytorch.using_backend("blocked"):
            ours = x.sum(dims)
        with tinytorch.using_backend("numpy"):
            np.testing.assert_allclose(ours.numpy(), x.sum(dims).numpy(), rtol=1e-5, atol=1e-5)
