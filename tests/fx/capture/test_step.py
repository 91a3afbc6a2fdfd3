"""A captured training step gives to the last bit what eager training gives, over several steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import TrainingStep, capture_step
from tinytorch.fx.models import ModelError, load_model

NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "adam": (torch.optim.Adam, {"lr": 1e-3, "betas": (0.8, 0.95)}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}),
}


def check(
    model: nn.Module, batches: list[Any], loss: Any, step: TrainingStep, optimizer: Any
) -> None:
    """Train a copy of the model eagerly, and the step; compare everything after each batch."""
    eager = copy.deepcopy(model)
    optimizer = optimizer(eager)
    state = step.state_of(model)
    before = copy.deepcopy(state)
    first = state
    for i, batch in enumerate(batches):
        torch.manual_seed(i)
        optimizer.zero_grad()
        expected = loss(eager, batch)
        expected.backward()
        optimizer.step()
        torch.manual_seed(i)
        found, state = step.run(state, batch)
        assert found.equal(expected)
        wanted = step.state_of(eager, optimizer)
        for role, tensors in wanted.items():
            assert tensors.keys() == state[role].keys()
            for name, tensor in tensors.items():
                assert state[role][name].equal(tensor), f"{role} {name} after step {i}"
    for role, tensors in before.items():  # nothing that was passed in has changed
        assert all(first[role][name].equal(t) for name, t in tensors.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [("hf:resnet152", "adamw"), ("hf:resnet152", "sgd"), ("hf:bert-base", "adam"),
     ("hf:gpt2", "adamw"), ("hf:gpt2", "sgd")],
)  # fmt: skip
def test_bit_identical(name: str, kind: str):
    examples = [load_model(name, small=True, sequence=8, image=32, seed=seed) for seed in range(3)]
    e, (cls, options) = examples[0], OPTIMIZERS[kind]
    step = capture_step(e.model, e.batch, kind, **options)
    check(
        e.model, [x.batch for x in examples], e.loss, step,
        lambda m: cls(m.parameters(), fused=True, **options),
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_bit_identical_in_full_size(name: str):
    examples = [load_model(name, sequence=16, image=64, seed=0) for _ in range(2)]
    e = examples[0]
    step = capture_step(e.model, e.batch, "adam", lr=1e-3)
    check(
        e.model, [x.batch for x in examples], e.loss, step,
        lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, fused=True),
    )  # fmt: skip


class Small(nn.Module):
    """A frozen parameter, an unused one, two that are tied, and a buffer that nothing writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = (nn.Linear(4, 4) for _ in range(3))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.frozen(self.first(x)))) * self.scale


def small_loss(model: nn.Module, batch: Any) -> Tensor:
    return functional.mse_loss(model(batch["x"]), batch["y"])


def small_batches(size: int = 6) -> list[dict[str, Tensor]]:
    return [{"x": torch.randn(size, 4), "y": torch.randn(size, 4)} for _ in range(3)]


@pytest.fixture
def small() -> Small:
    torch.manual_seed(0)
    return Small()


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sgd", {"lr": 0.1, "momentum": 0.9}),
        ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("sgd", {"lr": 0.1, "maximize": True}),
        ("adam", {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-6}),
        ("adamw", {"lr": 0.01, "maximize": True}),
        ("adam", {"lr": 0.01, "weight_decay": 0.5, "decoupled_weight_decay": True}),
    ],
)
def test_options(small: Small, kind: str, options: dict[str, Any]):
    batches = small_batches()
    step = capture_step(small, batches[0], kind, loss=small_loss, **options)
    cls = OPTIMIZERS[kind][0]
    check(
        small, batches, small_loss, step,
        lambda m: cls([p for p in m.parameters() if p.requires_grad], fused=True, **options),
    )  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_logits_is_that_of_the_kernel(weighted: bool):
    """Another formula gave another last bit for a quarter of all batches."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    weights = {"weight": torch.rand(8, 3), "pos_weight": torch.rand(3)} if weighted else {}

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, target = batch
        return functional.binary_cross_entropy_with_logits(model(x), target, **weights)

    batches = [(torch.randn(8, 5), torch.rand(8, 3)) for _ in range(30)]
    step = capture_step(model, batches[0], loss=loss, lr=0.1)
    check(model, batches, loss, step, lambda m: torch.optim.SGD(m.parameters(), lr=0.1))


def test_sgd_without_momentum_is_the_unfused_one_too(small: Small):
    batches = small_batches()
    step = capture_step(small, batches[0], loss=small_loss, lr=0.1)
    check(small, batches, small_loss, step, lambda m: torch.optim.SGD(m.parameters(), lr=0.1))


def test_an_optimizer_with_groups(small: Small):
    def make(model: nn.Module) -> torch.optim.Optimizer:
        norm = list(model.norm.parameters())
        return torch.optim.AdamW(
            [{"params": norm, "weight_decay": 0.0, "lr": 0.1},
             {"params": [*model.first.parameters(), model.second.bias]}],
            lr=0.01, weight_decay=0.5, fused=True,
        )  # fmt: skip

    batches = small_batches()
    step = capture_step(small, batches[0], make(small), loss=small_loss)
    assert [len(group.names) for group in step.rule.groups] == [2, 3]
    check(small, batches, small_loss, step, make)


def test_open_batch_size(small: Small):
    step = capture_step(
        small, small_batches()[0], "adam", loss=small_loss, dynamic_dims=(0,), lr=0.01
    )
    batches = [*small_batches(3), *small_batches(9)]
    check(small, batches, small_loss, step,
          lambda m: torch.optim.Adam(m.parameters(), lr=0.01, fused=True))  # fmt: skip
    with pytest.raises(CaptureError, match="capture again"):
        uneven = {"x": torch.ones(3, 4), "y": torch.ones(4, 4)}
        step.run(step.state_of(small), uneven)


def test_what_changes_and_what_does_not(small: Small):
    step = capture_step(small, small_batches()[0], "adam", loss=small_loss)
    results = {(slot.role, slot.name) for slot in step.outputs}
    assert ("parameter", "first.weight") in results and ("buffer", "norm.running_mean") in results
    for same in ("frozen.weight", "unused.weight", "scale"):
        assert not {r for r in results if r[1] == same}
    assert ("optimizer_state", "exp_avg.second.bias") in results
    phases = [n.meta["phase"] for n in step.module.graph.nodes if n.op == "call_function"]
    assert {"forward", "backward", "optimizer"} == set(phases)
    kernel = torch.ops.aten._fused_adam.tensor_lr
    fused = step.module.graph.find_nodes(op="call_function", target=kernel)
    assert len(fused) == 1 and fused[0].meta["phase"] == "optimizer"


def test_state_goes_back_into_model_and_optimizer(small: Small):
    batches = small_batches()
    step = capture_step(small, batches[0], "adam", loss=small_loss, lr=0.01)
    state = step.state_of(small)
    for batch in batches:
        _, state = step.run(state, batch)
    optimizer = torch.optim.Adam(small.parameters(), lr=0.01, fused=True)
    step.write_back(state, small, optimizer)
    again = step.state_of(small, optimizer)
    assert again["optimizer_state"]["step"] == 3
    for role, tensors in state.items():
        assert all(again[role][name].equal(t) for name, t in tensors.items())
    # and eager training goes on from there as the step does
    small_loss(small, batches[0]).backward()
    optimizer.step()
    _, state = step.run(state, batches[0])
    assert state["parameter"]["first.weight"].equal(small.first.weight)


def test_what_there_is_not(small: Small):
    batch = small_batches()[0]
    with pytest.raises(CaptureError, match="no optimizer 'lamb'; there are sgd, adam, adamw"):
        capture_step(small, batch, "lamb", loss=small_loss)
    with pytest.raises(CaptureError, match="RMSprop is none of sgd, adam, adamw"):
        capture_step(small, batch, torch.optim.RMSprop(small.parameters()), loss=small_loss)
    with pytest.raises(CaptureError, match="leave out lr"):
        capture_step(small, batch, torch.optim.SGD(small.parameters()), loss=small_loss, lr=0.1)
    with pytest.raises(CaptureError, match="amsgrad=True is not captured"):
        capture_step(small, batch, "adam", loss=small_loss, amsgrad=True)
    with pytest.raises(CaptureError, match=r"dampening=0.5 differs on the first step"):
        capture_step(small, batch, "sgd", loss=small_loss, momentum=0.9, dampening=0.5)
    with pytest.raises(CaptureError, match=r"not the model's, of shapes \[\(3,\)\]"):
        other = torch.optim.SGD([*small.parameters(), torch.ones(3, requires_grad=True)])
        capture_step(small, batch, other, loss=small_loss)
    hooked = torch.optim.SGD(small.parameters())
    hooked.register_step_pre_hook(lambda *_: None)
    with pytest.raises(CaptureError, match="hooks of the optimizer's step"):
        capture_step(small, batch, hooked, loss=small_loss)
    with pytest.raises(CaptureError, match="without a loss"):
        capture_step(small, (batch["x"],), "sgd")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_schedule_of_learning_rates(small: Small, kind: str):
    """The rate of each step is the schedule's; the graph is captured once."""
    cls, batches = OPTIMIZERS[kind][0], small_batches()

    def make(model: nn.Module, lr: float) -> torch.optim.Optimizer:
        rest = [*model.first.parameters(), model.second.bias]
        return cls([{"params": list(model.norm.parameters())}, {"params": rest}], lr=lr, fused=True)

    eager = copy.deepcopy(small)
    optimizer = make(eager, 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [0.2, 0.1], total_steps=5, cycle_momentum=False
    )
    step = capture_step(small, batches[0], make(small, 3.0), loss=small_loss)
    state = step.state_of(small)
    for batch in batches:
        optimizer.zero_grad()
        small_loss(eager, batch).backward()
        rates = schedule.get_last_lr()
        optimizer.step()
        _, state = step.run(state, batch, lr=rates)
        schedule.step()
        for name, parameter in eager.named_parameters():
            assert state["parameter"][name].equal(parameter), name
    found = step.state_of(eager, optimizer)["optimizer_state"]
    assert found["lr.0"] == optimizer.param_groups[0]["lr"]


def test_the_learning_rate_stays_until_another_is_given(small: Small):
    batch = small_batches()[0]
    step = capture_step(small, batch, "sgd", loss=small_loss, lr=0.5)
    _, zero = step.run(step.state_of(small), batch, lr=0.0)
    assert zero["parameter"]["first.weight"].equal(small.first.weight)
    _, again = step.run(zero, batch)
    assert again["parameter"]["first.weight"].equal(small.first.weight)
    _, half = step.run(zero, batch, lr=torch.tensor(0.5))
    assert half["optimizer_state"]["lr.0"] == 0.5
    with pytest.raises(CaptureError, match="lr has 2 values, but the optimizer 1 groups"):
        step.run(zero, batch, lr=[0.1, 0.2])


def test_optimizers_that_count_differently(small: Small):
    step = capture_step(small, small_batches()[0], "adam", loss=small_loss)
    optimizer = torch.optim.Adam(small.parameters())
    small_loss(small, small_batches()[0]).backward()
    optimizer.step()
    optimizer.state[small.norm.weight]["step"] += 1
    with pytest.raises(CaptureError, match=r"different steps, \[1.0, 2.0\]"):
        step.state_of(small, optimizer)


def test_the_state_of_another_optimizer(small: Small):
    """What its update does differently was ignored."""
    step = capture_step(small, small_batches()[0], "adam", loss=small_loss)
    for optimizer, what in [
        (torch.optim.SGD(small.parameters()), "for adam with 1 groups, not for sgd with 1"),
        (torch.optim.Adam(small.parameters(), betas=(0.5, 0.9)), r"group 0 has betas=\(0.5, 0.9\)"),
    ]:
        with pytest.raises(CaptureError, match=what):
            step.state_of(small, optimizer)


def test_the_state_of_an_optimizer_with_other_groups(small: Small) -> None:
    """Its learning rates went to the parameters of the groups in the capture."""
    first, norm = [*small.first.parameters(), small.second.bias], list(small.norm.parameters())

    def adam(*groups: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam([{"params": list(group)} for group in groups])

    step = capture_step(small, small_batches()[0], adam(first, norm), loss=small_loss)
    step.state_of(small, adam(first, [*norm, small.frozen.weight]))
    for optimizer, what in [
        (adam(norm, first), "'first.weight' is in group 1 .* and was in group 0"),
        (adam(first, norm[:1]), "'norm.bias' is in no group .* and was in group 1"),
        (adam(first, [*norm, small.unused.weight]), "'unused.weight' is in group 1 .* in no group"),
    ]:
        with pytest.raises(CaptureError, match=f"parameter {what} in the capture; capture again"):
            step.state_of(small, optimizer)


@pytest.mark.parametrize(
    "loss, message",
    [
        (lambda m, b: m(*b), r"the loss has the shape \[2, 3\]\n  fix: reduce it"),
        (lambda m, b: m(*b).mean().detach(), "depends on no parameter"),
        (lambda m, b: 0, "the loss is a int"),
    ],
)
def test_a_loss_without_one_gradient_says_what_to_return(loss: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture_step(nn.Linear(3, 3), (torch.ones(2, 3),), loss=loss)


def test_what_cannot_be_trained_is_named() -> None:
    with pytest.raises(ModelError, match="the function relu: put it into the forward"):
        capture_step(functional.relu, (torch.ones(2, 3),))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="it has no parameters"):
        capture_step(nn.ReLU(), (torch.ones(2, 3),))


def test_a_layer_with_two_names() -> None:
    """Its parameters are found by one of the names, and the model has its own again afterwards."""

    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            self.second = self.first
            self.tied = nn.Linear(4, 4)
            self.tied.weight = self.first[0].weight

        def forward(self, x: Tensor) -> Tensor:
            return self.tied(self.second(self.first(x))).square().mean()

    model = Repeated()
    before = {name: (p, p.clone()) for name, p in model.named_parameters()}
    batches = [(torch.randn(3, 4, generator=torch.Generator().manual_seed(i)),) for i in range(3)]
    step = capture_step(model, batches[0], optimizer="sgd", lr=0.1)
    for name, parameter in model.named_parameters():
        own, value = before[name]
        assert parameter is own and parameter.equal(value)
    check(
        model, batches, lambda m, b: m(*b), step,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sgd_updates_all_of_a_parameter_in_half_precision_or_is_refused(dtype: torch.dtype) -> None:
    """PyTorch's kernel for the CPU leaves what fills vector registers as it was."""
    model, batch = nn.Linear(8, 8, dtype=dtype), (torch.ones(2, 8, dtype=dtype),)
    try:
        step = capture_step(model, batch, "sgd", loss=lambda m, b: m(*b).sum(), lr=1.0)
    except CaptureError as error:
        assert f"leaves most elements of {dtype} parameters on cpu" in str(error)
        return
    _, state = step.run(step.state_of(model), batch)
    assert state["parameter"]["weight"].equal(model.weight - 2)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_parameter_without_elements(kind: str) -> None:
    class Extended(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.more = nn.Parameter(torch.zeros(0, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([super().forward(x), self.more]).sum()

    model = Extended()
    step = capture_step(model, (torch.ones(2, 3),), kind)
    _, state = step.run(step.state_of(model), (torch.ones(2, 3),))
    assert state["parameter"]["more"].shape == (0, 3)
    assert not state["parameter"]["weight"].equal(model.weight)
