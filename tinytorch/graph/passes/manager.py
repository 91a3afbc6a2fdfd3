"""`PassManager`: applies passes to a copy, checks each, and takes back what breaks the graph."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.graph.ir import GraphError
from tinytorch.graph.passes.base import OptimizationPass, get_pass_by_name
from tinytorch.graph.passes.halving import Halving, find_bad
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, Semantics

#: (rtol, atol) for |a - b| <= atol + rtol |b|, where a pass may change rounding; all else is equal.
TOLERANCES = {
    "bfloat16": (8e-2, 8e-3),
    "float16": (1e-2, 1e-3),
    "float32": (1e-4, 1e-5),
    "float64": (1e-9, 1e-11),
}
HALVES = ("bfloat16", "float16")


@dataclass
class _Version:
    """A graph that no pass may touch, as it is printed, and a copy of it if there is one yet."""

    graph: AnyGraph
    text: str
    untouched: AnyGraph | None = None


@dataclass
class PassResult:
    """The result of one application of a pass.

    Attributes:
        name: of the pass.
        changed: the graph is another one now.
        error: why the pass was rolled back; None if it was not.
        seconds: of the pass alone, without the checks.
        before, after: the printed graph; `after` is what the pass made of it, kept or not.
        left_out: rewrites that broke the graph, each with why; the pass was kept without them.
        made: the graph as this left it.
    """

    name: str
    changed: bool
    error: str | None
    seconds: float
    before: str
    after: str
    left_out: list[str] = field(default_factory=list)
    made: AnyGraph | None = field(default=None, repr=False, compare=False)

    def diff(self) -> str:
        """The lines that changed."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), "before", "after", lineterm="", n=1
        )
        return "\n".join(lines)

    @property
    def nodes_before(self) -> int:
        """The number of nodes before, those inside of fused ops included."""
        return sum(" = " in line for line in self.before.splitlines())

    @property
    def nodes_after(self) -> int:
        """The number of nodes after."""
        return sum(" = " in line for line in self.after.splitlines())

    def __str__(self) -> str:
        state = "rolled back" if self.error else "changed" if self.changed else "no change"
        time = f"{self.seconds * 1e3:8.2f} ms"
        line = f"{self.name:12} {state:12} {self.nodes_before:5} -> {self.nodes_after:5} {time}"
        notes = [self.error] if self.error else [f"without {each}" for each in self.left_out]
        return "\n    ".join([line, *notes])


@dataclass
class Report:
    """The results of a `PassManager`, in order."""

    results: list[PassResult] = field(default_factory=list)

    @property
    def failures(self) -> list[PassResult]:
        """The applications that were rolled back."""
        return [r for r in self.results if r.error is not None]

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


class PassManager:
    """Runs passes in order, each checked against the original graph.

        graph, report = PassManager(["algebra", "cse", "dce"]).run(traced.graph)

    After each pass the graph is linted, run on several generated inputs and compared: outputs,
    and for a graph without a backward of its own gradients too. A pass that fails any of this, or
    raises, is made again without the rewrites that break the graph, which are found by halving; if
    none is right, or a pass is all or nothing, the graph goes on as it was before it.

    Args:
        passes: passes, or their names.
        semantics: of the graphs' world.
        rounds: apply all passes again, at most so often, until none changes anything.
        trials: how many inputs to compare on; the first is the example of the trace. 0: only lint.
        each: compare after each pass. Otherwise only where passes that keep every bit end, and at
            the end; if results differ there, all begins anew and is compared after each pass. For
            graphs that take long to run.
        after_pass: called with each pass that changed the graph, and the graph before and after it.
            If it raises, the pass is rolled back as one that breaks the graph.

    Raises:
        TypeError: passes is one name, or has something that is no pass, such as a class.
        KeyError: there is no pass of a name.
    """

    def __init__(
        self,
        passes: Sequence[OptimizationPass | str],
        semantics: Semantics = TINYTORCH,
        rounds: int = 1,
        trials: int = 3,
        each: bool = True,
        after_pass: Callable[[OptimizationPass, AnyGraph, AnyGraph], None] | None = None,
    ) -> None:
        self.semantics = semantics
        _check_passes(passes)
        self.passes = [get_pass_by_name(p)(semantics) if isinstance(p, str) else p for p in passes]
        self.rounds = rounds
        self.trials = trials
        self.each = each
        self.after_pass = after_pass

    def run(self, graph: AnyGraph) -> tuple[AnyGraph, Report]:
        """The improved copy of a graph, and what was done. The graph itself stays as it is."""
        original = _Reference(self.semantics, graph, self.trials)
        if not self.each:
            improved, unrounded, report = self._run(graph, None)
            try:
                if unrounded is not graph:
                    original.compare(unrounded, exact=True)
                if improved is not unrounded:
                    original.compare(improved, exact=False)
            except Exception:  # a broken graph may fail in any way when it runs
                original.release()
            else:
                return improved, report
        improved, _, report = self._run(graph, original)
        return improved, report

    def _run(
        self, graph: AnyGraph, original: _Reference | None
    ) -> tuple[AnyGraph, AnyGraph, Report]:
        """The improved graph, the graph before a pass first changed rounding, what was done.

        Args:
            original: to compare with after each pass; None to compare nothing.
        """
        report = Report()
        present = _Version(graph, str(graph))
        unrounded, is_rounded = graph, False
        for _ in range(self.rounds):
            changed = False
            for each in self.passes:
                present, result = self._apply(each, present, original)
                report.results.append(result)
                changed |= result.changed
                is_rounded |= result.changed and not each.exact
                unrounded = unrounded if is_rounded else present.graph
            if not changed:
                break
        return present.graph, unrounded, report

    def _apply(
        self, each: OptimizationPass, before: _Version, original: _Reference | None
    ) -> tuple[_Version, PassResult]:
        graph = before.graph
        candidate, changed, error, seconds = self._attempt(each, before, original, None)
        left_out: list[str] = []
        if error is not None:
            found = self._halve(each, before, original)
            if found is not None and found.kept and (found.bad or found.untried):
                again = self._attempt(each, before, original, found.kept)
                if again[1] and again[2] is None:
                    left_out = self._described(each, graph, found)
                    candidate, changed, error = again[:3]
                    seconds += again[3]
        kept = changed and error is None
        made = candidate if kept else before
        texts = before.text, candidate.text
        result = PassResult(each.name, kept, error, seconds, *texts, left_out, made.graph)
        return made, result

    def _attempt(
        self,
        each: OptimizationPass,
        before: _Version,
        original: _Reference | None,
        chosen: Sequence[int] | None,
    ) -> tuple[_Version, bool, str | None, float]:
        """Run a pass on a copy of the graph: the copy, whether it changed, what is wrong, the time.

        Args:
            chosen: make only these of its rewrites.
        """
        graph, candidate = before.graph, before.untouched
        if candidate is None:
            candidate = self.semantics.copy(graph)
        before.untouched = None
        start = perf_counter()
        error, changed = None, False
        try:
            if chosen is None:
                changed = each.run(candidate)
            else:
                found = each.analyze(candidate)
                changed = each.transform(candidate, each.select(found, chosen))
        except Exception as raised:  # whatever a pass raises, it must not take the graph with it
            error = f"{type(raised).__name__}: {raised}"
        seconds = perf_counter() - start
        after = _Version(candidate, str(candidate))
        if error is None and (changed or after.text != before.text):
            changed = True
            error = self._problem(each, graph, candidate, original)
        elif error is None:
            before.untouched = candidate  # the next pass need not copy it again
        return after, changed, error, seconds

    def _halve(
        self, each: OptimizationPass, before: _Version, original: _Reference | None
    ) -> Halving | None:
        """The rewrites that a failing pass can be kept with; None if it is all or nothing."""
        try:
            rewrites = each.rewrites(each.analyze(self.semantics.copy(before.graph)))
        except Exception:  # it cannot even look: there is nothing to choose from
            return None
        if rewrites is None or len(rewrites) < 2:
            return None
        return find_bad(len(rewrites), lambda some: self._attempt(each, before, original, some)[2])

    def _described(self, each: OptimizationPass, graph: AnyGraph, found: Halving) -> list[str]:
        """The rewrites that were left out, and why."""
        rewrites = each.rewrites(each.analyze(self.semantics.copy(graph))) or []
        lines = [f"{_named(rewrites[i])}: {why}" for i, why in found.bad.items()]
        if found.untried:
            lines.append(f"{len(found.untried)} more, for which the attempts did not suffice")
        return lines

    def _problem(
        self,
        each: OptimizationPass,
        before: AnyGraph,
        after: AnyGraph,
        original: _Reference | None,
    ) -> str | None:
        """What is wrong with the graph that a pass made; None if nothing is."""
        try:
            after.lint()
            each.verify(before, after)
            if self.after_pass is not None:
                self.after_pass(each, before, after)
            if original is not None:
                original.compare(after, each.exact)
        except Exception as error:  # a broken graph may fail in any way when it runs
            return f"{type(error).__name__}: {error}"
        return None


def _check_passes(passes: Any) -> None:
    """Raise TypeError if this is no list of passes and names."""
    if isinstance(passes, str):
        raise TypeError(f"passes are several: write [{passes!r}]")
    for each in passes:
        if isinstance(each, type):
            raise TypeError(f"passes must be objects or names: write {each.__name__}()")
        if not isinstance(each, str | OptimizationPass):
            raise TypeError(f"{each!r} is neither a pass nor the name of one")


def _named(rewrite: Any) -> str:
    parts = rewrite if isinstance(rewrite, tuple) else (rewrite,)
    return ", ".join(str(getattr(part, "text", part)) for part in parts)[:160]


class _Reference:
    """The results of a graph on generated inputs, to compare other graphs with."""

    def __init__(self, semantics: Semantics, graph: AnyGraph, trials: int) -> None:
        self.semantics = semantics
        self.inputs = [semantics.sample(graph, seed) for seed in range(trials)]
        self.outputs = [self._run(graph, trial) for trial in range(trials)]
        # a graph with its own backward has its gradients among its outputs
        forward = all(n.meta.get("phase", "forward") == "forward" for n in graph.nodes)
        self.gradients = [self._gradients(graph, i) for i in range(trials)] if forward else []
        self._rounded = False
        self._tolerance = _tolerance_within(semantics, graph)

    def _run(self, graph: AnyGraph, trial: int) -> list[Any]:
        try:
            return self.semantics.run(graph, self.inputs[trial])
        except Exception as error:
            raise GraphError(
                f"the graph itself fails on generated input {trial}, so passes cannot be compared "
                f"with it ({type(error).__name__}: {error}); give fewer trials, 0 for none"
            ) from error

    def _gradients(self, graph: AnyGraph, trial: int) -> list[Any]:
        return self.semantics.gradients(graph, self.inputs[trial], trial)

    def release(self) -> None:
        """Begin anew: no pass has changed rounding."""
        self._rounded = False

    def compare(self, graph: AnyGraph, exact: bool) -> None:
        """Raises GraphError at the first result that differs."""
        # once a pass has changed rounding, those after it cannot be held to the last bit
        self._rounded |= not exact
        for trial, expected in enumerate(self.outputs):
            results = self.semantics.run(graph, self.inputs[trial])
            tolerance = self._tolerance if self._rounded else None
            _compare("output", results, expected, trial, tolerance)
        for trial, expected in enumerate(self.gradients):
            gradients = self._gradients(graph, trial)  # sums in another order are rounded otherwise
            _compare("gradient", gradients, expected, trial, self._tolerance)


def _tolerance_within(semantics: Semantics, graph: AnyGraph) -> tuple[float, float]:
    """That of a dtype of two bytes, if any value of the graph has one: what comes after is rounded
    as coarsely, and NumPy has bfloat16 as float32. Else (0, 0): that of each result's dtype holds.
    """
    metas = [semantics.meta(node) for node in graph.nodes]
    dtypes = {getattr(m.dtype, "name", str(m.dtype)) for m in metas if m is not None}
    names = {dtype.removeprefix("torch.") for dtype in dtypes}
    return next((TOLERANCES[name] for name in HALVES if name in names), (0.0, 0.0))


def _compare(
    what: str,
    results: Sequence[Any],
    expected: Sequence[Any],
    trial: int,
    tolerance: tuple[float, float] | None,
) -> None:
    """Raises GraphError at a difference of more than `tolerance`; of a bit, if that is None."""
    if len(results) != len(expected):
        raise GraphError(f"{len(results)} {what}s where there were {len(expected)}")
    for i, (a, b) in enumerate(zip(results, expected, strict=True)):
        if a is None or b is None or not isinstance(b, np.ndarray):
            if a is not b and a != b:
                raise GraphError(f"{what} {i} is {a!r:.60}, and was {b!r:.60}")
        elif (a.shape, a.dtype) != (b.shape, b.dtype):
            kinds = [f"{x.dtype}{list(x.shape)}" for x in (a, b)]
            raise GraphError(f"{what} {i} is {kinds[0]}, and was {kinds[1]}")
        elif not (_identical(a, b) if tolerance is None else _close(a, b, tolerance)):
            with np.errstate(all="ignore"):
                worst = np.nanmax(np.abs(np.subtract(a, b, dtype=float)), initial=0.0)
            kind = "to the last bit" if tolerance is None else "within rounding"
            raise GraphError(
                f"{what} {i} ({b.dtype}{list(b.shape)}) is not the same {kind} on generated input "
                f"{trial}: it differs by up to {worst:.3g}"
            )


def _identical(a: Array, b: Array) -> bool:
    """Equal; NaN equals NaN, and 0.0 does not equal -0.0."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    same_zero = np.signbit(a) == np.signbit(b)
    return np.array_equal(a, b, equal_nan=True) and bool(np.all(same_zero | (a != 0)))


def _close(a: Array, b: Array, least: tuple[float, float]) -> bool:
    """Within the tolerance of the dtype, or `least`; it grows with the largest value there is."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    rtol, atol = max(TOLERANCES[a.dtype.name], least)
    finite = np.abs(b[np.isfinite(b)])
    return np.allclose(a, b, rtol, atol * max(1.0, finite.max(initial=0.0)), equal_nan=True)
