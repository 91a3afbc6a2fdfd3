"""Clipping, accumulation and a grad scaler in a captured step: each bit is the eager loop's."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import TrainingStep, capture_step
from tinytorch.fx.optimize.step_optimizer import optimize_step

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-2}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
}
STEPS = 6


class Small(nn.Module):
    """A frozen and an unused parameter, tied ones, batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = (nn.Linear(4, 4) for _ in range(3))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.frozen(self.first(x))))


def loss(model: nn.Module, batch: Any) -> Tensor:
    return functional.mse_loss(model(batch["x"]), batch["y"])


def half_loss(model: nn.Module, batch: Any) -> Tensor:
    """In float16, whose gradients overflow where the scale is large."""
    with torch.autocast("cpu", torch.float16):
        return functional.mse_loss(model(batch["x"]).float(), batch["y"])


@dataclass
class Loop:
    """What an eager loop does between backward and update, and what changes from step to step.

    Attributes:
        options: of `capture_step`.
        schedule: arguments of `run`, for each step in turn.
        accumulation: batches for each update.
        scaler: arguments of GradScaler; None: none.
    """

    options: dict[str, Any]
    schedule: list[dict[str, Any]]
    accumulation: int = 1
    scaler: dict[str, Any] | None = None

    def make_scaler(self) -> torch.amp.GradScaler | None:
        return None if self.scaler is None else torch.amp.GradScaler("cpu", **self.scaler)


LOOPS = {
    "norm": Loop({"max_norm": 9.0}, [{"max_norm": m} for m in (0.5, 100.0, 0.1)]),
    "largest": Loop({"max_norm": 9.0, "norm_type": float("inf")},
                    [{"max_norm": m} for m in (0.01, 100.0)]),
    "value": Loop({"clip_value": 9.0}, [{"clip_value": c} for c in (0.03, 100.0, 0.3)]),
    "accumulation": Loop({}, [{"lr": 0.1}, {"lr": 0.01}], accumulation=3),
    "scaler": Loop({}, [{"lr": 0.01}, {"lr": 0.1}, {}],
                   scaler={"init_scale": 2.0**15, "growth_interval": 2}),
    "odd scale": Loop({}, [{}, {"scale": 300.0}, {}, {}],
                      scaler={"init_scale": 1000.0, "growth_factor": 1.5, "growth_interval": 1}),
    "everything": Loop({"max_norm": 1.0}, [{"max_norm": 0.5, "lr": 0.1}, {"max_norm": 0.1},
                       {"max_norm": 2.0, "lr": 0.01}], accumulation=2,
                       scaler={"init_scale": 2.0**16, "growth_interval": 2}),
}  # fmt: skip


def batches(large: int | None = None) -> list[dict[str, Tensor]]:
    """Others for each step; one of them has values that overflow in float16."""
    g = torch.Generator().manual_seed(1)
    made = [{"x": torch.randn(6, 4, generator=g), "y": torch.randn(6, 4, generator=g)}
            for _ in range(STEPS)]  # fmt: skip
    if large is not None:
        made[large]["y"] *= 1e5
    return made


def make(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    """With two groups, which share a schedule."""
    cls, options = OPTIMIZERS[kind]
    norm = list(model.norm.parameters())
    rest = [model.first.weight, model.first.bias, model.second.bias, model.unused.weight]
    return cls([{"params": norm, "weight_decay": 0.0}, {"params": rest}], fused=True, **options)


class Eager:
    """The loop as it is written in PyTorch."""

    def __init__(self, model: nn.Module, loop: Loop, kind: str, loss: Any) -> None:
        self.model, self.loop, self.loss = model, loop, loss
        self.optimizer, self.scaler = make(model, kind), loop.make_scaler()
        self.norm: Tensor | None = None

    def backward(self, batch: Any) -> Tensor:
        value = self.loss(self.model, batch)
        (value if self.scaler is None else self.scaler.scale(value)).backward()
        return value.detach()

    def update(self, settings: dict[str, Any]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = settings.get("lr", group["lr"])
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        parameters = self.model.parameters()
        if "max_norm" in self.loop.options:
            kind = self.loop.options.get("norm_type", 2.0)
            limit = settings.get("max_norm", self.loop.options["max_norm"])
            self.norm = nn.utils.clip_grad_norm_(parameters, limit, kind)
        if "clip_value" in self.loop.options:
            nn.utils.clip_grad_value_(parameters, settings["clip_value"])
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()


def captured(model: nn.Module, loop: Loop, kind: str, loss: Any) -> TrainingStep:
    return capture_step(
        model, batches()[0], make(model, kind), loss=loss, scaler=loop.make_scaler(),
        accumulate=loop.accumulation > 1, **loop.options,
    )  # fmt: skip


def check(model: nn.Module, step: TrainingStep, loop: Loop, kind: str, loss: Any) -> list[float]:
    """Both, step by step, on batches of which one overflows; returns the scales."""
    eager = Eager(copy.deepcopy(model), loop, kind, loss)
    state, scales = step.state_of(copy.deepcopy(model)), []
    for i, batch in enumerate(batches(large=3)):
        updates = (i + 1) % loop.accumulation == 0
        settings = loop.schedule[i // loop.accumulation % len(loop.schedule)] if updates else {}
        if eager.scaler is not None and "scale" in settings:
            eager.scaler.update(settings["scale"])
        expected = eager.backward(batch)
        run = step.run if updates else step.accumulate
        found, state = run(state, batch, **settings)
        assert found.equal(expected)
        if not updates:
            continue
        eager.update(settings)
        wanted = step.state_of(eager.model, eager.optimizer, eager.scaler)
        for name in ("max_norm", "clip_value"):
            wanted["optimizer_state"].pop(name, None)
        for role, tensors in wanted.items():
            for name, tensor in tensors.items():
                assert state[role][name].equal(tensor), f"{role} {name} after batch {i}"
        if eager.norm is not None:
            norm = state["output"]["total_norm"]
            assert norm.equal(eager.norm) or (norm.isnan() and eager.norm.isnan())
        if eager.scaler is not None:
            scales.append(eager.scaler.get_scale())
    return scales


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small()


CASES = [(name, kind) for name in LOOPS for kind in OPTIMIZERS]
FAST = [("norm", "sgd"), ("value", "adam"), ("everything", "adamw")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case not in FAST)) for case in CASES],
)
def test_each_bit_is_the_eager_loops(model: Small, name: str, kind: str) -> None:
    loop = LOOPS[name]
    own = half_loss if loop.scaler else loss
    scales = check(model, captured(model, loop, kind, own), loop, kind, own)
    if loop.scaler:  # it grew, and an update was left out
        pairs = list(itertools.pairwise(scales))
        assert any(b < a for a, b in pairs)
        assert any(b > a for a, b in pairs) or name == "everything"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm", "accumulation", "everything"])
def test_optimized_steps_do_the_same(model: Small, name: str) -> None:
    """With passes that update the state, and the sums of gradients, in place."""
    loop = LOOPS[name]
    own = half_loss if loop.scaler else loss
    step, report = optimize_step(captured(model, loop, "adamw", own))
    assert not report.failures
    check(model, step, loop, "adamw", own)


def test_a_state_can_begin_and_end_anywhere_in_the_loop(model: Small) -> None:
    """In the middle of an accumulation, with a scaler that has grown."""
    loop = LOOPS["everything"]
    step = captured(model, loop, "adamw", half_loss)
    eager = Eager(copy.deepcopy(model), loop, "adamw", half_loss)
    data = batches()
    for i, batch in enumerate(data[:3]):
        eager.backward(batch)
        if i == 1:
            eager.update({})
    state = step.state_of(eager.model, eager.optimizer, eager.scaler)
    _, state = step.run(copy.deepcopy(state), data[3])
    optimizer, scaler = make(model, "adamw"), loop.make_scaler()
    step.write_back(state, model, optimizer, scaler)
    eager.backward(data[3])
    eager.update({})
    assert scaler.state_dict() == eager.scaler.state_dict()
    for mine, theirs in zip(model.parameters(), eager.model.parameters(), strict=True):
        assert mine.equal(theirs)
    again = step.state_of(model, optimizer, scaler)
    for name, tensor in step.state_of(eager.model, eager.optimizer, eager.scaler).items():
        assert all(again[name][key].equal(value) for key, value in tensor.items())


def test_a_disabled_scaler_is_none(model: Small) -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    step = capture_step(model, batches()[0], "sgd", loss=loss, scaler=scaler)
    assert "scale" not in step.state_of(model)["optimizer_state"]


def test_what_does_not_fit(model: Small) -> None:
    batch = batches()[0]
    with pytest.raises(CaptureError, match=r"max_norm=1.0 and clip_value=0.5: .* give one of them"):
        capture_step(model, batch, "sgd", loss=loss, max_norm=1.0, clip_value=0.5)
    step = capture_step(model, batch, "sgd", loss=loss)
    state = step.state_of(model)
    with pytest.raises(CaptureError, match=r"max_norm=2.0 for a step .* give max_norm to"):
        step.run(state, batch, max_norm=2.0)
    with pytest.raises(CaptureError, match=r"scale=2.0 for a step .* give scaler to"):
        step.run(state, batch, scale=2.0)
    with pytest.raises(CaptureError, match=r"accumulate=True"):
        step.accumulate(state, batch)
    halves = {name: x.half() for name, x in batch.items()}
    with pytest.raises(CaptureError, match=r"gradient of 'first.weight' is float16"):
        capture_step(model.half(), halves, "adamw", loss=loss, scaler=torch.amp.GradScaler("cpu"))
