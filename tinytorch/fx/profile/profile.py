"""What a profile of a graph says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinytorch.bench.units import format_bytes, format_count, format_seconds, format_table
from tinytorch.fx.profile import export, plots, report
from tinytorch.fx.profile.rows import ACTIVATION_COLUMNS, ActivationProfile, NodeProfile

FIGURES = {
    ".csv": export.write_csv,
    ".parquet": export.write_parquet,
    ".json": export.write_json,
    ".trace": export.write_chrome_trace,
}
DRAWN = {".html": report.write_html, ".png": plots.plot_memory, ".svg": plots.plot_memory}
WRITERS = (*FIGURES, *DRAWN)


@dataclass(frozen=True)
class Profile:
    """A graph, measured.

    Attributes:
        title: what was profiled.
        device: where.
        nodes: in the order of execution.
        activations: in the order of the forward; empty without a backward.
        memory: bytes alive at each rank, by category; inputs and constants included.
        bandwidth: bytes per second between device and host; on the CPU, of copying memory.
        whole_seconds: of a run that is not taken apart; the median.
        external_bytes: of inputs and constants.
        meter: what measured the memory: "dispatch" or "cuda".
    """

    title: str
    device: str
    nodes: list[NodeProfile]
    activations: list[ActivationProfile]
    memory: dict[str, list[int]]
    bandwidth: float
    whole_seconds: float
    external_bytes: int
    meter: str

    @property
    def predicted_peak(self) -> int:
        """The most bytes that are alive at once, by simulation."""
        return max((n.predicted_bytes for n in self.nodes), default=0)

    @property
    def measured_peak(self) -> int:
        """The most bytes that were alive at once, measured."""
        return max((n.measured_bytes for n in self.nodes), default=0)

    @property
    def peak_node(self) -> NodeProfile:
        """The first node at which the predicted peak is reached."""
        return max(self.nodes, key=lambda n: n.predicted_bytes)

    @property
    def phases(self) -> dict[str, range]:
        """The ranks from the first to the last node of each phase."""
        ranks: dict[str, list[int]] = defaultdict(list)
        for n in self.nodes:
            if n.phase:
                ranks[n.phase].append(n.rank)
        return {phase: range(found[0], found[-1] + 1) for phase, found in ranks.items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything, for a machine; times in seconds."""
        return {
            "title": self.title,
            "device": self.device,
            "meter": self.meter,
            "whole_seconds": self.whole_seconds,
            "bandwidth": self.bandwidth,
            "external_bytes": self.external_bytes,
            "predicted_peak": self.predicted_peak,
            "measured_peak": self.measured_peak,
            "phases": {name: [r.start, r.stop] for name, r in self.phases.items()},
            "nodes": [asdict(n) for n in self.nodes],
            "activations": self.activation_rows(),
            "memory": self.memory,
        }

    def write(self, path: str | Path, limit: int | None = None) -> None:
        """Write the profile in the form that the suffix says.

        .csv, .parquet and .json hold the figures, .trace a timeline for trace viewers, .html the
        report, .png and .svg memory against rank.

        Args:
            limit: bytes, drawn as a line where memory is drawn.

        Raises:
            ValueError: there is no such form; the message lists them.
        """
        suffix = Path(path).suffix
        if suffix not in WRITERS:
            raise ValueError(f"{str(path)!r} ends in none of {', '.join(WRITERS)}")
        if suffix in DRAWN:
            DRAWN[suffix](self, path, limit)
        else:
            FIGURES[suffix](self, path)

    def table(self, limit: int = 20) -> str:
        """The summary, and the nodes that take the most time."""
        slowest = sorted(self.nodes, key=lambda n: -n.seconds)[:limit]
        cells = [
            [n.name, n.op, n.phase, n.type, format_seconds(n.seconds), format_count(n.flops),
             format_bytes(n.made_bytes), format_bytes(n.predicted_bytes)]
            for n in slowest
        ]  # fmt: skip
        columns = ["node", "op", "phase", "type", "time", "FLOP", "makes", "alive"]
        return f"{self}\n\n{format_table(columns, cells)}"

    def node_rows(self) -> list[dict[str, Any]]:
        """A flat row a node; those of activations have the activation's columns too."""
        empty = dict.fromkeys(ACTIVATION_COLUMNS)
        by_name = {row["name"]: row for row in self.activation_rows()}
        rows = []
        for n in self.nodes:
            row = {**asdict(n), "inputs": " ".join(n.inputs)}
            extra = by_name.get(n.name, empty)
            rows.append(row | {column: extra[column] for column in ACTIVATION_COLUMNS})
        return rows

    def activation_rows(self) -> list[dict[str, Any]]:
        """A flat row an activation."""
        return [{**asdict(a), "recompute_ratio": a.recompute_ratio} for a in self.activations]

    def __str__(self) -> str:
        by_phase = [
            [name, str(len(nodes)), format_seconds(sum(n.seconds for n in nodes)),
             format_count(sum(n.flops for n in nodes)), format_bytes(max(n.predicted_bytes
                                                                         for n in nodes))]
            for name in self.phases
            if (nodes := [n for n in self.nodes if n.phase == name])
        ]  # fmt: skip
        kept = sum(a.nbytes for a in self.activations)
        return "\n".join([
            f"{self.title} on {self.device}: {len(self.nodes)} nodes, "
            f"{format_seconds(self.whole_seconds)} a run",
            f"peak {format_bytes(self.predicted_peak)} predicted, "
            f"{format_bytes(self.measured_peak)} measured ({self.meter}), at "
            f"{self.peak_node.name}; {len(self.activations)} activations, {format_bytes(kept)}",
            format_table(["phase", "nodes", "time", "FLOP", "peak"], by_phase),
        ])  # fmt: skip
