"""A compiled module is a module: its attributes, mode, names and copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, ones
from tinytorch.graph.compiler import CompiledModule
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


def test_a_module_stays_a_module():
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    compiled = tinytorch.compile(model)
    assert isinstance(compiled, CompiledModule) and isinstance(compiled, nn.Module)
    assert list(compiled.parameters()) == list(model.parameters())
    assert compiled.module is model
    compiled.eval()
    assert not model.training
    assert np.array_equal(compiled(ones(4, 3)).detach().numpy(), model(ones(4, 3)).detach().numpy())


def test_attributes_and_names_of_a_compiled_module() -> None:
    class Scaled(nn.Linear):
        by = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.by

        def doubled(self, x: Tensor) -> Tensor:
            return self(x) * 2.0

    model = Scaled(2, 1)
    compiled = tinytorch.compile(model)
    x = ones(1, 2)
    once = compiled(x).item()
    assert compiled.in_features == 2 and compiled.doubled(x).item() == 2.0 * once
    compiled.by = 3.0  # was an attribute of the wrapper alone, which nothing read
    assert model.by == 3.0 and compiled(x).item() == model(x).item() != once
    compiled.register_buffer("seen", ones(1))
    assert list(compiled.state_dict()) == ["seen", "_orig_mod.weight", "_orig_mod.bias"]
    with pytest.raises(AttributeError, match="'Scaled' object has no attribute 'nothing'"):
        _ = compiled.nothing


def test_a_compiled_module_is_in_the_mode_of_its_module():
    model = nn.Sequential(nn.Linear(2, 1), nn.Dropout()).eval()
    compiled = tinytorch.compile(model)
    assert not compiled.training and not copy.deepcopy(compiled).training
    compiled.train(compiled.training)
    assert not model[1].training
    compiled.train()
    assert model.training and model[1].training
    model.eval()
    assert not compiled.training


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_and_a_pickle_have_what_the_compiled_module_has(again: Any):
    compiled = tinytorch.compile(nn.Linear(2, 1), mode="python")
    compiled.register_buffer("seen", ones(1))
    wanted = compiled(ones(1, 2)).item()
    other = again(compiled)
    assert list(other.state_dict()) == list(compiled.state_dict()) and other.seen.item() == 1.0
    assert other(ones(1, 2)).item() == wanted and other.compiled.options.mode == "python"
    other.module.weight.detach().fill_(0.0)
    other.seen.fill_(2.0)
    assert compiled(ones(1, 2)).item() == wanted and compiled.seen.item() == 1.0


def test_a_copy_of_a_compiled_module():
    compiled = tinytorch.compile(nn.Linear(2, 1))
    compiled(ones(1, 2))
    twin = copy.deepcopy(compiled)
    with tinytorch.no_grad():
        twin.module.bias.fill_(5.0)
        twin.module.weight.fill_(0.0)
        assert twin(ones(1, 2)).item() == 5.0 != compiled(ones(1, 2)).item()
