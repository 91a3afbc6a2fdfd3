"""What a profile of a graph says: of each node, and of each activation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from typing import Any

from tinytorch.bench.units import format_bytes, format_count, format_seconds, format_table

PARAMETER, GRADIENT, ACTIVATION = "parameter", "gradient", "activation"
STATE, OTHER = "optimizer_state", "other"
CATEGORIES = (PARAMETER, STATE, ACTIVATION, GRADIENT, OTHER)


@dataclass(frozen=True)
class NodeProfile:
    """One node.

    Attributes:
        rank: its place in the order of execution.
        name, op: in the graph; `op` is what it calls.
        phase: forward, backward or optimizer.
        type: parameter, gradient, activation, optimizer_state or other.
        seconds: to compute it; the median over the runs.
        flops, bytes: that it computes and moves.
        made_bytes: of the memory that it makes; a view makes none.
        predicted_bytes: alive while it runs, inputs and constants included, by simulation.
        measured_bytes: the same, measured.
        inputs: names of the nodes that it reads.
        line: of the user's code that it comes from, if it is known.
    """

    rank: int
    name: str
    op: str
    phase: str
    type: str
    seconds: float
    flops: int
    bytes: int
    made_bytes: int
    predicted_bytes: int
    measured_bytes: int
    inputs: tuple[str, ...]
    line: str


@dataclass(frozen=True)
class ActivationProfile:
    """A value of the forward that the backward reads.

    Attributes:
        name: of the node that makes it.
        nbytes: of its memory.
        rank: of the node.
        last_forward: rank of its last use in the forward.
        first_backward, last_backward: ranks of its first and last use afterwards.
        inactive_seconds: between the end of its last use in the forward and the next.
        swap_seconds: to bring it to the host, or back, at the measured bandwidth.
        recompute_seconds: to compute it again from inputs and the other activations.
        recompute_bytes: that this makes on the way, itself included.
        recompute_ratio: bytes freed for a second of computing again.
    """

    name: str
    nbytes: int
    rank: int
    last_forward: int
    first_backward: int
    last_backward: int
    inactive_seconds: float
    swap_seconds: float
    recompute_seconds: float
    recompute_bytes: int

    @property
    def recompute_ratio(self) -> float:
        return self.nbytes / max(self.recompute_seconds, 1e-9)


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
        """For each phase the ranks from its first to its last node."""
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


NODE_COLUMNS = tuple(f.name for f in fields(NodeProfile))
ACTIVATION_COLUMNS = (
    *(f.name for f in fields(ActivationProfile) if f.name not in ("name", "rank")),
    "recompute_ratio",
)
