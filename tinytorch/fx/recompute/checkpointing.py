"""`checkpoint`: a model whose training stays within a memory budget.

    model = tinytorch.fx.checkpoint(model, inputs, budget=0.4)
    loss = model(**inputs).loss
    loss.backward()

Forward and backward are captured as one graph, in which the backward computes again what the budget
leaves no room for; then they are cut apart again and called by autograd. The results are those of
the model, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

import tinytorch.fx.passes  # noqa: F401  (makes the passes known by name)
from tinytorch.bench.units import format_bytes
from tinytorch.errors import TinyTorchError
from tinytorch.fx.capture.autocast import autocast_off, present_autocast
from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.capture.slots import BUFFER, batch_slots, model_slots
from tinytorch.fx.models import Batch, check_model, tensors_of
from tinytorch.fx.recompute.announce import Announced
from tinytorch.fx.recompute.known import known_frontier
from tinytorch.fx.recompute.mincut import STRATEGIES
from tinytorch.fx.recompute.partition import Partition, partition
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import OptimizationPass, get_pass_by_name
from tinytorch.graph.recompute.budget import Budget, parse_budget
from tinytorch.graph.recompute.frontier import Frontier
from tinytorch.graph.recompute.problem import Plan, Problem
from tinytorch.graph.recompute.rewrite import rewrite

CLEANING = ("algebra", "cse", "dce")  # passes that run before anything is chosen
#: Passes that run then, and lower the memory of the backward whatever is chosen.
ORDERING = ("backward-order", "gradients-in-place")


@dataclass
class Compiled:
    """A model for batches of one shape.

    Attributes:
        joint: forward and backward, rewritten.
        parts: the same as two graphs.
        plan: what is kept.
        frontier: the plans it was chosen from.
        flops: of forward and backward, when nothing is computed again.
    """

    joint: JointGraph
    parts: Partition
    plan: Plan
    frontier: Frontier
    flops: int

    def to_dict(self) -> dict[str, Any]:
        """The plan's cost, beside that of keeping everything and the lowest peak there is."""
        graph = self.joint.module.graph
        return {
            "peak": self.plan.peak,
            "everything_peak": self.frontier.everything.peak,
            "lowest_peak": self.frontier.plans[0].peak,
            "extra_flops": self.plan.flops / self.flops,
            "recomputed_nodes": sum("recomputed" in n.meta for n in graph.nodes),
            "strategy": self.plan.source,
        }

    def __str__(self) -> str:
        facts = self.to_dict()
        peak, whole, lowest = (
            format_bytes(facts[k]) for k in ("peak", "everything_peak", "lowest_peak")
        )
        return (
            f"peak {peak} instead of {whole} (lowest {lowest}), {facts['recomputed_nodes']} nodes "
            f"computed again for {facts['extra_flops']:.1%} more FLOPs, by {self.plan.source}"
        )


class _Step(torch.autograd.Function):
    """Runs the two graphs of a partition."""

    @staticmethod
    def forward(ctx: Any, parts: Partition, *inputs: Tensor) -> tuple[Tensor, ...]:
        with autocast_off():
            results = parts.forward(list(inputs))
        outputs = [x.view_as(x) if any(x is y for y in inputs) else x
                   for x in results[: len(parts.outputs)]]  # fmt: skip
        kept = results[len(parts.outputs) :]
        ctx.parts = parts
        # what is neither an input nor an output lives here, so that it can die in the backward
        ctx.kept = [x if i is None else None
                    for x, i in zip(kept, parts.kept_outputs, strict=True)]  # fmt: skip
        shared = [outputs[i] for i in parts.kept_outputs if i is not None]
        # buffers get their new values before the backward, which is to see the old ones
        saved = [inputs[i].clone() if i in parts.written else inputs[i] for i in parts.kept_inputs]
        ctx.save_for_backward(*shared, *saved)
        constant = [x for i, x in enumerate(outputs) if i not in parts.tangents]
        ctx.mark_non_differentiable(*constant)
        ctx.set_materialize_grads(False)  # None tells which outputs nothing was computed from
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        parts, kept = ctx.parts, ctx.kept
        if torch.is_grad_enabled():  # or what depends on the gradients would have none, in silence
            raise TinyTorchError(
                "gradients of a checkpointed model cannot be differentiated (create_graph=True): "
                "call the model itself for that, or use capture_step"
            )
        if kept is None:
            raise TinyTorchError(
                "the backward of a checkpointed model ran before and freed what it kept; "
                "call the model again"
            )
        ctx.kept = None
        saved = list(ctx.saved_tensors)
        arguments = [x if i is None else saved.pop(0)
                     for x, i in zip(kept, parts.kept_outputs, strict=True)]  # fmt: skip
        arguments += [*saved, *(gradients[i] for i in parts.tangents)]
        unused = frozenset(i for i in parts.tangents if gradients[i] is None)
        kept.clear()
        found: list[Tensor | None] = [None] * len(parts.inputs)
        with autocast_off():
            results = parts.backward_without(unused)(arguments)
        for i, gradient, sources in zip(parts.gradients, results, parts.sources, strict=True):
            if not sources or sources - unused:  # else nothing that is used depends on this input
                found[i] = gradient
        return (None, *found)


class Selected(nn.Module):
    """A model of whose result only a part is used."""

    def __init__(self, model: nn.Module, select: Callable[[Any], Any]) -> None:
        super().__init__()
        self.model = model
        self.select = select

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.select(self.model(*args, **kwargs))


class Checkpointed(nn.Module):
    """A model that trains within a memory budget; see `checkpoint`.

    For each shape of batch, for training and evaluation mode and for autocast, it is captured once;
    and again where a layer is another one, or a parameter has another shape or dtype. Where no
    gradients are asked for, the model itself runs. Its gradients cannot be differentiated: a
    backward with create_graph=True is a TinyTorchError.

    Attributes:
        model: what was checkpointed; parameters and buffers are its own.
    """

    def __init__(
        self,
        model: nn.Module,
        budget: Budget,
        select: Callable[[Any], Any] | None = None,
        passes: Sequence[OptimizationPass] = (),
        strategies: Sequence[str] = tuple(STRATEGIES),
    ) -> None:
        super().__init__()
        self.model = model
        self.budget = parse_budget(budget)
        # not registered as a module again: the names of parameters stay
        self._traced = [model if select is None else Selected(model, select)]
        self._passes = list(passes)
        self._strategies = tuple(strategies)
        self._compiled: dict[Hashable, Compiled] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._traced[0]
        if not torch.is_grad_enabled():
            return traced(*args, **kwargs)
        if args and kwargs:
            raise TypeError("call a checkpointed model by position or by keyword, not by both")
        return self.run(kwargs or args)

    def run(self, batch: Batch) -> Any:
        """The model on a batch: a dict of keyword arguments, or a tuple of positional ones."""
        compiled = self.compiled(batch)
        slots, tensors = model_slots(self._traced[0])
        in_batch, batch_tensors, _ = batch_slots(batch)
        known = dict(zip([*slots, *in_batch], [*tensors, *batch_tensors], strict=True))
        inputs = [known[s] for s in compiled.parts.inputs]
        results = _Step.apply(compiled.parts, *inputs)  # type: ignore[no-untyped-call]
        outputs = dict(zip(compiled.parts.outputs, results, strict=True))
        with torch.no_grad():
            for slot, value in outputs.items():
                if slot.role == BUFFER:
                    known[slot].copy_(value)
        return compiled.joint.result([v for s, v in outputs.items() if s.role != BUFFER])

    def compiled(self, batch: Batch) -> Compiled:
        """The code that runs for batches like this one; made when it is first asked for.

        Raises:
            CaptureError: the model cannot be captured.
            RecomputeError: the budget cannot be met; the message says the lowest that can.
        """
        leaves, spec = tree_flatten(batch)
        key = (
            spec,
            tuple((module, module.training) for module in self.model.modules()),
            tuple((x.shape, x.dtype, x.device, x.requires_grad) for x in leaves),
            tuple((p.shape, p.dtype, p.requires_grad) for p in self.model.parameters()),
            present_autocast([*self.model.parameters(), *tensors_of(batch)]),
        )
        if key not in self._compiled:
            self._compiled[key] = self._compile(batch)
        return self._compiled[key]

    def _compile(self, batch: Batch) -> Compiled:
        joint, problem = training_problem(self._traced[0], batch, self._passes)
        with Announced("searching what to compute again") as progress:
            frontier = known_frontier(problem, self._strategies, progress=progress)
        plan = frontier.within(self.budget)
        rewrite(problem, plan)
        joint.module.recompile()
        return Compiled(joint, partition(joint), plan, frontier, problem.total_flops)


def training_problem(
    model: nn.Module, batch: Batch, passes: Sequence[OptimizationPass] = ()
) -> tuple[JointGraph, Problem]:
    """Forward and backward as one graph, cleaned and ordered, and what there is to choose in it.

    Args:
        passes: that run before the backward is ordered.

    Raises:
        CaptureError: the model cannot be captured.
    """
    joint = capture_joint(model, batch)
    semantics = TorchSemantics()
    cleaning, ordering = (
        [get_pass_by_name(name)(semantics) for name in names] for names in (CLEANING, ORDERING)
    )
    for each in (*cleaning, *passes, *(cleaning if passes else ()), *ordering):
        each.run(joint.module.graph)
    joint.module.recompile()
    written = {(s.role, s.name) for s in joint.outputs if s.role == BUFFER}
    given = joint.module.graph.find_nodes(op="placeholder")
    copied = [n for n in given if (n.meta["role"], n.meta["name"]) in written]
    held = sum(n.meta["val"].untyped_storage().nbytes() for n in copied)
    return joint, Problem(joint.module.graph, semantics, held_bytes=held)


def checkpoint(
    model: nn.Module,
    inputs: Batch,
    budget: Budget,
    *,
    select: Callable[[Any], Any] | None = None,
    passes: Sequence[OptimizationPass] = (),
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Checkpointed:
    """A model whose forward and backward together take no more memory than a budget.

    Args:
        model: with parameters that require gradients; it is shared, not copied.
        inputs: what it is called with: a dict of keyword arguments or a tuple; only shapes count.
        budget: bytes beyond parameters, buffers and batch, gradients included (an integer, or
            "512MiB"); or as a float a fraction of what the forward and backward take when nothing
            is computed again. The search for a plan is kept on disk.
        select: what of the model's result is used, as `lambda out: out.loss`. The backward starts
            from all that is returned, so large outputs that nothing is computed from cost memory.
        passes: on the joint graph before anything is chosen, as `ChunkedCrossEntropy`.
        strategies: which ways of choosing take part.

    Returns:
        A module with the parameters of the model. Batches of other shapes are captured when they
        come, under the same budget.

    Raises:
        CaptureError: the model cannot be captured; `diagnose` says more.
        RecomputeError: the budget is none, or cannot be met; the message says the lowest that can.
        ModelError: the model has nothing to train, or its inputs are of another dtype.
    """
    check_model(model, inputs)
    made = Checkpointed(model, budget, select, passes, strategies)
    made.training = model.training  # a part of the model may be otherwise
    made.compiled(inputs)
    return made
