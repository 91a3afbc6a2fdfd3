"""Linear and cross entropy in chunks: the same loss and gradients, with less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.fx.small import SEMANTICS, clean, joint_of
from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.models import load_model
from tinytorch.fx.passes.chunked_cross_entropy import (
    ChunkedCrossEntropy,
    chunked_head,
    find_heads,
)
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes import PassManager, get_pass_by_name

ROWS, WIDTH, VOCABULARY = 48, 8, 300


class Tagger(nn.Module):
    """A linear layer on embeddings, with a loss on its logits."""

    def __init__(self, bias: bool = True, tied: bool = False, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight
        self.options = options

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self.head(self.embedding(x).tanh())
        return functional.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1), **self.options)


def words(ignored: int = -100) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, VOCABULARY, (2, 3, ROWS // 3), generator=generator)
    y[0, 3] = ignored
    return x, y


def loss(model: nn.Module, batch: Any) -> Tensor:
    return model(*batch)


def compare(model: nn.Module, joint: JointGraph, batch: Any, rows: int, bound: float) -> None:
    """The rewritten graph gives what it gave, and its peak is lower."""
    tangents = [torch.tensor(0.7) for slot in joint.inputs if slot.role == "tangent"]
    inputs = joint.flat_inputs(model, batch, tangents)
    expected, peak = joint.module(*inputs), timeline(joint.module.graph, SEMANTICS).peak
    assert ChunkedCrossEntropy(SEMANTICS, rows).run(joint.module.graph)
    clean(joint.module)
    joint.module.graph.lint()
    for new, old in zip(joint.module(*inputs), expected, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-7)
    assert timeline(joint.module.graph, SEMANTICS).peak < bound * peak


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"tied": True}, {"reduction": "sum"}, {"ignore_index": 7}],
    ids=str,
)
def test_same_loss_and_gradients(options: dict[str, Any]) -> None:
    model, batch = Tagger(**options), words(options.get("ignore_index", -100))
    compare(model, joint_of(model, batch, loss), batch, rows=10, bound=0.8)


def test_the_gradient_of_the_loss_is_respected() -> None:
    model, batch = Tagger(), words()
    joint = capture_joint(model, batch)  # the loss is an output, its gradient an input
    clean(joint.module)
    compare(model, joint, batch, rows=10, bound=0.8)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("hf:gpt2", {}), ("hf:bert-base", {"head": "masked-lm"}),
])  # fmt: skip
def test_transformers(name: str, options: dict[str, Any]) -> None:
    example = load_model(name, small=True, dropout=0.0, **options)
    joint = joint_of(example.model, example.batch, example.loss)
    compare(example.model, joint, example.batch, rows=32, bound=1.0)


def test_logits_that_are_used_elsewhere_stay() -> None:
    model, batch = Tagger(), words()

    def also_logits(model: Any, batch: Any) -> Tensor:
        x, y = batch
        logits = model.head(model.embedding(x))
        return functional.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1)) + logits.mean()

    joint = joint_of(model, batch, also_logits)
    assert find_heads(joint.module.graph) == []


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"weight": torch.ones(VOCABULARY)}])
def test_other_losses_stay(options: dict[str, Any]) -> None:
    joint = joint_of(Tagger(**options), words(), loss)
    assert find_heads(joint.module.graph) == []


def test_few_rows_stay_in_one() -> None:
    joint = joint_of(Tagger(), words(), loss)
    assert not ChunkedCrossEntropy(SEMANTICS, ROWS).run(joint.module.graph)
    with pytest.raises(ValueError, match="at least one row, not 0"):
        ChunkedCrossEntropy(SEMANTICS, 0)


def test_the_function_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(ROWS, WIDTH, generator=generator, requires_grad=True)
    w = torch.randn(WIDTH, VOCABULARY, generator=generator, requires_grad=True)
    b = torch.randn(VOCABULARY, generator=generator, requires_grad=True)
    y = torch.randint(0, VOCABULARY, (ROWS,), generator=generator)
    expected = functional.cross_entropy(h @ w + b, y)
    gradients = torch.autograd.grad(expected, [h, w, b])
    with torch.no_grad():
        found = chunked_head(h, w, b, y, -100, 1, rows=7)
    torch.testing.assert_close(found[0], expected.detach())
    torch.testing.assert_close(list(found[1:]), [gradients[0], gradients[1].t(), gradients[2]])


def test_by_name_and_verified() -> None:
    joint = joint_of(Tagger(), words(), loss)
    made = get_pass_by_name("chunked-cross-entropy")(SEMANTICS, rows=16)
    _, report = PassManager([made], semantics=SEMANTICS).run(joint.module.graph)
    assert not report.failures, report
    assert report.results[0].changed
