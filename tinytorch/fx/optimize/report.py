"""`OptimizationReport`: what the passes on a model brought, and what was taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinytorch.fx.optimize.verify import Accuracy
from tinytorch.graph.passes.manager import PassResult

#: What is slower by less is within the noise of timing, and stays.
SLOWER = 1.05


@dataclass
class OptimizationReport:
    """The result of `GraphOptimizer.optimize`.

    Attributes:
        capture_seconds: for capturing all graphs.
        pass_seconds: in the passes themselves.
        check_seconds: for checking them.
        results: of each pass, by mode.
        calls: of the graphs as captured and now, by mode: how many nodes call something.
        undone: changes taken back after the passes: by the comparison with the model, with why, or
            by `undo`.
        notes: checks that could not be made, and why; the result does not depend on them.
        accuracy: errors against float64; None where there is no float64, or gradients remain.
        speedup: how many times as fast as the model the module is; None where it was not measured.
        is_reverted: it was slower, and the model was returned in its place.
    """

    capture_seconds: float = 0.0
    check_seconds: float = 0.0
    results: dict[str, list[PassResult]] = field(default_factory=dict)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    accuracy: Accuracy | None = None
    speedup: float | None = None
    is_reverted: bool = False

    @property
    def pass_seconds(self) -> float:
        """Time in the passes themselves, without the checks."""
        return sum(r.seconds for results in self.results.values() for r in results)

    @property
    def failures(self) -> list[PassResult]:
        """The passes that were rolled back at once, with the reasons."""
        return [r for results in self.results.values() for r in results if r.error is not None]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, as for JSON; times in seconds."""
        return {
            "capture_s": self.capture_seconds,
            "pass_s": self.pass_seconds,
            "check_s": self.check_seconds,
            "calls": {m: {"before": b, "after": a} for m, (b, a) in self.calls.items()},
            "passes": [
                {"mode": mode, "name": r.name, "changed": r.changed, "error": r.error,
                 "left_out": r.left_out,
                 "seconds": r.seconds, "nodes": [r.nodes_before, r.nodes_after]}
                for mode, results in self.results.items() for r in results
            ],
            "undone": self.undone,
            "notes": self.notes,
            "speedup": self.speedup,
            "is_reverted": self.is_reverted,
            "error_vs_float64": None if self.accuracy is None else {
                "original": self.accuracy.original, "optimized": self.accuracy.optimized
            },
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"captured in {self.capture_seconds:.1f} s, passes {self.pass_seconds:.2f} s, "
            f"checks {self.check_seconds:.1f} s"
        ]
        for mode, results in self.results.items():
            before, after = self.calls[mode]
            lines += [f"{mode}: {before} calls -> {after}", *(f"  {r}" for r in results)]
        lines += [f"taken back: {line}" for line in self.undone]
        lines += self.notes
        if self.speedup is not None and SLOWER * self.speedup >= 1:
            lines.append(f"{self.speedup:.2f} times as fast as the model")
        if self.accuracy is not None:
            lines.append(
                f"error against float64: {self.accuracy.original:.1e} of the model, "
                f"{self.accuracy.optimized:.1e} now"
            )
        return "\n".join(lines)
