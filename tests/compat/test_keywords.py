from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn

OLD = [{"size_average": False}, {"size_average": True}, {"reduce": False}, {"reduce": True},
       {"size_average": True, "reduce": False}, {"size_average": None}]  # fmt: skip

FUNCTIONS = {
    "MSELoss": "mse_loss",
    "CrossEntropyLoss": "cross_entropy",
    "BCELoss": "binary_cross_entropy",
    "SmoothL1Loss": "smooth_l1_loss",
}


@pytest.mark.parametrize("options", OLD, ids=str)
@pytest.mark.filterwarnings("ignore:size_average and reduce:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_size_average_and_reduce_as_in_pytorch(name, options, rng):
    x, y = rng.random((4, 3)), rng.random((4, 3))
    y = y / y.sum(1, keepdims=True)
    ours = getattr(nn, name)(**options)(tinytorch.tensor(x), tinytorch.tensor(y))
    theirs = getattr(torch.nn, name)(**options)(torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    again = getattr(nn.functional, FUNCTIONS[name])(
        tinytorch.tensor(x), tinytorch.tensor(y), **options
    )
    np.testing.assert_allclose(again.numpy(), theirs.numpy())


def test_other_keywords_are_refused_as_before():
    with pytest.raises(TypeError, match="unexpected keyword argument 'averaged'"):
        nn.MSELoss(averaged=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        tinytorch.zeros(2, colour="red")
