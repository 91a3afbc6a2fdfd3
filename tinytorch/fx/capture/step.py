"""The whole training step as one graph: forward, loss, backward and the optimizer's update."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from tinytorch.fx.capture.functional import (
    FunctionalModel,
    capture,
    drop_unchanged_buffers,
    fake_inputs,
    mark_constants,
    phase,
)
from tinytorch.fx.capture.gradient_rule import GradientRule
from tinytorch.fx.capture.layouts import relaid_like
from tinytorch.fx.capture.optimizers import OptimizerRule, setting
from tinytorch.fx.capture.requires_grad import RequiresGrad
from tinytorch.fx.capture.shared_memory import (
    check_dense,
    check_no_hooks,
    check_unshared,
    held_tensors,
)
from tinytorch.fx.capture.slots import GRADIENT, LOSS, PARAMETER, STATE, CaptureError, Slot
from tinytorch.fx.capture.training_step import RATE, TrainingStep as TrainingStep, counter
from tinytorch.fx.diagnosis.reasons import Reason
from tinytorch.fx.models import Batch, Loss, check_model, model_loss


def capture_step(
    model: nn.Module,
    batch: Batch,
    optimizer: str | torch.optim.Optimizer = "sgd",
    *,
    loss: Loss = model_loss,
    dynamic_dims: tuple[int, ...] = (),
    constants: Collection[str] = (),
    guarded: bool = False,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    clip_value: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    accumulate: bool = False,
    **options: Any,
) -> TrainingStep:
    """The training step of a model in its present mode, on batches like this one.

        loss = loss(model, batch)
        gradients = autograd.grad(loss, parameters)
        parameters, optimizer_state = optimizer(parameters, gradients, optimizer_state)

    Running it gives to the last bit what eager training gives with the fused optimizer. (But where
    eager computes a function in place in a part of a tensor, as in the gates of `nn.GRU`: a graph
    has no such writes, and PyTorch rounds sigmoid and tanh otherwise where elements are not
    neighbours.) Learning rates are inputs, in the optimizer's state, and so are `max_norm`,
    `clip_value` and the scale; all other settings are constants of the graph. A parameter that the
    loss does not depend on is not updated, as in eager. Once a parameter is frozen that was
    trained, or the other way round, the step refuses to run.

        step = capture_step(model, batch, "adamw", max_norm=1.0, accumulate=True)
        state = step.state_of(model)
        for i, batch in enumerate(batches, 1):
            loss, state = (step.run if i % 4 == 0 else step.accumulate)(state, batch)

    Args:
        batch: a nest of tensors: a dict is the model's keyword arguments, a tuple the positional.
        optimizer: "sgd", "adam" or "adamw", with the options of the torch optimizer; or one of
            those, whose groups are kept.
        loss: a function of the model and the batch; by default the `loss` of the model's output.
        dynamic_dims: dimensions of the batch's tensors whose sizes stay open, e.g. (0,).
        constants: names of tensors of the batch whose values stay, e.g. ("grid_thw",): Python may
            ask for them, and other values are refused later.
        guarded: where Python asks for a value that is not known, take that of the example, with the
            generators as they are; the graph refuses others (see `Branches`).
        max_norm, norm_type: clip the gradients of all parameters as `clip_grad_norm_` does.
        clip_value: clip them as `clip_grad_value_` does.
        scaler: scale the loss as this one does, unscale the gradients (`scaler.unscale_`, before
            they are clipped), leave the update out where one is inf or NaN, and adapt the scale.
            Its settings are constants. The loss that is returned is not scaled.
        accumulate: gradients are part of the state, and `TrainingStep.accumulate` adds to them.

    Raises:
        ModelError: it is no module, or has nothing to train.
        CaptureError: the model does what cannot be traced (`diagnose` says more); or other tensors
            of it share the memory of a trained parameter; or there are hooks on gradients; or the
            loss is not one number that depends on a parameter.
    """
    check_model(model, ())
    rule = OptimizerRule.of(optimizer, model, **options)
    scaling = scaler.state_dict() if scaler is not None else {}  # empty if it is disabled
    gradients = GradientRule(max_norm, norm_type, clip_value, scaling or None, accumulate)
    forward = FunctionalModel(model, loss, batch, constants, guarded)
    step = _capture(model, forward, rule, gradients, dynamic_dims, updates=True)
    # without these, the step of an optimizer depends on the gradients of its own parameters alone
    is_joint = isinstance(optimizer, str) or accumulate or scaling or max_norm is not None
    names = None if is_joint else {name for group in rule.groups for name in group.names}
    step.requires_grad = RequiresGrad(model, names)
    if accumulate:
        step.accumulation = _capture(model, forward, rule, gradients, dynamic_dims, updates=False)
        step.accumulation.requires_grad = step.requires_grad
    return step


def _capture(
    model: nn.Module,
    forward: FunctionalModel,
    rule: OptimizerRule,
    gradients: GradientRule,
    dynamic_dims: tuple[int, ...],
    *,
    updates: bool,
) -> TrainingStep:
    """The step with its update, or without: then the new gradients are results."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    check_no_hooks(trained)
    device = next(model.parameters()).device
    guarded = forward.asked is not None
    more = _optimizer_inputs(rule, model, device, guarded) if updates else {}
    more |= gradients.inputs(trained, device, updates=updates)
    inputs, tensors = [*forward.slots, *more], [*forward.values, *more.values()]
    outputs: list[Slot] = []

    def step(values: list[Tensor]) -> list[Tensor]:
        given = dict(zip(inputs, values, strict=True))
        with phase("forward"):
            value, buffers = forward(given)
            _check_loss(value)
            results = {Slot(LOSS, ""): value.detach()}
            scaled = gradients.scaled(value, given)
        leaves = [given[Slot(PARAMETER, name)] for name in trained]
        with phase("backward"):
            found = torch.autograd.grad(scaled, leaves, allow_unused=True)
        new = {}
        for name, leaf, gradient in zip(trained, leaves, found, strict=True):
            if gradient is not None:
                check_dense(name, gradient)
                new[name] = relaid_like(gradient, leaf)  # as autograd accumulates it
        with phase("backward"), torch.no_grad():
            new = gradients.accumulated(new, given)
        if updates:
            with phase("optimizer"), torch.no_grad():
                results |= _update(rule, gradients, given, new, guarded)
        else:
            results |= {Slot(GRADIENT, name): value for name, value in new.items()}
        results |= buffers
        outputs[:] = results
        return list(results.values())

    fakes = fake_inputs(tensors, inputs, dynamic_dims)
    module = capture(step, fakes, tensors, inputs, outputs, reseed=not guarded)
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    check_unshared({**own, **held_tensors(module)}, trained)
    mark_constants(module, forward.constants)
    left = drop_unchanged_buffers(module, outputs)
    return TrainingStep(module, inputs, left, rule, gradients, guarded)


def _check_loss(value: Any) -> None:
    """Raise CaptureError for what has no gradient, or more than one."""
    if not isinstance(value, Tensor):
        text, fix = f"the loss is a {type(value).__name__}", "return a tensor, without item()"
    elif value.numel() != 1:
        text, fix = f"the loss has the shape {list(value.shape)}", "reduce it: loss.mean()"
    elif not value.requires_grad:
        text = "the loss depends on no parameter that requires a gradient"
        fix = "compute it from the model's output, without detach() and no_grad()"
    else:
        return
    raise CaptureError.because(Reason(text, fix))


def _optimizer_inputs(
    rule: OptimizerRule, model: nn.Module, device: torch.device, guarded: bool
) -> dict[Slot, Tensor]:
    """Learning rates, counters of steps and the moments, as in a first step.

    But variances are 1: beside a variance of 0, a gradient that is rounding alone makes a whole
    step, and graphs that are rounded otherwise could not be compared.
    """
    parameters = dict(model.named_parameters())
    values = {
        Slot(STATE, f"{RATE}{i}"): setting(group.options["lr"], device)
        for i, group in enumerate(rule.groups)
    }
    if rule.counts_steps:
        for name in (name for group in rule.groups for name in group.names):
            values[counter(name, guarded)] = torch.zeros((), device=device)
    for group in rule.groups:
        for moment in rule.moments(group):
            for name in group.names:
                kind = torch.ones_like if moment == "exp_avg_sq" else torch.zeros_like
                values[Slot(STATE, f"{moment}.{name}")] = kind(parameters[name]).detach()
    return values


def _update(
    rule: OptimizerRule,
    gradient_rule: GradientRule,
    given: dict[Slot, Tensor],
    found: dict[str, Tensor],
    guarded: bool,
) -> dict[Slot, Tensor]:
    """The new parameters and the new optimizer state."""
    prepared = gradient_rule.prepared(found, given)
    gradients, results, skipped = prepared.gradients, prepared.results, prepared.found_inf
    counters = dict.fromkeys(counter(name, guarded) for name in gradients)
    steps = {slot: given[slot] + 1 for slot in counters} if rule.counts_steps else {}
    results |= {slot: n if skipped is None else n - skipped for slot, n in steps.items()}
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
            [steps[counter(name, guarded)] for name in names] if steps else [],
            given[Slot(STATE, f"{RATE}{i}")],
            skipped,
        )
        results |= {Slot(PARAMETER, n): p for n, p in zip(names, parameters, strict=True)}
        for row, values in zip(keys, moments, strict=True):
            results |= dict(zip(row, values, strict=True))
    return results
