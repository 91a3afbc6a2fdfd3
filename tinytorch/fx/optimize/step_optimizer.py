"""Passes over a captured training step, so that it takes less memory and time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tinytorch.fx.passes  # noqa: F401  (makes the passes known by name)
from tinytorch.fx.capture.step import TrainingStep
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes.base import OptimizationPass
from tinytorch.graph.passes.manager import PassManager, Report

#: What changes no bit of the step, and lets it update the state in place as early as it can.
STEP_PASSES = ("algebra", "cse", "dce", "reinplace", "early-update")


def optimize_step(
    step: TrainingStep,
    passes: Sequence[OptimizationPass | str] = STEP_PASSES,
    *,
    trials: int = 1,
    rounds: int = 1,
) -> tuple[TrainingStep, Report]:
    """A step that computes the same, and what each pass did.

        step, report = optimize_step(capture_step(model, batch, "adamw", lr=1e-4))
        loss, state = step.run(state, batch)

    With ("attention", *STEP_PASSES) attention that is written out becomes one op, and its backward
    another: the step keeps nothing of the size of the scores. Results change by rounding.

    After "reinplace" a run updates the state that it is given: parameters and moments of the new
    state are the very tensors of the old one. So it needs no second copy of them; and after
    "early-update" no more than a few gradients are there at a time. The step that is passed in
    stays as it is. If gradients are accumulated, that graph is optimized too; the report goes on
    with what the passes did there.

    Args:
        passes: names or passes, in order.
        trials: inputs on which the graph is compared after each pass; each takes the memory of a
            step and a copy of the state. 0: only check that it is well formed.
        rounds: apply all passes again, at most so often, until none changes anything.

    Raises:
        KeyError: no such pass.
    """
    graph, report = PassManager(passes, TorchSemantics(), rounds, trials).run(step.module.graph)
    module = graph.owning_module
    module.meta.update(step.module.meta)
    module.recompile()
    accumulation = step.accumulation
    if accumulation is not None:
        accumulation, more = optimize_step(accumulation, passes, trials=trials, rounds=rounds)
        report.results.extend(more.results)
    return dataclasses.replace(step, module=module, accumulation=accumulation), report
