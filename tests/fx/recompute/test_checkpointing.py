"""A checkpointed model trains as the model does, to the last bit, within its budget."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.small import ConvNet, mlp
from tinytorch.errors import TinyTorchError
from tinytorch.fx.models import load_model
from tinytorch.fx.passes.chunked_cross_entropy import ChunkedCrossEntropy
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.fx.recompute.checkpointing import Checkpointed, checkpoint
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.recompute.problem import RecomputeError

FAST = ("segments", "mutwo")


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def train(model: nn.Module, batch: Tensor, steps: int = 2) -> tuple[list[Tensor], int]:
    """Losses, parameters and buffers after some steps, and the peak of the last one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    values: list[Tensor] = []
    peak = 0
    for i in range(steps):
        torch.manual_seed(i)
        optimizer.zero_grad()
        state = [list(model.parameters()), list(model.buffers()), batch]
        with MemoryMeter(state) as meter:
            loss = model(batch).square().mean()
            loss.backward()
        peak = meter.peak
        values.append(loss.detach())
        optimizer.step()
    return [*values, *model.parameters(), *model.buffers()], peak


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("model", "batch", "budget"),
    [
        (mlp(), numbers(64, 32), 0.7),
        (mlp(dropout=0.2), numbers(64, 32), 0.7),
        (ConvNet(), numbers(4, 3, 16, 16), 0.6),
    ],
    ids=["mlp", "dropout", "batch norm"],
)
def test_trains_like_the_model(model: nn.Module, batch: Tensor, budget: float) -> None:
    eager = copy.deepcopy(model)
    made = checkpoint(model, (batch,), budget, strategies=FAST)
    expected, _ = train(eager, batch)
    found, peak = train(made, batch)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    compiled = made.compiled((batch,))
    assert compiled.plan.cost > 0
    # the loss behind the model takes memory too: its input, its gradient, some numbers
    assert peak <= compiled.plan.peak + 4 * model(batch).numel() * 4 + 64
    assert compiled.plan.peak <= budget * compiled.frontier.everything.peak


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0]).tanh()


@pytest.mark.parametrize("budget", [1.0, 0.8])
def test_what_an_lstm_saves_for_its_backward_counts(budget: float) -> None:
    """oneDNN's workspace: the fake one is empty, and autograd's record of it would keep it."""
    model, batch = Recurrent(), numbers(8, 24, 8)
    eager, made = copy.deepcopy(model), checkpoint(model, (batch,), budget, strategies=["mutwo"])
    expected, _ = train(eager, batch)
    found, peak = train(made, batch)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    assert peak <= made.compiled((batch,)).plan.peak + 4 * 8 * 24 * 64 * 4 + 64  # and the loss


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "hf:bert-base",
    pytest.param("hf:resnet152", marks=pytest.mark.slow),
    pytest.param("hf:gpt2", marks=pytest.mark.slow),
])  # fmt: skip
def test_transformers_within_the_budget(name: str) -> None:
    example = load_model(name, small=True, batch=2)
    eager = copy.deepcopy(example.model)
    made = checkpoint(example.model, example.batch, 0.85, select=_loss, strategies=["mutwo"])
    torch.manual_seed(0)
    with MemoryMeter([list(made.parameters()), list(made.buffers()), example.batch]) as meter:
        loss = made(**example.batch)
        loss.backward()
    torch.manual_seed(0)
    expected = eager(**example.batch).loss
    expected.backward()
    compiled = made.compiled(example.batch)
    held = sum(b.nbytes for b in made.buffers() if b.is_floating_point())  # copied at the most
    assert compiled.plan.peak - 2 * held <= meter.peak <= compiled.plan.peak
    assert meter.peak <= 0.85 * compiled.frontier.everything.peak
    assert torch.equal(loss, expected)
    for a, b in zip(made.parameters(), eager.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    for a, b in zip(made.buffers(), eager.buffers(), strict=True):
        assert torch.equal(a, b)


def _loss(output: Any) -> Tensor:
    return output.loss


@pytest.mark.slow
def test_results_keep_their_form() -> None:
    example = load_model("hf:bert-base", small=True, batch=2, dropout=0.0)
    made = checkpoint(example.model, example.batch, 0.9, strategies=["mutwo"])
    found, expected = made(**example.batch), example.model(**example.batch)
    assert type(found) is type(expected)
    assert torch.equal(found.logits, expected.logits)
    (found.loss + found.logits.sum()).backward()
    gradients = [p.grad.clone() for p in made.parameters()]
    made.zero_grad()
    (expected.loss + expected.logits.sum()).backward()
    for a, p in zip(gradients, made.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)


@pytest.fixture(scope="module")
def made() -> Checkpointed:
    return checkpoint(mlp(3), (numbers(64, 32),), 0.8, strategies=["mutwo"])


def test_parameters_are_shared(made: Checkpointed) -> None:
    assert next(n for n, _ in made.named_parameters()) == "model.0.weight"
    assert made.model[0].weight is next(iter(made.parameters()))


def test_says_what_it_does(made: Checkpointed) -> None:
    compiled = made.compiled((numbers(64, 32),))
    facts = compiled.to_dict()
    assert facts["lowest_peak"] <= facts["peak"] < facts["everything_peak"]
    assert facts["recomputed_nodes"] > 0
    assert 0 < facts["extra_flops"] < 0.5
    assert f"{facts['recomputed_nodes']} nodes computed again" in str(compiled)


def test_gradients_of_inputs(made: Checkpointed) -> None:
    x = numbers(64, 32).requires_grad_()
    made(x).sum().backward()
    (expected,) = torch.autograd.grad(made.model(x).sum(), x)
    assert torch.equal(x.grad, expected)


def test_another_shape_and_mode(made: Checkpointed) -> None:
    for batch in (numbers(40, 32), numbers(64, 32)):
        made.zero_grad()
        made(batch).sum().backward()
        gradient = made.model[0].weight.grad
        (expected,) = torch.autograd.grad(made.model(batch).sum(), made.model[0].weight)
        assert torch.equal(gradient, expected)
    assert len(made._compiled) >= 2
    with torch.no_grad():
        assert torch.equal(made(numbers(5, 32)), made.model(numbers(5, 32)))


def test_the_mode_of_a_layer_counts() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    made = checkpoint(model, (numbers(5, 4),), 1.0, strategies=FAST)
    model[1].eval()
    assert made(numbers(5, 4)).equal(model(numbers(5, 4)))


@pytest.mark.parametrize(("place", "layer"), [("1", nn.Tanh()), ("2", nn.Linear(4, 5))])
def test_a_layer_that_is_exchanged_is_captured(place: str, layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    made = checkpoint(model, (numbers(5, 4),), 1.0, strategies=FAST)
    setattr(model, place, layer)
    found = made(numbers(5, 4))
    assert found.equal(model(numbers(5, 4)))
    found.sum().backward()
    expected = torch.autograd.grad(model(numbers(5, 4)).sum(), list(model.parameters()))
    assert all(p.grad.equal(g) for p, g in zip(model.parameters(), expected, strict=True))


def test_a_part_that_is_kept_in_evaluation_mode_stays_so() -> None:
    model = ConvNet().train()
    model.norms[0].eval()
    before = [part.training for part in model.modules()]
    checkpoint(model, (numbers(2, 3, 8, 8),), 1.0, strategies=FAST)
    assert [part.training for part in model.modules()] == before


def test_an_input_and_a_buffer_of_one_name() -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("0", torch.ones(4))
    x = numbers(5, 4).requires_grad_()
    checkpoint(model, (x,), 1.0, strategies=FAST)(x).square().sum().backward()
    found, x.grad = x.grad, None
    model(x).square().sum().backward()
    assert found is not None and found.equal(x.grad)


def test_a_frozen_parameter_gets_no_gradient() -> None:
    model = mlp(3)
    model[0].weight.requires_grad_(False)
    made = checkpoint(model, (numbers(64, 32),), 0.9, strategies=["mutwo"])
    made(numbers(64, 32)).sum().backward()
    assert model[0].weight.grad is None
    assert model[0].bias.grad is not None


def test_autocast_is_a_mode_of_its_own() -> None:
    model, batch = mlp(3), numbers(64, 32)
    made = checkpoint(model, (batch,), 0.9, strategies=["mutwo"])
    for enabled in (True, False, True):
        found = []
        for each in (made, model):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                output = each(batch)
            output.float().softmax(-1).square().sum().backward()
            found.append([output.detach(), *(p.grad for p in model.parameters())])
        assert output.dtype == (torch.bfloat16 if enabled else torch.float32)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(x).tanh()
        return self.left(hidden), self.right(hidden)


def test_what_only_an_unused_output_needs_gets_no_gradient() -> None:
    model = TwoHeads()
    made = checkpoint(model, (numbers(5, 8),), 1.0, strategies=FAST)
    for output, unused in ((0, model.right), (1, model.left)):
        found = []
        for each in (made, model):
            model.zero_grad()
            each(numbers(5, 8))[output].square().sum().backward()
            assert unused.weight.grad is None and unused.bias.grad is None
            found.append([p.grad for p in model.parameters() if p.grad is not None])
        assert all(a.equal(b) for a, b in zip(*found, strict=True))


class Roots(nn.Module):
    """One parameter for both results; the derivative of the second at 0 is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.0, 1.0, 2.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.weight * x
        return (y * 2).tanh(), y.sqrt()


def test_an_infinite_derivative_of_an_unused_output_is_not_met() -> None:
    model, x = Roots(), torch.ones(3)
    made = checkpoint(model, (x,), 1.0, strategies=FAST)
    for used in ((0,), (1,), (0, 1), (0,)):
        found = []
        for each in (made, model):
            model.zero_grad()
            results = each(x)
            sum(results[i].sum() for i in used).backward()
            assert model.weight.grad is not None
            found.append(model.weight.grad)
        assert found[0].equal(found[1]) and not found[0].isnan().any()


def test_a_second_backward_says_what_to_do(made: Checkpointed) -> None:
    loss = made(numbers(64, 32)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(TinyTorchError, match="call the model again"):
        loss.backward()


def test_a_penalty_on_gradients_is_refused() -> None:
    """It had no gradient itself, in silence, beside a loss that had one."""
    x = numbers(3, 4).requires_grad_()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    made = checkpoint(model, (x,), 1.0, strategies=FAST)
    with pytest.raises(TinyTorchError, match=r"create_graph=True.*: call the model itself"):
        torch.autograd.grad(made(x).sum(), x, create_graph=True)
    torch.autograd.grad(made(x).sum(), x)


def test_nothing_leaks(made: Checkpointed) -> None:
    output = made(numbers(64, 32))
    reference = weakref.ref(output)
    gc.disable()
    try:
        del output  # its backward never ran
        assert reference() is None
    finally:
        gc.enable()


def test_call_by_position_or_by_keyword(made: Checkpointed) -> None:
    with pytest.raises(TypeError, match="not by both"):
        made(numbers(64, 32), x=numbers(64, 32))


def test_an_impossible_budget() -> None:
    with pytest.raises(RecomputeError, match="the lowest that can is"):
        checkpoint(mlp(2), (numbers(64, 32),), 1000, strategies=["mutwo"])


@pytest.mark.slow
def test_with_chunked_cross_entropy() -> None:
    example = load_model("hf:gpt2", small=True, batch=2, dropout=0.0)
    chunked = ChunkedCrossEntropy(TorchSemantics(), rows=16)
    made = checkpoint(
        example.model, example.batch, 1.0, select=_loss, passes=[chunked], strategies=["mutwo"]
    )
    whole = checkpoint(example.model, example.batch, 1.0, select=_loss, strategies=["mutwo"])
    losses = []
    for each in (made, whole):
        each.zero_grad()
        loss = each(**example.batch)
        loss.backward()
        losses.append([loss.detach(), *(p.grad.clone() for p in each.parameters())])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-6)
    peaks = [each.compiled(example.batch).plan.peak for each in (made, whole)]
    assert peaks[0] < peaks[1]
