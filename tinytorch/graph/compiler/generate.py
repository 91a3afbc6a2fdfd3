"""From a graph to code: which kind of code can run it, and why not the faster one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import Array
from tinytorch.graph.compiler.python import PythonProgram, is_kept, writes_out
from tinytorch.graph.compiler.schedule import Role, Schedule, schedule_graph
from tinytorch.graph.ir import Graph, GraphError
from tinytorch.graph.passes import OptimizationPass, PassManager, Report, get_pass_by_name
from tinytorch.history import write_clock
from tinytorch.jit.caches import core_caches

MODES = ("auto", "native", "python", "interpret")
PASSES = ("algebra", "layout", "fold", "cse", "dce")
ROUNDS = 2  # what one pass makes of the graph, another may improve; more rounds hardly ever help
#: The kernels that native code calls are those of this class, and not of what derives from it.
NATIVE_BACKEND = "tinytorch.backends.optimized.backend.OptimizedBackend"


class Program(Protocol):
    """Code made of a schedule.

    Attributes:
        source: as it can be read.
    """

    source: str

    def __call__(self, values: list[Any]) -> list[Array]:
        """The arrays of `schedule.returns`, for an array or number for each input."""


@dataclass(frozen=True)
class Target:
    """What to generate code for.

    Attributes:
        backend: whose kernels are called.
        mode: one of `MODES`.
        passes: over the graph, before anything else.
        fast_math: passes may change rounding, and results that are NaN or infinite.
    """

    backend: ComputeBackend
    mode: str
    passes: PassManager | Sequence[OptimizationPass | str] | None
    fast_math: bool

    def manager(self) -> PassManager:
        """The passes. Those that a user gives are checked against the original graph."""
        if isinstance(self.passes, PassManager):
            return self.passes
        if self.passes is not None:
            return PassManager(self.passes, rounds=ROUNDS, trials=1)
        passes: list[OptimizationPass | str] = [
            get_pass_by_name(name)(fast_math=self.fast_math) if name == "algebra" else name
            for name in PASSES
        ]
        if self.fast_math:  # a row that sees nothing gives 0 then, not NaN
            fused = get_pass_by_name("fused-attention")
            passes += [fused(least_bytes=core_caches()[0].size + 1), "dce"]
        return PassManager(passes, rounds=ROUNDS, trials=0)


@dataclass
class Code:
    """A graph, and the code that runs it.

    Attributes:
        mode: "native", "python" or "interpret".
        graph: what the schedule was made from; what the interpreter runs.
        schedule, program: None if the graph is interpreted.
        reports: what passes did, in order.
        fallbacks: where a faster kind of code was not possible: the node's line, and the reason.
        seconds: that generating it took.
    """

    mode: str
    graph: Graph
    schedule: Schedule | None = None
    program: Program | None = None
    reports: list[Report] = field(default_factory=list)
    fallbacks: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, values: list[Any]) -> list[Array]:
        """The arrays of `schedule.returns`; inputs that are written hold their new values.

        Args:
            values: an array or, for an input that is a number, the number.
        """
        assert self.program is not None and self.schedule is not None
        given = values
        if self.mode == "native":
            values = [v if _in_order(v) else np.array(v, order="C") for v in given]
        arrays = self.program(values)
        for i in self.schedule.written:
            if values[i] is not given[i]:
                np.copyto(given[i], values[i])
            write_clock.write(given[i])
        return arrays


def _in_order(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.flags.c_contiguous


def generate(
    graph: Graph,
    target: Target,
    roles: list[Role],
    updates: dict[int, int] | None = None,
    unaliased: list[int] | None = None,
) -> Code:
    """The best code that the target allows, for a graph after its passes.

    Args:
        roles, updates, unaliased: as `schedule_graph` takes them.

    Raises:
        GraphError: mode is "python" or "native", and that cannot run the graph.
    """
    start = perf_counter()
    code = Code("interpret", graph)
    convention = (roles, updates, unaliased)
    if target.mode in ("auto", "native"):
        _try_native(code, target, convention)
    if target.mode in ("auto", "python") and code.program is None:
        _try_python(code, target, convention)
    code.seconds = perf_counter() - start
    return code


def _try_python(code: Code, target: Target, convention: tuple[Any, ...]) -> None:
    backend = target.backend
    try:
        schedule = schedule_graph(
            code.graph, *convention, is_kept=is_kept(backend), writes_out=writes_out(backend)
        )
        code.program = PythonProgram(schedule, backend)
    except Exception as error:
        if target.mode == "python":
            raise
        code.fallbacks.append(("the graph is interpreted", say_failure("Python code", error)))
        return
    code.mode, code.schedule = "python", schedule


def _try_native(code: Code, target: Target, convention: tuple[Any, ...]) -> None:
    why_not = _why_not_native(target.backend)
    if why_not is None:
        try:
            failures = _build_native(code, target.backend, convention)
        except Exception as error:
            if target.mode == "native":
                raise
            failures = [("no native code", say_failure("native code", error))]
        if not failures:
            return
    else:
        failures = [("no native code", why_not)]
    code.fallbacks += failures
    if target.mode == "native":
        lines = [f"{node}: {reason}" for node, reason in failures]
        raise GraphError(
            "this graph has no native code; take mode='auto' or 'python':\n  " + "\n  ".join(lines)
        )


def _build_native(
    code: Code, backend: ComputeBackend, convention: tuple[Any, ...]
) -> list[tuple[str, str]]:
    """Make it native code; returns which nodes cannot be, and why."""
    from tinytorch.graph.compiler import native

    graph, report = PassManager(native.PASSES, trials=0).run(code.graph)
    schedule = schedule_graph(graph, *convention, **native.ABILITIES)
    try:
        code.program = native.build(schedule, not backend.own_kernels_only)  # type: ignore[attr-defined]
    except native.Unsupported as error:
        if not error.lacking:
            raise
        return [(node.format_node(), reason) for node, reason in error.lacking]
    code.mode, code.graph, code.schedule = "native", graph, schedule
    code.reports.append(report)
    return []


def say_failure(what: str, error: Exception) -> str:
    """Report why something could not be made; said once where nobody could expect it."""
    reason = str(error)
    if not isinstance(error, (GraphError, NotImplementedError)):
        reason = f"{type(error).__name__}: {error}"
        if (what, reason) not in _said:
            _said.add((what, reason))
            warnings.warn(
                f"compile: {what} could not be made ({reason}), so slower code runs instead; "
                f"explain() says where. This is a fault of TinyTorch's: please report it",
                RuntimeWarning,
                stacklevel=3,
            )
    return reason


_said: set[tuple[str, str]] = set()


def _why_not_native(backend: ComputeBackend) -> str | None:
    cls = type(backend)
    if f"{cls.__module__}.{cls.__qualname__}" != NATIVE_BACKEND:
        return f"native code calls the kernels of the optimized backend, and this is {backend!r}"
    if "conv2d" in vars(backend):
        return "native code convolves exactly, and this backend by Winograd's algorithm"
    return None
