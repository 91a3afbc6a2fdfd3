from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tinytorch import fx
from tinytorch.fx.models import ModelError, check_model, load_model, model_loss, squares_of
from tinytorch.fx.tiny import TinyError

NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_computes_its_loss_on_its_batch(name: str):
    example = load_model(name, small=True, batch=3, sequence=8, image=32)
    assert example.model.training
    assert all(t.shape[0] == 3 for t in example.batch.values())
    loss = example.loss(example.model, example.batch)
    assert loss.shape == () and loss.requires_grad


def test_the_same_seed_gives_the_same_model_and_leaves_the_generator_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = (load_model("hf:gpt2", small=True, seed=3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    other = load_model("hf:gpt2", small=True, seed=4)
    for a, b, c in zip(*(m.model.parameters() for m in (first, second, other)), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c) == bool((a == a.flatten()[0]).all())  # ones and zeros
    assert torch.equal(first.inputs["input_ids"], second.inputs["input_ids"])


def test_sizes():
    assert len(load_model("hf:gpt2", small=True, layers=3).model.transformer.h) == 3
    assert load_model("hf:bert-base", small=True, sequence=5).inputs["input_ids"].shape == (2, 5)
    masked = load_model("hf:bert-base", small=True, head="masked-lm")
    assert masked.model(**masked.inputs).logits.shape[-1] == 128


def test_what_there_is_not():
    with pytest.raises(ModelError, match="there is no model 'hf:vgg'; there are hf:resnet152"):
        load_model("hf:vgg")
    with pytest.raises(ModelError, match="BERT has no head 'qa'"):
        load_model("hf:bert-base", small=True, head="qa")
    with pytest.raises(ModelError, match="takes at most 64 tokens, not 65"):
        load_model("hf:gpt2", small=True, sequence=65)


def test_any_configuration_class_is_a_model():
    example = load_model("hf:LlamaConfig", small=True, batch=3)
    assert type(example.model).__name__ == "LlamaModel" and example.model.training
    assert example.inputs["input_ids"].shape[0] == 3
    loss = example.loss(example.model, example.batch)
    assert loss.shape == () and loss.requires_grad
    with pytest.raises(TinyError, match="no base model for 'VggConfig'"):
        load_model("hf:VggConfig", small=True)


FACTORY = """
import torch
from torch import nn

def with_loss(batch):
    return nn.Linear(3, 2), (torch.ones(batch, 3),), lambda model, x: model(*x).square().mean()

def without_loss(batch):
    return nn.Linear(3, 2), (torch.ones(batch, 3),)

def other(batch):
    return nn.Linear(3, 2)
"""


def test_a_factory_in_a_file(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    example = load_model(f"{path}:with_loss", batch=5)
    assert example.inputs[0].shape == (5, 3)
    assert example.loss(example.model, example.batch).shape == ()
    example = load_model(f"{path}:without_loss")
    with pytest.raises(ModelError, match="a Tensor without a loss: put labels into the batch"):
        model_loss(example.model, example.batch)
    with pytest.raises(ModelError, match=r"must return \(model, inputs\)"):
        load_model(f"{path}:other")
    with pytest.raises(ModelError, match="no function 'nothing'; it has other, with_loss"):
        load_model(f"{path}:nothing")
    with pytest.raises(ModelError, match="there is no file"):
        load_model(f"{tmp_path}/none.py:make")


def test_what_cannot_work_is_said_before_the_work_starts():
    class Empty(nn.Module):
        def forward(self, x):
            return x

    wide, batch = nn.Linear(3, 2).double(), (torch.ones(4, 3),)
    frozen = nn.Linear(3, 2).requires_grad_(False)
    for model, said in (
        (lambda x: x, r"a torch.nn.Module is expected, and this is the function <lambda>"),
        (Empty(), "Empty cannot be trained: it has no parameters"),
        (frozen, "Linear cannot be trained: all of its parameters are frozen"),
        (wide, r"parameters of Linear are torch.float64, and its input is torch.float32"),
    ):
        with pytest.raises(ModelError, match=said):
            check_model(model, batch)
        with pytest.raises(ModelError, match=said):
            fx.checkpoint(model, batch, 0.5)
    for model in (Empty(), frozen):
        check_model(model, batch, trains=False)
    with pytest.raises(ModelError, match="input is torch"):
        fx.from_torch(wide, batch)


def test_a_model_that_converts_its_input_itself_is_taken():
    class Converting(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(self.weight.dtype))

    check_model(Converting(3, 2).double(), (torch.ones(4, 3),))


def test_the_mean_squares_of_all_outputs_are_a_loss_for_any_model():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    result = {"a": x * 1, "ids": torch.ones(3, dtype=torch.int64), "b": [x.sum() * 1]}
    assert squares_of(result).item() == (1 + 4) / 2 + 9
    assert not squares_of({"ids": torch.ones(3)}).requires_grad


def test_a_model_on_another_device() -> None:
    here = load_model("hf:gpt2", small=True, batch=1, sequence=4)
    there = here.to(torch.device("meta"))
    assert {x.device.type for x in (*there.model.parameters(), *there.batch.values())} == {"meta"}
    assert there.batch.keys() == here.batch.keys() and there.loss is here.loss
