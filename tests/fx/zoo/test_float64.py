from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.zoo.float64 import doubled, in_float64
from tinytorch.fx.zoo.subject import Subject, outputs

X = torch.linspace(-1, 1, 48).reshape(6, 8)
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "float": lambda x: x.float() / 3,
    "a type by name": lambda x: x.to(torch.float32) / 3,
    "softmax": lambda x: functional.softmax(x, -1, dtype=torch.float32),
    "a constant": lambda x: x + torch.tensor(1 / 3),
    "rand": lambda x: x * torch.rand(6, 8),
    "rand of a type": lambda x: x * torch.rand(6, 8, dtype=x.dtype),
    "randn_like": lambda x: x + torch.randn_like(x),
    "normal_": lambda x: x + torch.empty_like(x).normal_(),
    "dropout": lambda x: functional.dropout(x, 0.3),
    "attention": lambda x: functional.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], dropout_p=0.3
    ),
    "grouped_mm": lambda x: functional.grouped_mm(
        x, x.new_ones(2, 8, 4) / 3, offs=torch.tensor([2, 6], dtype=torch.int32)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_for_float32_gives_the_same_in_float64_and_more_exactly(name: str):
    torch.manual_seed(3)
    single = FUNCTIONS[name](X)
    torch.manual_seed(3)
    with in_float64():
        exact = FUNCTIONS[name](doubled(X))
    assert single.dtype == torch.float32 and exact.dtype == torch.float64
    torch.testing.assert_close(single, exact.float(), rtol=1e-5, atol=1e-6)
    assert not torch.equal(exact, single.double())


def test_rows_beyond_the_last_offset_are_no_group():
    with in_float64():
        found = functional.grouped_mm(
            doubled(X), torch.ones(2, 8, 4), offs=torch.tensor([1, 4], dtype=torch.int32)
        )
    assert found.shape == (6, 4) and not found[4:].any()
    assert torch.equal(found[:4], doubled(X)[:4].sum(1, keepdim=True).expand(4, 4))


def test_a_model_in_training_mode_has_a_float64_of_its_own():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.4))
    subject = Subject("own/drops", model, {"input": X})
    eager = outputs(model.train(), subject.inputs)[0]
    subject.reset()
    found = subject.in_float64(outputs, subject.inputs, True)
    assert eager is not None and found is not None and found[0] is not None
    assert torch.equal(eager == 0, found[0] == 0) and (found[0] == 0).any()  # the same are dropped
    torch.testing.assert_close(eager.double(), found[0], rtol=1e-4, atol=1e-5)
    calm = subject.in_float64(outputs, subject.inputs, False)
    assert calm is not None and calm[0] is not None and not torch.equal(calm[0], found[0])
