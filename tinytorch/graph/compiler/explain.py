"""`explain()`: what passes did, which code was made, what fell back and why, and the time of nodes.

print(step.explain())                   # everything in order
step.explain().to_dict()                # the same for a program
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinytorch.bench import format_bytes, format_count, format_seconds, format_table
from tinytorch.bench.roofline import Machine, fastest, measure_machine
from tinytorch.graph.compiler.generate import Code
from tinytorch.graph.compiler.python import PythonProgram
from tinytorch.graph.compiler.timing import example_values, measure_steps, predict_steps
from tinytorch.graph.ir import GraphError
from tinytorch.graph.passes import PassResult
from tinytorch.graph.semantics import TINYTORCH

if TYPE_CHECKING:
    from tinytorch.graph.compiler.compiled import Compiled

SLOWEST = 20  # nodes in the printed table


@dataclass(frozen=True)
class NodeTime:
    """The measured time of one step.

    Attributes:
        node: its name.
        op: what it computes.
        flops, bytes: by the op table.
        predicted: seconds by the roofline.
        measured: seconds of its kernel call on example values; None where steps are one piece of
            machine code, which is measured as a whole.
        line: of the user's code.
    """

    node: str
    op: str
    flops: int
    bytes: int
    predicted: float
    measured: float | None
    line: str


@dataclass(frozen=True)
class CodeReport:
    """One piece of generated code.

    Attributes:
        name: "call"; or "forward" and "backward" where results have a history.
        mode: "native", "python" or "interpret".
        seconds: that generating it took.
        passes: what each pass did, in order.
        fallbacks: nodes, or the whole, that a faster mode could not run; and why.
        source: the generated code; empty if the graph is interpreted.
        memory: bytes. "arena" is what intermediate values are in, "intermediates" what they would
            take apart, "peak" what of them is alive at once, "own" what every call allocates,
            "constants" what lasts.
        nodes: predicted and measured times.
        predicted, measured: seconds of a whole call.
    """

    name: str
    mode: str
    seconds: float
    passes: list[PassResult]
    fallbacks: list[tuple[str, str]]
    source: str
    memory: dict[str, int]
    nodes: list[NodeTime]
    predicted: float | None
    measured: float | None

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers, text, lists and dicts."""
        return {
            "name": self.name,
            "mode": self.mode,
            "seconds": self.seconds,
            "passes": [
                {"name": p.name, "changed": p.changed, "error": p.error, "seconds": p.seconds,
                 "nodes_before": p.nodes_before, "nodes_after": p.nodes_after}
                for p in self.passes
            ],
            "fallbacks": [list(each) for each in self.fallbacks],
            "source": self.source,
            "memory": self.memory,
            "nodes": [vars(node) for node in self.nodes],
            "predicted": self.predicted,
            "measured": self.measured,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.mode}, made in {format_seconds(self.seconds)}"]
        lines += [f"  not faster: {node}: {why}" for node, why in self.fallbacks]
        lines += [f"  {result}" for result in self.passes]
        if self.memory:
            parts = [f"{key} {format_bytes(size)}" for key, size in self.memory.items()]
            lines.append(f"  memory: {', '.join(parts)}")
        if self.predicted is not None and self.measured is not None:
            times = [format_seconds(t) for t in (self.predicted, self.measured)]
            lines.append(f"  a call: {times[0]} by the roofline, {times[1]} measured")
        if self.nodes:
            lines += ["", self._table()]
        if self.source:
            lines += ["", self.source.rstrip()]
        return "\n".join(lines)

    def _table(self) -> str:
        slowest = sorted(self.nodes, key=lambda n: -(n.measured or n.predicted))[:SLOWEST]
        rows = [
            [
                node.node,
                node.op,
                format_count(node.flops),
                format_bytes(node.bytes),
                format_seconds(node.predicted),
                "" if node.measured is None else format_seconds(node.measured),
            ]
            for node in slowest
        ]
        return format_table(["node", "op", "FLOP", "bytes", "predicted", "measured"], rows)


@dataclass(frozen=True)
class Explanation:
    """The report on a compiled function.

    Attributes:
        function: its name.
        backend: whose kernels run.
        reasons: why each trace was made.
        uncompiled_calls: calls that ran op by op: a mode was active, no trace fitted, or a Function
            has a backward of its own.
        machine: what the roofline assumes.
        codes: of the trace that was used last.
        failures: what could not be made of it, and why.
    """

    function: str
    backend: str
    reasons: list[str]
    uncompiled_calls: int
    machine: Machine
    codes: list[CodeReport]
    failures: list[tuple[str, str]]

    @property
    def source(self) -> str:
        """All generated code."""
        return "\n".join(code.source for code in self.codes)

    @property
    def fallbacks(self) -> list[tuple[str, str]]:
        """The nodes that no faster mode could run, and why."""
        return [*self.failures, *(each for code in self.codes for each in code.fallbacks)]

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers, text, lists and dicts."""
        return {
            "function": self.function,
            "backend": self.backend,
            "reasons": list(self.reasons),
            "uncompiled_calls": self.uncompiled_calls,
            "machine": vars(self.machine),
            "codes": [code.to_dict() for code in self.codes],
            "failures": [list(each) for each in self.failures],
        }

    def __str__(self) -> str:
        lines = [f"{self.function} on {self.backend}"]
        lines += [f"  trace {i}: {reason}" for i, reason in enumerate(self.reasons, 1)]
        lines += [f"  {what}: {why}" for what, why in self.failures]
        if self.uncompiled_calls:
            why = "a mode was active, no trace fitted, or a Function has a backward of its own"
            lines.append(f"  {self.uncompiled_calls} calls ran op by op: {why}")
        rates = (
            f"{format_count(self.machine.flops)}FLOP/s, {format_bytes(self.machine.bandwidth)}/s"
        )
        lines += [f"  roofline: {rates}", "", "\n\n".join(map(str, self.codes))]
        return "\n".join(lines)

    __repr__ = __str__


def explain(compiled: Compiled) -> Explanation:
    """Report on what was compiled last, and time it on example values.

    Raises:
        GraphError: nothing has been compiled yet.
    """
    traces = compiled.traces
    if not traces:
        raise GraphError("nothing is compiled yet: call the function first")
    backend = traces[-1].target.backend
    machine = measure_machine(backend)
    return Explanation(
        function=getattr(compiled, "__qualname__", type(compiled.function).__name__),
        backend=repr(backend),
        reasons=list(compiled.reasons),
        uncompiled_calls=compiled.uncompiled_calls,
        machine=machine,
        codes=[_report(name, code, machine) for name, code in traces[-1].generated().items()],
        failures=list(traces[-1].failures),
    )


def _report(name: str, code: Code, machine: Machine) -> CodeReport:
    passes = [result for report in code.reports for result in report.results]
    program, schedule = code.program, code.schedule
    if program is None or schedule is None:
        return CodeReport(
            name, code.mode, code.seconds, passes, code.fallbacks, "", {}, [], None, None
        )
    predicted = predict_steps(schedule, machine)
    measured: list[float | None] = [None] * len(predicted)
    if isinstance(program, PythonProgram):
        measured = list(measure_steps(schedule, program.kernels, program.writes_out))
    values = example_values(schedule)
    nodes = [
        NodeTime(
            step.node.name, step.op.name, *TINYTORCH.cost(step.node), predicted[i], measured[i],
            step.node.stack_trace or "",
        )
        for i, step in enumerate(schedule.steps)
    ]  # fmt: skip
    return CodeReport(
        name=name,
        mode=code.mode,
        seconds=code.seconds,
        passes=passes,
        fallbacks=code.fallbacks,
        source=program.source,
        memory={
            "arena": schedule.arena_bytes,
            "intermediates": schedule.plan.unplanned,
            "peak": schedule.peak,
            "own": sum(meta.nbytes for meta in schedule.own),
            "constants": sum(array.nbytes for array in schedule.constants),
        },
        nodes=nodes,
        predicted=sum(predicted),
        measured=fastest(lambda: program(values)),
    )
