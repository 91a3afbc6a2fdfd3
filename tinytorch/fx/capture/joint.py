"""Forward and backward of a model as one graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from tinytorch.fx.capture.compiling import compiling
from tinytorch.fx.capture.functional import (
    FunctionalModel,
    buffers_of,
    capture,
    drop_unchanged_buffers,
    fake_inputs,
    mark_constants,
    phase,
    tracing,
)
from tinytorch.fx.capture.known_values import KnownValues
from tinytorch.fx.capture.shared_memory import check_dense, check_unshared, held_tensors
from tinytorch.fx.capture.slots import (
    GRADIENT,
    INPUT_GRADIENT,
    LOSS,
    OUTPUT,
    PARAMETER,
    TANGENT,
    CaptureError,
    Slot,
    batch_slots,
    bind,
    model_slots,
)
from tinytorch.fx.models import Batch, Loss, call, check_model


@dataclass
class JointGraph:
    """Forward and backward as one functional graph.

    Attributes:
        module: takes the inputs and returns the outputs, both flat, in the order of the slots.
        inputs: parameters, buffers, batch, and without a loss a tangent for each output that
            depends on a parameter: the gradient of whatever is computed from it. It has the
            name of its output.
        outputs: the loss or the outputs of the model, gradients of parameters and of those tensors
            of the batch that require them, and the buffers that the model writes.
        result_leaves: the leaves of the model's result; a slot where one is a tensor of `outputs`.
        result_spec: the form of the model's result.
    """

    module: torch.fx.GraphModule
    inputs: list[Slot]
    outputs: list[Slot]
    result_leaves: list[Any]
    result_spec: TreeSpec

    def flat_inputs(
        self, model: nn.Module, batch: Batch, tangents: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """The arguments of `module`, checked; parameters and buffers are those of a model."""
        slots, tensors = model_slots(model)
        in_batch, batch_tensors, _ = batch_slots(batch)
        expected = [slot for slot in self.inputs if slot.role == TANGENT]
        if len(tangents) != len(expected):
            raise CaptureError(f"the graph takes {len(expected)} tangents, not {len(tangents)}")
        slots = [*slots, *in_batch, *expected]
        values = [t.detach() for t in (*tensors, *batch_tensors, *tangents)]
        return bind(self.module, self.inputs, dict(zip(slots, values, strict=True)))

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The model's result from the tensors with the role output (or loss)."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(x, Slot) else x for x in self.result_leaves]
        return tree_unflatten(leaves, self.result_spec)


def capture_joint(
    model: nn.Module,
    batch: Batch,
    loss: Loss | None = None,
    *,
    dynamic_dims: tuple[int, ...] = (),
    constants: Collection[str] = (),
    guarded: bool = False,
) -> JointGraph:
    """Forward and backward of a model in its present mode, on batches like this one.

    Args:
        batch: a nest of tensors: a dict is the model's keyword arguments, a tuple the positional.
        loss: a function of the model and the batch. Without it the backward starts from tangents,
            which are inputs, for all outputs of the model.
        dynamic_dims: dimensions of the batch's tensors whose sizes stay open, e.g. (0,).
        constants: names of tensors of the batch whose values stay, e.g. ("grid_thw",): Python may
            ask for them, and other values are refused later.
        guarded: where Python asks for a value that is not known, take that of the example, with the
            generators as they are; the graph refuses others (see `Branches`).

    Raises:
        ModelError: it is no module.
        CaptureError: the model does what cannot be traced; `diagnose` says more.
    """
    check_model(model, (), trains=False)
    forward = FunctionalModel(model, loss or call, batch, constants, guarded)
    slots, values = list(forward.slots), list(forward.values)
    fakes = fake_inputs(values, slots, dynamic_dims)
    leaves = [s for s, t in zip(slots, values, strict=True) if t.requires_grad]
    if not leaves:
        raise CaptureError("no parameter and no tensor of the batch requires a gradient")
    tangents: list[Slot] = []
    if loss is None:
        for i, fake in _differentiable(forward, fakes):
            tangents.append(Slot(TANGENT, str(i)))
            fakes.append(fake)
            values.append(torch.ones(_sizes(fake), dtype=fake.dtype, device=fake.device))
    role = LOSS if loss is not None else OUTPUT
    outputs: list[Slot] = []
    form: list[Any] = []

    def joint(flat: list[Tensor]) -> list[Tensor]:
        given = dict(zip([*slots, *tangents], flat, strict=True))
        with phase("forward"):
            result, buffers = forward(given)
            everything, spec = tree_flatten(result)
            found = [x for x in everything if isinstance(x, Tensor)]
            results = {Slot(role, str(i)): x.detach() for i, x in enumerate(found)}
        names = iter(list(results))
        form[:] = [[next(names) if isinstance(x, Tensor) else x for x in everything], spec]
        sources = [x for x in found if x.requires_grad]
        with phase("backward"):
            gradients = torch.autograd.grad(
                sources,
                [given[s] for s in leaves],
                [given[s] for s in tangents] or None,
                allow_unused=True,
            )
        for slot, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                check_dense(slot.name, gradient)
                kind = GRADIENT if slot.role == PARAMETER else INPUT_GRADIENT
                results[Slot(kind, slot.name)] = gradient
        results |= buffers
        outputs[:] = results
        return list(results.values())

    inputs = [*slots, *tangents]
    module = capture(joint, fakes, values, inputs, outputs, reseed=not guarded)
    held = {name: x for name, x in held_tensors(module).items() if x.requires_grad}
    check_unshared(held, {n: p for n, p in model.named_parameters() if p.requires_grad})
    mark_constants(module, forward.constants)
    return JointGraph(module, inputs, drop_unchanged_buffers(module, outputs), *form)


def _differentiable(forward: FunctionalModel, fakes: Sequence[Any]) -> list[tuple[int, Any]]:
    """The outputs that depend on what requires a gradient, as fake tensors, with their numbers."""
    known = KnownValues()
    known.follow(buffers_of(forward.slots, fakes, forward.values))
    with fakes[0].fake_mode, compiling(), known, tracing():
        given = {
            slot: fake.detach().requires_grad_(value.requires_grad)
            for slot, fake, value in zip(forward.slots, fakes, forward.values, strict=True)
        }
        leaves, _ = tree_flatten(forward(given)[0])
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        return [(i, x.detach()) for i, x in enumerate(tensors) if x.requires_grad]


def _sizes(fake: Tensor) -> list[int]:
    """The sizes in the example. Making an int of an open size would fix it."""
    return [n if isinstance(n, int) else n.node.hint for n in fake.shape]
