"""`simulate_swapping`: what swapping to the host would bring beside recomputation.

    report = simulate_swapping(model, batch, budget=0.5, bandwidth=12e9)
    print(report)
    report.plot("memory.svg")

Times of the ops are measured, copies and their overlap are simulated: nothing is swapped really.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tinytorch.bench.units import format_bytes, format_seconds, format_table
from tinytorch.fx.models import Batch, check_model
from tinytorch.fx.profile.plots import figure_of
from tinytorch.fx.profile.profiler import GraphProfiler
from tinytorch.fx.recompute.announce import Announced
from tinytorch.fx.recompute.checkpointing import Selected, training_problem
from tinytorch.fx.recompute.known import known_frontier
from tinytorch.fx.recompute.swap_search import find_swap_frontier
from tinytorch.fx.recompute.swapping import Swapping, SwapPlan
from tinytorch.graph.recompute.budget import Budget, bytes_of, parse_budget
from tinytorch.graph.recompute.problem import RecomputeError

PICTURES = (".png", ".svg", ".pdf")
EVERYTHING, RECOMPUTED, BOTH = "everything kept", "recomputing", "swapping and recomputing"


@dataclass
class SwapReport:
    """The best plan with swapping, beside the best one without.

    Attributes:
        plans: by what they may do; "recomputing" is missing where it alone cannot meet the budget.
        limit: bytes of the budget.
        lowest: the lowest peak that was found, swapping included.
        bandwidth: bytes per second.
        backward_begins: seconds.
    """

    plans: dict[str, SwapPlan]
    limit: int
    lowest: int
    bandwidth: float
    backward_begins: float

    def to_dict(self) -> dict[str, Any]:
        """The report without its curves as plain values, as for JSON; times in seconds."""
        return {
            "limit": self.limit,
            "lowest_peak": self.lowest,
            "bandwidth": self.bandwidth,
            "plans": {
                name: {
                    "peak": plan.peak,
                    "seconds": plan.seconds,
                    "recompute_seconds": plan.recompute_seconds,
                    "stall_seconds": plan.stall_seconds,
                    "transfers": [
                        {"name": t.name, "nbytes": t.nbytes, "out": t.out, "back": t.back}
                        for t in plan.transfers
                    ],
                }
                for name, plan in self.plans.items()
            },
        }

    def __str__(self) -> str:
        rows = []
        for name, plan in self.plans.items():
            moved = sum(t.nbytes for t in plan.transfers)
            rows.append([
                name, format_bytes(plan.peak), format_seconds(plan.seconds),
                format_seconds(plan.recompute_seconds), format_seconds(plan.stall_seconds),
                f"{len(plan.transfers)}", format_bytes(moved),
            ])  # fmt: skip
        columns = ["plan", "peak", "step", "again", "waiting", "swapped", "bytes"]
        lines = [
            f"budget {format_bytes(self.limit)}, {self.bandwidth / 1e9:g} GB/s to the host and "
            f"back (simulated); lowest peak {format_bytes(self.lowest)}",
            format_table(columns, rows),
        ]
        if RECOMPUTED not in self.plans:
            lines.append("recomputing alone does not come below the budget")
        return "\n".join([*lines, *self._travels()])

    def _travels(self, most: int = 10) -> list[str]:
        """Which values go out when, and are back when; the largest."""
        transfers = sorted(self.plans[BOTH].transfers, key=lambda t: -t.nbytes)
        rows = [
            [t.name, format_bytes(t.nbytes), *(format_seconds(x) for x in (*t.out, *t.back))]
            for t in sorted(transfers[:most], key=lambda t: t.out)
        ]
        if not rows:
            return []
        left = len(transfers) - len(rows)
        columns = ["value", "bytes", "goes out", "is out", "comes back", "is back"]
        table = format_table(columns, rows)
        return ["", table, *([f"and {left} smaller ones"] if left else [])]

    def plot(self, path: str | Path, limit: int | None = None) -> None:
        """Draw memory over the time of the step for each plan, and the copies below.

        Args:
            path: of the picture: .png, .svg or .pdf.
            limit: bytes, drawn as a line; by default the budget.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        figure, axes = figure_of(5)
        figure.clear()
        axes, copies = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
        for name, plan in self.plans.items():
            moments, live = zip(*plan.curve, strict=True)
            axes.step([*(1e3 * t for t in moments), 1e3 * plan.seconds],
                      [*(n / 2**20 for n in live), live[-1] / 2**20],
                      where="post", linewidth=1, label=name)  # fmt: skip
        limit = self.limit if limit is None else limit
        axes.axhline(limit / 2**20, color="red", linestyle="--",
                     label=f"limit, {format_bytes(limit)}")  # fmt: skip
        for each in (axes, copies):
            each.axvline(1e3 * self.backward_begins, color="black", linewidth=0.8, linestyle=":")
        axes.annotate("backward", (1e3 * self.backward_begins, 1),
                      xycoords=("data", "axes fraction"), xytext=(3, -3),
                      textcoords="offset points", va="top", fontsize=8)  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_ylabel("MiB alive on the device")
        axes.legend(fontsize=8)
        for row, way in enumerate(("out", "back")):
            spans = [getattr(t, way) for t in self.plans[BOTH].transfers]
            copies.broken_barh([(1e3 * a, 1e3 * (b - a)) for a, b in spans], (row - 0.4, 0.8))
        copies.set_yticks([0, 1], ["out", "back"])
        copies.set_xlabel(f"ms; copies at {self.bandwidth / 1e9:g} GB/s")
        figure.savefig(path)


def simulate_swapping(
    model: nn.Module,
    inputs: Batch,
    budget: Budget,
    bandwidth: float,
    *,
    select: Callable[[Any], Any] | None = None,
) -> SwapReport:
    """Find what to keep, to swap to the host and to compute again under a budget, and simulate it.

    Args:
        model: with parameters that require gradients.
        inputs: what it is called with, as for `checkpoint`.
        budget: bytes, or a fraction of keeping everything, as for `checkpoint`.
        bandwidth: bytes per second between device and host.
        select: what of the model's result is used, as `lambda out: out.loss`.

    Raises:
        CaptureError: the model cannot be captured.
        RecomputeError: budget or bandwidth are none, or the budget cannot be met.
    """
    budget = parse_budget(budget)
    if not bandwidth > 0:
        raise RecomputeError(f"a bandwidth of {bandwidth:g} bytes/s: it must be above 0")
    check_model(model, inputs)
    joint, problem = training_problem(model if select is None else Selected(model, select), inputs)
    seconds = GraphProfiler(joint).node_seconds()
    swapping = Swapping(problem, seconds, bandwidth)
    with Announced("searching what to swap and what to compute again") as progress:
        recomputing = known_frontier(problem, progress=progress)
        frontier = find_swap_frontier(swapping, recomputing, progress=progress)
        limit = bytes_of(budget, frontier.everything.peak)
        plans = {EVERYTHING: frontier.everything}
        within_budget = [plan for plan in recomputing.plans if plan.peak <= limit]
        if within_budget:
            measured = (swapping.simulate(plan.kept) for plan in within_budget)
            plans[RECOMPUTED] = min(measured, key=lambda plan: plan.seconds)
        plans[BOTH] = frontier.within(limit)
    begins = frontier.everything.curve[len(problem.forward)][0]
    return SwapReport(plans, limit, frontier.plans[0].peak, bandwidth, begins)
