"""`compare_tracers`: what each of PyTorch's tracers keeps of a model, and what it loses."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tinytorch.fx.diagnosis.diagnosis import WORKS, Diagnosis, Verdict, diagnose
from tinytorch.fx.diagnosis.observe import ModelSubject, Trial, difference, observe
from tinytorch.fx.diagnosis.tracers import TRACERS, quiet, trace_with
from tinytorch.fx.models import Batch
from tinytorch.fx.optimize.devices import devices_of, generators_kept

#: By tracer: what its graph is made of and what that loses, for any model.
NATURE: dict[str, tuple[str, str]] = {
    "symbolic_trace": ("modules and Python calls, by name", "control flow, sizes, types"),
    "export": ("ATen ops, open sizes, checked inputs", "Python, modules, train/eval switch"),
    "dynamo": ("Python semantics, by guards and graph breaks", "one graph for all"),
    "make_fx": ("ATen ops of the forward", "modules, sizes, gradient rules, checks of inputs"),
    "capture": ("ATen ops of forward and backward, checked inputs", "Python, modules"),
    "jit.trace": ("ops of one run, in TorchScript", "control flow, gradient rules"),
    "jit.script": ("control flow, in TorchScript", "most of Python, hooks, autograd.Function"),
}


@dataclass
class Row:
    """The outcome of one tracer on one model.

    Attributes:
        verdict: of `diagnose`.
        gradients: they are those of the model.
        other_sizes: another batch size gives what the model gives; None if the model has no other.
        mode_switch: `train()` and `eval()` still act; None if the mode makes no difference.
        keeps, loses: by the tracer's nature.
    """

    verdict: Verdict
    gradients: bool
    other_sizes: bool | None
    mode_switch: bool | None
    keeps: str
    loses: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, as for JSON."""
        return {**self.verdict.to_dict(), "gradients": self.gradients,
                "other_sizes": self.other_sizes, "mode_switch": self.mode_switch,
                "keeps": self.keeps, "loses": self.loses}  # fmt: skip


@dataclass
class TracerTable:
    """The result of `compare_tracers`.

    Attributes:
        diagnosis: what the rows were made from.
        rows: by tracer.
    """

    diagnosis: Diagnosis
    rows: dict[str, Row]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, as for JSON."""
        return {"model": self.diagnosis.model, "rows": [r.to_dict() for r in self.rows.values()]}

    def __str__(self) -> str:
        head = (f"{'tracer':15} {'':6} {'seconds':>7} {'graphs':>6} {'nodes':>6} "
                f"{'gradients':>9} {'sizes':>6} {'modes':>6}  keeps / loses")  # fmt: skip
        lines = [self.diagnosis.model, head]
        for name, row in self.rows.items():
            v = row.verdict
            facts = [_word(x) for x in (row.gradients, row.other_sizes, row.mode_switch)]
            lines.append(
                f"{name:15} {v.status:6} {v.seconds:7.2f} {v.graphs:6} {v.nodes:6} "
                f"{facts[0]:>9} {facts[1]:>6} {facts[2]:>6}  {row.keeps} / {row.loses}"
            )
        return "\n".join(lines)


def compare_tracers(model: nn.Module, inputs: Batch) -> TracerTable:
    """Trace a model in every way there is, and compare time, size and what is kept.

    Args:
        inputs: a dict of keyword arguments, or a tuple of positional ones.

    Raises:
        Exception: whatever the model raises on these inputs.
    """
    found = diagnose(model, inputs, tuple(TRACERS))
    rows = {}
    with quiet(), generators_kept(devices_of(model)):
        for name, verdict in found.verdicts.items():
            works = verdict.status == WORKS
            rows[name] = Row(
                verdict,
                works and found.with_gradients,
                _other_sizes(found, verdict),
                _switches_mode(name, model, inputs) if works else False,
                *NATURE[name],
            )
        torch._dynamo.reset()
    return TracerTable(found, rows)


def _word(fact: bool | None) -> str:
    return "-" if fact is None else "yes" if fact else "no"


def _other_sizes(found: Diagnosis, verdict: Verdict) -> bool | None:
    """At least one other size of the batch is taken, and none gives something else."""
    sizes = [name for name in found.compared_on if name.startswith("a batch")]
    if not sizes:
        return None
    refused = sum(limit.startswith("a batch") for limit in verdict.limits)
    return verdict.status == WORKS and refused < len(sizes)


def _switches_mode(name: str, model: nn.Module, inputs: Batch) -> bool | None:
    """Whether a traced model follows when it is switched to the other mode."""
    trial, other = Trial("the example", inputs, 1), not model.training
    here = observe(ModelSubject(copy.deepcopy(model)), trial, False)
    try:
        there = observe(ModelSubject(copy.deepcopy(model).train(other)), trial, False)
    except Exception:  # a model that runs in one mode only has no switch
        return None
    if difference(here, there) is None:
        return None
    traced = trace_with(name, copy.deepcopy(model), inputs)
    try:
        traced.model.train(other)
        return difference(observe(traced, trial, False), there) is None
    except Exception:  # export refuses to switch
        return False
