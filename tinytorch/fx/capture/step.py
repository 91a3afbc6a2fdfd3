"""The whole training step as one graph: forward, loss, backward and the optimizer's update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from tinytorch.fx.capture.functional import (
    FunctionalModel,
    capture,
    drop_unchanged_buffers,
    fake_inputs,
    phase,
)
from tinytorch.fx.capture.layouts import relaid_like
from tinytorch.fx.capture.optimizers import OptimizerRule, learning_rate
from tinytorch.fx.capture.slots import (
    BUFFER,
    LOSS,
    PARAMETER,
    STATE,
    CaptureError,
    Slot,
    batch_slots,
    bind,
)
from tinytorch.fx.models import Batch, Loss, model_loss

RATE = "lr."  # before the number of a group, of a learning rate in the optimizer's state
State = dict[str, dict[str, Tensor]]  # by role, by name


@dataclass
class TrainingStep:
    """A training step as a functional graph: state and batch in, loss and new state out.

    Attributes:
        module: takes the inputs and returns the outputs, both flat, in the order of the slots.
        inputs: what the placeholders are: parameters, buffers, optimizer state, batch.
        outputs: what the results are: the loss, then the state that changes.
        rule: of the optimizer.
    """

    module: torch.fx.GraphModule
    inputs: list[Slot]
    outputs: list[Slot]
    rule: OptimizerRule

    def run(
        self, state: State, batch: Batch, lr: float | Sequence[float] | None = None
    ) -> tuple[Tensor, State]:
        """One step. Nothing that is passed in is changed.

        Args:
            state: from `state_of`, or from the step before.
            batch: like the one of the capture.
            lr: the learning rate from now on, for all groups or one for each; None: as in `state`,
                where they are "lr.0", "lr.1", ... of the optimizer's state. So a schedule needs no
                new capture: `step.run(state, batch, lr=schedule.get_last_lr())`.

        Returns:
            The loss and the new state; what does not change is in it as it was.

        Raises:
            CaptureError: a tensor is missing, or of another shape or dtype than the captured one.
        """
        if lr is not None:
            state = {**state, STATE: {**state[STATE], **self._rates(lr)}}
        with torch.no_grad():
            results = self.module(*self.flat_inputs(state, batch))
        new = {role: dict(tensors) for role, tensors in state.items()}
        for slot, value in zip(self.outputs[1:], results[1:], strict=True):
            new[slot.role][slot.name] = value
        return results[0], new

    def _rates(self, lr: float | Sequence[float]) -> dict[str, Tensor]:
        groups = len(self.rule.groups)
        rates = [lr] * groups if isinstance(lr, (int, float)) else list(lr)
        if len(rates) != groups:
            raise CaptureError(f"lr has {len(rates)} values, but the optimizer {groups} groups")
        nodes = self.module.graph.find_nodes(op="placeholder")
        of = {s.name: n.meta["val"].device for s, n in zip(self.inputs, nodes, strict=True)}
        names = [f"{RATE}{i}" for i in range(groups)]
        return {name: learning_rate(x, of[name]) for name, x in zip(names, rates, strict=True)}

    def flat_inputs(self, state: State, batch: Batch) -> list[Tensor]:
        """The arguments of `module`, checked."""
        slots, tensors, _ = batch_slots(batch)
        known = dict(zip(slots, tensors, strict=True))
        known.update({Slot(r, n): t for r, named in state.items() for n, t in named.items()})
        return bind(self.module, self.inputs, known)

    def state_of(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> State:
        """The state of a model, and of its optimizer if one is given; else that of a first step.

        The tensors are the model's own, not copies: `run` does not write to them.

        Raises:
            CaptureError: the optimizer counts different steps for different parameters.
        """
        parameters = dict(model.named_parameters())
        state: State = {
            PARAMETER: {name: p.detach() for name, p in parameters.items()},
            BUFFER: {name: b.detach() for name, b in model.named_buffers()},
            STATE: {},
        }
        kept = optimizer.state if optimizer is not None else {}
        device = next(iter(parameters.values())).device
        given = optimizer.param_groups if optimizer is not None else []
        for i, group in enumerate(self.rule.groups):
            options = given[i] if given else group.options
            state[STATE][f"{RATE}{i}"] = learning_rate(options["lr"], device)
        steps = set()
        for slot in self.inputs:
            if slot.role == STATE and slot.name != "step" and not slot.name.startswith(RATE):
                moment, _, name = slot.name.partition(".")
                own = kept.get(parameters[name], {})
                if slot in self.outputs:  # without a gradient there is no step
                    steps.add(float(own.get("step", 0.0)))
                value = own.get(moment)
                state[STATE][slot.name] = (
                    torch.zeros_like(parameters[name]) if value is None else value
                ).detach()
        if len(steps) > 1 and self.rule.counts_steps:
            raise CaptureError(f"parameters are at different steps, {sorted(steps)}: start anew")
        if self.rule.counts_steps:
            state[STATE]["step"] = torch.tensor(max(steps, default=0.0), device=device)
        return state

    def write_back(
        self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Copy a state into a model, and into its optimizer if one is given."""
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[PARAMETER][name])
            for name, buffer in model.named_buffers():
                buffer.copy_(state[BUFFER][name])
        if optimizer is None:
            return
        for key, value in state[STATE].items():
            moment, _, name = key.partition(".")
            if name and Slot(STATE, key) in self.outputs:
                own = optimizer.state[parameters[name]]
                own[moment] = value.clone()
                if self.rule.counts_steps:
                    own["step"] = state[STATE]["step"].clone()


def capture_step(
    model: nn.Module,
    batch: Batch,
    optimizer: str | torch.optim.Optimizer = "sgd",
    *,
    loss: Loss = model_loss,
    dynamic_dims: tuple[int, ...] = (),
    **options: Any,
) -> TrainingStep:
    """The training step of a model in its present mode, on batches like this one.

        loss = loss(model, batch)
        gradients = autograd.grad(loss, parameters)
        parameters, optimizer_state = optimizer(parameters, gradients, optimizer_state)

    Running it gives to the last bit what eager training gives with the fused optimizer. Learning
    rates are inputs, in the optimizer's state; all other settings are constants of the graph. A
    parameter that the loss does not depend on is not updated, as in eager.

    Args:
        batch: a nest of tensors: a dict is the model's keyword arguments, a tuple the positional.
        optimizer: "sgd", "adam" or "adamw", with the options of the torch optimizer; or one of
            those, whose groups are kept.
        loss: a function of the model and the batch; by default the `loss` of the model's output.
        dynamic_dims: dimensions of the batch's tensors whose sizes stay open, e.g. (0,).

    Raises:
        CaptureError: the model does what cannot be traced; `diagnose` says more.
    """
    rule = OptimizerRule.of(optimizer, model, **options)
    forward = FunctionalModel(model, loss, batch)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    state_slots, state_tensors = _optimizer_inputs(rule, model)
    inputs = [*forward.slots, *state_slots]
    tensors = [*forward.values, *state_tensors]
    outputs: list[Slot] = []

    def step(values: list[Tensor]) -> list[Tensor]:
        given = dict(zip(inputs, values, strict=True))
        with phase("forward"):
            value, buffers = forward(given)
            results = {Slot(LOSS, ""): value.detach()}
        leaves = [given[Slot(PARAMETER, name)] for name in trained]
        with phase("backward"):
            found = torch.autograd.grad(value, leaves, allow_unused=True)
        gradients = {
            name: relaid_like(gradient, leaf)  # as autograd accumulates it
            for name, leaf, gradient in zip(trained, leaves, found, strict=True)
            if gradient is not None
        }
        with phase("optimizer"), torch.no_grad():
            results |= _update(rule, given, gradients)
        results |= buffers
        outputs[:] = results
        return list(results.values())

    module = capture(step, fake_inputs(tensors, inputs, dynamic_dims), tensors, inputs, outputs)
    return TrainingStep(module, inputs, drop_unchanged_buffers(module, outputs), rule)


def _optimizer_inputs(rule: OptimizerRule, model: nn.Module) -> tuple[list[Slot], list[Tensor]]:
    parameters = dict(model.named_parameters())
    device = next(iter(parameters.values())).device
    slots = [Slot(STATE, f"{RATE}{i}") for i in range(len(rule.groups))]
    tensors = [learning_rate(group.options["lr"], device) for group in rule.groups]
    if rule.counts_steps:
        slots.append(Slot(STATE, "step"))
        tensors.append(torch.zeros((), device=device))
    for group in rule.groups:
        for moment in rule.moments(group):
            for name in group.names:
                slots.append(Slot(STATE, f"{moment}.{name}"))
                tensors.append(torch.zeros_like(parameters[name]).detach())
    return slots, tensors


def _update(
    rule: OptimizerRule, given: dict[Slot, Tensor], gradients: dict[str, Tensor]
) -> dict[Slot, Tensor]:
    """The new parameters and the new optimizer state."""
    results: dict[Slot, Tensor] = {}
    step = None
    if rule.counts_steps:
        step = results[Slot(STATE, "step")] = given[Slot(STATE, "step")] + 1
    for i, group in enumerate(rule.groups):
        names = [name for name in group.names if name in gradients]
        if not names:
            continue
        keys = [[Slot(STATE, f"{m}.{name}") for name in names] for m in rule.moments(group)]
        parameters, moments = rule.update(
            group,
            [given[Slot(PARAMETER, name)].detach() for name in names],
            [gradients[name] for name in names],
            [[given[key] for key in row] for row in keys],
            step,
            given[Slot(STATE, f"{RATE}{i}")],
        )
        results |= {Slot(PARAMETER, n): p for n, p in zip(names, parameters, strict=True)}
        for row, values in zip(keys, moments, strict=True):
            results |= dict(zip(row, values, strict=True))
    return results
