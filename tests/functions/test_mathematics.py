"""Functions made of several elementwise ops, where their formulas have branches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_gradients_where_a_formula_has_a_branch(backend: str) -> None:
    """asinh had none at 0, and xlogy none where a is 0: both are made of a `where`."""
    with tinytorch.using_backend(backend):
        for name, values in {
            "asinh": [[0.0, -0.0, 1e-8, -1e-8, 3.0, -3.0, 1e9]],
            "xlogy": [[0.0, 0.0, 2.0], [2.0, 0.5, 3.0]],
        }.items():
            ours = [tinytorch.tensor(v, requires_grad=True) for v in values]
            theirs = [torch.tensor(v, requires_grad=True) for v in values]
            for library, given in ((tinytorch, ours), (torch, theirs)):
                getattr(library, name)(*given).sum().backward()
            for a, b in zip(ours, theirs, strict=True):
                assert a.grad is not None and b.grad is not None
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6)
        minus = tinytorch.tensor([-1e6, -3.0, 0.5])
        assert tinytorch.isnan(tinytorch.acosh(minus)).all()  # the first was -inf
