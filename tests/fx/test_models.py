from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tinytorch.fx.models import ModelError, load_model, model_loss

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
