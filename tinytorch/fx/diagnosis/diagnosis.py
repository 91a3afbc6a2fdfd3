"""`diagnose`: is a model traceable, by which tracer, and if not, why not and what to do.

A tracer can be wrong without a word: what it recorded holds for the values, the shapes and the
state of the trace. So each traced model is compared with the model itself: results, gradients,
buffers, inputs and the random generator, on other values, other signs, other sizes of the batch,
and on a second call.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import nn

from tinytorch.fx.capture.slots import UnrepeatableError
from tinytorch.fx.diagnosis.observe import (
    ModelSubject,
    Observation,
    Trial,
    difference,
    observe,
    trials,
)
from tinytorch.fx.diagnosis.reasons import Line, Reason, explain
from tinytorch.fx.diagnosis.suspects import first_reason, suspects
from tinytorch.fx.diagnosis.tracers import Traced, quiet, trace_with
from tinytorch.fx.models import Batch
from tinytorch.fx.optimize.devices import devices_of, generators_kept

DIAGNOSED = ("symbolic_trace", "export", "dynamo", "make_fx", "capture")
WORKS, FAILS, WRONG = "works", "fails", "wrong"
#: Where to look first, by what differs.
GRADIENTS = ("no_grad", "function", "hook", "numpy", "value", "state", "in_place")
AGAIN = ("state", "global", "random", "clock", "hook", "in_place", "value")
VALUES = ("state", "global", "random", "clock", "numpy", "value", "branch", "hook", "in_place")
SIZES = ("shape", "branch", "value", "state", "global")
UNSTABLE = ("clock", "global", "random", "state", "hook")


@dataclass
class Verdict:
    """The outcome of one tracer.

    Attributes:
        tracer: its name.
        status: "works", "fails" (it says so itself) or "wrong" (it does not).
        what: what differs from the model, and on which inputs, if it is wrong.
        reason: why, where and what to do, unless it works.
        limits: inputs that the model takes and the traced one refuses, with its words.
        seconds: that tracing took; dynamo traces in its first call.
        graphs, nodes: how many it made.
    """

    tracer: str
    status: str
    what: str = ""
    reason: Reason | None = None
    limits: list[str] = field(default_factory=list)
    seconds: float = 0.0
    graphs: int = 0
    nodes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, as for JSON."""
        reason = None
        if self.reason is not None:
            line = self.reason.line
            reason = {"text": self.reason.text, "fix": self.reason.fix, "error": self.reason.error,
                      "line": str(line) if line else None}  # fmt: skip
        return {"tracer": self.tracer, "status": self.status, "what": self.what, "reason": reason,
                "limits": self.limits, "seconds": self.seconds, "graphs": self.graphs,
                "nodes": self.nodes}  # fmt: skip

    def __str__(self) -> str:
        made = f"{self.graphs} graph{'s' * (self.graphs != 1)}, {self.nodes} nodes, "
        lines = [f"{self.tracer:15} {self.status:6} {made}{self.seconds:.2f} s"]
        if self.what:
            lines.append(f"  {self.what}")
        if self.reason:
            lines += [f"  {line}" for line in str(self.reason).splitlines()]
        return "\n".join([*lines, *(f"  refuses {limit}" for limit in self.limits)])


@dataclass
class Diagnosis:
    """The result of `diagnose`.

    Attributes:
        model: name of its class.
        verdicts: by tracer.
        compared_on: what the inputs were on which the traced model was compared.
        with_gradients: gradients were compared too; they are, if the model takes inputs that
            require them.
    """

    model: str
    verdicts: dict[str, Verdict]
    compared_on: list[str]
    with_gradients: bool

    def working(self) -> list[str]:
        """The tracers that can be used."""
        return [name for name, v in self.verdicts.items() if v.status == WORKS]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, as for JSON."""
        return {"model": self.model, "compared_on": self.compared_on,
                "with_gradients": self.with_gradients,
                "verdicts": [v.to_dict() for v in self.verdicts.values()]}  # fmt: skip

    def __str__(self) -> str:
        usable = ", ".join(self.working()) or "no tracer"
        head = f"{self.model}: {usable} can be used (compared on {', '.join(self.compared_on)})"
        return "\n".join([head, *map(str, self.verdicts.values())])


def diagnose(model: nn.Module, inputs: Batch, tracers: Sequence[str] = DIAGNOSED) -> Diagnosis:
    """Try tracers on a model in its present mode, and compare what they made with the model.

    The model itself is neither called nor changed: copies are. Code that torch.compile has compiled
    in this process is compiled anew at its next call.

    Args:
        inputs: a dict of keyword arguments, or a tuple of positional ones.
        tracers: of "symbolic_trace", "export", "dynamo", "make_fx", "capture", "jit.trace",
            "jit.script".

    Raises:
        Exception: whatever the model raises on these inputs.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> diagnose(model, (torch.ones(4, 2),), ["symbolic_trace", "capture"]).working()
    ['symbolic_trace', 'capture']
    """
    with generators_kept(devices_of(model)), quiet():
        tried, with_gradients = trials(inputs, lambda: ModelSubject(copy.deepcopy(model)))
        case = _Case(model, inputs, tried, with_gradients)
        verdicts = {name: case.judge(name) for name in tracers}
        torch._dynamo.reset()
    names = [trial.name for trial in tried]
    return Diagnosis(type(model).__name__, verdicts, names, with_gradients)


class _Case:
    """A model, the inputs to try it on, and what it does itself."""

    def __init__(
        self, model: nn.Module, inputs: Batch, tried: list[Trial], with_gradients: bool
    ) -> None:
        self.model, self.inputs = model, inputs
        self.tried, self.with_gradients = tried, with_gradients
        self.suspects = suspects(model)
        self.expected = self._eager(tried)
        self.unstable = self._unstable()

    def _eager(self, tried: list[Trial]) -> list[Observation]:
        """What a copy of the model does, call after call."""
        subject = ModelSubject(copy.deepcopy(self.model))
        return [observe(subject, trial, self.with_gradients) for trial in tried]

    def _unstable(self) -> str | None:
        """What differs between two copies of the model itself."""
        pairs = zip(self._eager(self.tried), self.expected, strict=True)
        return next((d for a, b in pairs if (d := difference(a, b)) is not None), None)

    def judge(self, name: str) -> Verdict:
        """Trace, and compare."""
        start = perf_counter()
        try:
            traced = self._trace(name)
            seconds = perf_counter() - start
            found = observe(traced, self.tried[0], self.with_gradients)
        except Exception as error:  # tracers and models raise anything
            unstable = isinstance(error, UnrepeatableError)
            known = isinstance(getattr(error, "reason", None), Reason)
            reason = self._unstable_reason() if unstable and not known else explain(error)
            return Verdict(name, FAILS, reason=reason, seconds=perf_counter() - start)
        if name == "dynamo":
            seconds = perf_counter() - start
        verdict = Verdict(name, WORKS, seconds=seconds)
        if self.unstable:
            verdict.status, verdict.what = WRONG, f"{self.unstable}, in the model itself"
            verdict.reason = self._unstable_reason()
        else:
            self._compare(traced, found, verdict)
        verdict.graphs, verdict.nodes = len(traced.graphs), traced.node_count
        return verdict

    def _trace(self, name: str) -> Traced:
        return trace_with(name, copy.deepcopy(self.model), self.inputs)

    def _compare(self, traced: Traced, first: Observation, verdict: Verdict) -> None:
        """Compare on all inputs. Where the traced model refuses, begin anew without these."""
        taken, observed = [self.tried[0]], [first]
        for trial in self.tried[1:]:
            try:
                observed.append(observe(traced, trial, self.with_gradients))
                taken.append(trial)
            except Exception as error:
                words = explain(error).error
                verdict.limits.append(f"{trial.name}: {words}")
        if verdict.limits:
            traced = self._trace(verdict.tracer)
            try:
                observed = [observe(traced, trial, self.with_gradients) for trial in taken]
            except Exception as error:
                verdict.status, verdict.reason = FAILS, explain(error)
                return
        expected = self._eager(taken) if verdict.limits else self.expected
        for trial, a, b in zip(taken, observed, expected, strict=True):
            differs = difference(a, b)
            if differs is not None:
                verdict.status, verdict.what = WRONG, f"{differs}, for {trial.name}"
                verdict.reason = self._why(differs, trial)
                return

    def _why(self, differs: str, trial: Trial) -> Reason:
        order: tuple[str, ...]
        if differs.startswith("gradient"):
            order = GRADIENTS
        elif trial.name.startswith("the example"):
            order = AGAIN
        else:
            order = SIZES if trial.name.startswith("a batch") else VALUES
        everything = (*order, *VALUES, *SIZES, *GRADIENTS)
        return first_reason(self.suspects, everything) or Reason(
            f"the traced model is another one: {differs}",
            "use a tracer that works, or compare the graph with the code",
        )

    def _unstable_reason(self) -> Reason:
        found = first_reason(self.suspects, UNSTABLE)
        return found or Reason(
            "the model gives other results each time, with the same inputs and seeds",
            "find what it depends on besides its inputs, and pass that in",
        )


__all__ = ["Diagnosis", "Line", "Verdict", "diagnose"]
