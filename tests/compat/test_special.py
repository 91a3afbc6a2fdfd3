from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.compat import special

X = np.array([-3.0, -0.5, 0.0, 0.25, 0.75, 2.0, np.inf, np.nan])


@pytest.mark.parametrize("name", sorted(set(special.__all__) - {"softmax", "log_softmax"}))
def test_as_in_pytorch(name):
    more = {"xlogy": (0.5,), "logsumexp": (0,)}.get(name, ())
    ours = getattr(tinytorch.special, name)(tinytorch.tensor(X), *more)
    theirs = getattr(torch.special, name)(
        torch.tensor(X), *(torch.tensor(m) if isinstance(m, float) else m for m in more)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["entr", "ndtr", "expit"])
def test_gradients_as_in_pytorch(name):
    values = np.array([-1.5, 0.25, 0.75, 2.0])
    ours = tinytorch.tensor(values, requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    getattr(special, name)(ours)[1:].sum().backward()
    getattr(torch.special, name)(theirs)[1:].sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


def test_what_is_missing_says_what_to_write():
    with pytest.raises(AttributeError, match=r"scipy\.special"):
        _ = tinytorch.special.bessel_j0
