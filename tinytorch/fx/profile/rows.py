"""The rows of a profile: nodes and activations."""

from __future__ import annotations

from dataclasses import dataclass, fields

PARAMETER, GRADIENT, ACTIVATION = "parameter", "gradient", "activation"
STATE, OTHER = "optimizer_state", "other"
CATEGORIES = (PARAMETER, STATE, ACTIVATION, GRADIENT, OTHER)


@dataclass(frozen=True)
class NodeProfile:
    """The measurements of one node.

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
        module: path of the module that it belongs to; "" is the model itself.
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
    module: str = ""


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


NODE_COLUMNS = tuple(f.name for f in fields(NodeProfile))
ACTIVATION_COLUMNS = (
    *(f.name for f in fields(ActivationProfile) if f.name not in ("name", "rank")),
    "recompute_ratio",
)
