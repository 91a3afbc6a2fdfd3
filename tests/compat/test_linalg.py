from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.compat import linalg

INF = float("inf")


@pytest.mark.parametrize(
    "use",
    [
        lambda la, x: la.norm(x),
        lambda la, x: la.norm(x, dim=1),
        lambda la, x: la.norm(x, ord=1, dim=0, keepdim=True),
        lambda la, x: la.norm(x, "fro"),
        lambda la, x: la.norm(x, INF),
        lambda la, x: la.norm(x, -1),
        lambda la, x: la.norm(x[0], INF),
        lambda la, x: la.vector_norm(x, -INF, dim=(0, 1)),
        lambda la, x: la.vector_norm(x, 0),
        lambda la, x: la.vector_norm(x, 3, dim=1),
        lambda la, x: la.matrix_norm(x, 1, keepdim=True),
        lambda la, x: la.multi_dot([x, x.T, x]),
        lambda la, x: la.vecdot(x, 2 * x),
        lambda la, x: la.cross(x[:, :3], x[:, 1:]),
        lambda la, x: la.cross(x, x.flip(0), dim=0),
        lambda la, x: la.matrix_power(x @ x.T, 3),
        lambda la, x: la.matrix_power(x @ x.T, 0),
    ],
)
def test_linalg_as_in_pytorch(use, rng):
    array = rng.standard_normal((3, 4))
    ours, theirs = use(linalg, tinytorch.tensor(array)), use(torch.linalg, torch.tensor(array))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    assert ours.shape == tuple(theirs.shape)


def test_what_needs_lapack_says_what_to_write():
    x = tinytorch.eye(2)
    with pytest.raises(NotImplementedError, match=r"numpy\.linalg\.norm"):
        linalg.norm(x, "nuc")
    with pytest.raises(AttributeError, match=r"numpy\.linalg"):
        linalg.svd(x)
    with pytest.raises(ValueError, match="not be negative"):
        linalg.matrix_power(x, -1)
