from __future__ import annotations

import pytest
import torch

import tinytorch
from tinytorch import nn


def test_parameters_as_a_vector_and_back():
    net = nn.Linear(3, 2)
    theirs = torch.nn.Linear(3, 2)
    net.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    row = nn.utils.parameters_to_vector(net.parameters())
    assert row.tolist() == torch.nn.utils.parameters_to_vector(theirs.parameters()).tolist()
    row.sum().backward()
    assert net.weight.grad.tolist() == [[1] * 3] * 2
    nn.utils.vector_to_parameters(tinytorch.arange(8).float(), net.parameters())
    assert net.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and net.bias.tolist() == [6, 7]
    with pytest.raises(tinytorch.ShapeError, match=r"the vector \(7,\) must be \(8,\)"):
        nn.utils.vector_to_parameters(tinytorch.ones(7), net.parameters())
    assert net.bias.tolist() == [6, 7]


def test_clipping_is_the_optimizers():
    assert nn.utils.clip_grad_norm_ is tinytorch.optim.clip_grad_norm_
    assert nn.utils.clip_grad_value_ is tinytorch.optim.clip_grad_value_
