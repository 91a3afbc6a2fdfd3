"""`TrainingStep`: a captured training step, run with the state of a model and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.fx
from torch import Tensor, nn

from tinytorch.fx.capture.autocast import autocast_off
from tinytorch.fx.capture.gradient_rule import SCALE, TRACKER, GradientRule, scaler_inputs
from tinytorch.fx.capture.optimizers import OptimizerRule, setting
from tinytorch.fx.capture.requires_grad import RequiresGrad
from tinytorch.fx.capture.slots import (
    BUFFER,
    GRADIENT,
    PARAMETER,
    STATE,
    CaptureError,
    Slot,
    batch_slots,
    bind,
)
from tinytorch.fx.models import Batch

RATE = "lr."  # before the number of a group, of a learning rate in the optimizer's state
STEP = Slot(STATE, "step")
State = dict[str, dict[str, Tensor]]  # by role, by name


def counter(parameter: str, guarded: bool) -> Slot:
    """The counter of steps of a parameter: one for all, or its own where layers may be left out."""
    return Slot(STATE, f"{STEP.name}.{parameter}") if guarded else STEP


@dataclass
class TrainingStep:
    """A training step as a functional graph: state and batch in, loss and new state out.

    Attributes:
        module: takes the inputs and returns the outputs, both flat, in the order of the slots.
        inputs: what the placeholders are: parameters, buffers, optimizer state, batch; gradients,
            where they are accumulated.
        outputs: what the results are: the loss, then the state that changes.
        rule: of the optimizer.
        gradients: what is done with them before the update.
        guarded: its graph is one of several (`Branches`), each of which may leave out layers: then
            every parameter has a counter of steps, as in eager PyTorch.
        requires_grad: which parameters are trained, of the model that was captured or that
            `state_of` was called with last.
        accumulation: the step that only adds to the gradients in the state; None without
            accumulate=True.
    """

    module: torch.fx.GraphModule
    inputs: list[Slot]
    outputs: list[Slot]
    rule: OptimizerRule
    gradients: GradientRule = field(default_factory=GradientRule)
    guarded: bool = False
    requires_grad: RequiresGrad | None = None
    accumulation: TrainingStep | None = None

    def run(
        self,
        state: State,
        batch: Batch,
        lr: float | Tensor | Sequence[float | Tensor] | None = None,
        *,
        max_norm: float | None = None,
        clip_value: float | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, State]:
        """One step. Nothing that is passed in is changed.

        Args:
            state: from `state_of`, or from the step before.
            batch: like the one of the capture.
            lr: the learning rate from now on, for all groups or one for each; None: as in `state`,
                where they are "lr.0", "lr.1", ... of the optimizer's state. So a schedule needs no
                new capture: `step.run(state, batch, lr=schedule.get_last_lr())`.
            max_norm, clip_value, scale: the same for clipping and for the scale of the loss, where
                the step was captured with them.

        Returns:
            The loss and the new state; what does not change is in it as it was. Where gradients are
            clipped by their norm, `state["output"]["total_norm"]` is what it was before.

        Raises:
            CaptureError: a tensor is missing, or of another shape or dtype than the captured one;
                or a setting is given that the step was captured without; or a parameter of the
                model was frozen since, or is trained since.
        """
        if self.requires_grad is not None:
            self.requires_grad.check()
        given = {"max_norm": max_norm, "clip_value": clip_value, "scale": scale}
        settings = self._rates(lr) if lr is not None else {}
        settings |= self._settings({name: x for name, x in given.items() if x is not None})
        if settings:
            state = {**state, STATE: {**state[STATE], **settings}}
        flat = self.flat_inputs(state, batch)
        with torch.no_grad(), autocast_off():
            results = self.module(*flat)
        new = {role: dict(tensors) for role, tensors in state.items()}
        for slot, value in zip(self.outputs[1:], results[1:], strict=True):
            new.setdefault(slot.role, {})[slot.name] = value
        return results[0], new

    def accumulate(self, state: State, batch: Batch) -> tuple[Tensor, State]:
        """Forward and backward of a batch whose gradients the next `run` also gets; no update.

            for i, batch in enumerate(batches, 1):
                loss, state = (step.run if i % 4 == 0 else step.accumulate)(state, batch)

        As in eager PyTorch gradients are summed: for their mean let the loss divide.

        Raises:
            CaptureError: the step was captured without accumulate=True; or as `run`.
        """
        if self.accumulation is None:
            raise CaptureError("gradients are not accumulated: capture_step(..., accumulate=True)")
        return self.accumulation.run(state, batch)

    def _rates(self, lr: float | Tensor | Sequence[float | Tensor]) -> dict[str, Tensor]:
        groups = len(self.rule.groups)
        rates = list(lr) if isinstance(lr, Sequence) else [lr] * groups
        if len(rates) != groups:
            raise CaptureError(f"lr has {len(rates)} values, but the optimizer {groups} groups")
        return self._settings({f"{RATE}{i}": rate for i, rate in enumerate(rates)})

    def _settings(self, values: Mapping[str, float | Tensor]) -> dict[str, Tensor]:
        if not values:
            return {}
        nodes = self.module.graph.find_nodes(op="placeholder")
        known = {s.name: n.meta["val"] for s, n in zip(self.inputs, nodes, strict=True)
                 if s.role == STATE}  # fmt: skip
        for name, value in values.items():
            if name not in known:
                option = "scaler" if name == "scale" else name
                raise CaptureError(
                    f"{name}={value} for a step that was captured without: give {option} to "
                    "capture_step"
                )
        return {n: torch.tensor(float(x), dtype=known[n].dtype, device=known[n].device)
                for n, x in values.items()}  # fmt: skip

    def flat_inputs(self, state: State, batch: Batch) -> list[Tensor]:
        """The arguments of `module`, checked."""
        slots, tensors, _ = batch_slots(batch)
        known = dict(zip(slots, tensors, strict=True))
        known.update({Slot(r, n): t for r, named in state.items() for n, t in named.items()})
        return bind(self.module, self.inputs, known)

    def state_of(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> State:
        """The state of a model, and of its optimizer and scaler if given; else of a first step.

        The tensors are the model's own, not copies: `run` does not write to them. Where gradients
        are accumulated, those that the model has are the beginning of the sum.

        Raises:
            CaptureError: the optimizer counts different steps for different parameters, or has
                other settings than the step was captured for; or other parameters are frozen.
        """
        if self.requires_grad is not None:
            self.requires_grad.watch(model)
            self.requires_grad.check()
        if optimizer is not None:
            self.rule.check_same(OptimizerRule.of(optimizer, model), self._trained(model))
        parameters = dict(model.named_parameters())
        device = next(iter(parameters.values())).device
        state: State = {
            PARAMETER: {name: p.detach() for name, p in parameters.items()},
            BUFFER: {name: b.detach() for name, b in model.named_buffers()},
            STATE: self._optimizer_state(parameters, optimizer, device),
        }
        values = self.gradients.inputs({}, device, updates=True)
        if self.gradients.scaler is not None and scaler is not None:
            values |= scaler_inputs(scaler.state_dict(), device)
        state[STATE] |= {slot.name: value for slot, value in values.items()}
        names = [slot.name for slot in self.inputs if slot.role == GRADIENT]
        if names:
            own = {name: parameters[name] for name in names}
            state[GRADIENT] = {
                name: torch.zeros_like(p).detach() if p.grad is None else p.grad.detach()
                for name, p in own.items()
            }
        return state

    def _trained(self, model: nn.Module) -> list[str]:
        """Names of what this step updates, and of what it does not and another might."""
        known = {name for group in self.rule.groups for name in group.names}
        return [
            name for name, p in model.named_parameters()
            if Slot(PARAMETER, name) in self.outputs or (p.requires_grad and name not in known)
        ]  # fmt: skip

    def _optimizer_state(
        self,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer | None,
        device: torch.device,
    ) -> dict[str, Tensor]:
        """Learning rates, moments and the counter of steps."""
        kept = optimizer.state if optimizer is not None else {}
        given = optimizer.param_groups if optimizer is not None else []
        state: dict[str, Tensor] = {}
        for i, group in enumerate(self.rule.groups):
            options = given[i] if given else group.options
            state[f"{RATE}{i}"] = setting(options["lr"], device)
        steps = set()
        for slot, moment, name in self._moments():
            own = kept.get(parameters[name], {})
            if slot in self.outputs:  # without a gradient there is no step
                steps.add(float(own.get("step", 0.0)))
            value = own.get(moment)
            state[slot.name] = (
                torch.zeros_like(parameters[name]) if value is None else value
            ).detach()
        if self.guarded and self.rule.counts_steps:
            for _, _, name in self._moments():
                count = float(kept.get(parameters[name], {}).get("step", 0.0))
                state[counter(name, True).name] = torch.tensor(count, device=device)
            return state
        if len(steps) > 1 and self.rule.counts_steps:
            raise CaptureError(f"parameters are at different steps, {sorted(steps)}: start anew")
        if self.rule.counts_steps:
            state[STEP.name] = torch.tensor(max(steps, default=0.0), device=device)
        return state

    def _moments(self) -> list[tuple[Slot, str, str]]:
        """What the optimizer keeps: each slot, the name of the moment, and of its parameter."""
        return [
            (Slot(STATE, f"{moment}.{name}"), moment, name)
            for group in self.rule.groups
            for moment in self.rule.moments(group)
            for name in group.names
        ]

    def write_back(
        self,
        state: State,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Copy a state into a model, and into its optimizer and scaler if given."""
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[PARAMETER][name])
            for name, buffer in model.named_buffers():
                buffer.copy_(state[BUFFER][name])
        for slot in self.outputs:
            if slot.role == GRADIENT:
                parameters[slot.name].grad = state[GRADIENT][slot.name].clone()
        if scaler is not None and self.gradients.scaler is not None:
            scale, tracker = state[STATE][SCALE.name], state[STATE][TRACKER.name]
            now = {"scale": scale.item(), "_growth_tracker": int(tracker.item())}
            scaler.load_state_dict({**scaler.state_dict(), **now})
        if optimizer is None:
            return
        for slot, moment, name in self._moments():
            if slot in self.outputs or self.guarded:  # another graph may have changed it
                own = optimizer.state[parameters[name]]
                own[moment] = state[STATE][slot.name].clone()
                if self.rule.counts_steps:
                    own["step"] = state[STATE][counter(name, self.guarded).name].clone()
