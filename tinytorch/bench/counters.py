"""Counting ops: how often each ran, how long, how many FLOPs it took and how many bytes it moved.

An `OpCounter` is a mode, so it sees what passes through `dispatch.apply`: every op that its
thread runs inside the block, forward, backward and optimizer, and every in-place write. An op's
time is that of its kernel and of the modes below; a fused op that the backend has no kernel for is
counted in the parts that really run. FLOPs and bytes are not measured: they follow from the shapes
by the op table, and bytes are the least that must move (each input read once, the result written
once), so bytes / time above the memory's bandwidth means that the data came from a cache.

Counting costs about 3 us per op (6 with live memory), nearly all outside the time of the op. While
any mode is active optimizers compute with ops instead of their fused kernel, so that each can be
seen; a block without small ops takes about as long as without the counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tinytorch.dispatch import SCALAR_TYPES, Input, Mode
from tinytorch.op import Op, Params, Plan
from tinytorch.state import current_phase

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

IN_PLACE_WRITE = "copy_"  # the name under which in-place writes are counted
PHASES = ("forward", "backward", "optimizer")


class Cost(NamedTuple):
    """The cost of one op by the op table.

    Attributes:
        flops: floating-point operations; a multiply-add counts as two.
        bytes: read and written at the least.
    """

    flops: int
    bytes: int


def cost_of(op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Cost:
    """The cost of an op on these inputs, as a mode gets them: `op.flops` and `op.bytes_moved`.

    Args:
        op: a row of the op table.
        inputs: tensors and Python numbers. A number has the shape () and moves no bytes.
        params: of the op.
        plan: `plan.meta` is the shape and dtype of the result.

    A matrix product (m, k) @ (k, n) takes 2 m k n FLOPs, for example.
    """
    scalar = [type(t) in SCALAR_TYPES for t in inputs]
    shapes = [() if s else t.meta.shape for t, s in zip(inputs, scalar, strict=True)]
    metas = [t.meta for t, s in zip(inputs, scalar, strict=True) if not s]
    return Cost(op.flops(shapes, plan.meta.shape, params), op.bytes_moved(metas, plan.meta))


@dataclass(slots=True)
class OpStats:
    """Sums over the calls of an op."""

    calls: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0

    def add(self, seconds: float, cost: Cost) -> None:
        """Count one call."""
        self.calls += 1
        self.seconds += seconds
        self.flops += cost.flops
        self.bytes += cost.bytes

    @property
    def flops_per_second(self) -> float:
        """FLOPs / seconds."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes / seconds."""
        return self.bytes / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values, as for JSON."""
        return asdict(self)


def total(stats: Iterable[OpStats]) -> OpStats:
    """The sum of several."""
    result = OpStats()
    for each in stats:
        result.calls += each.calls
        result.seconds += each.seconds
        result.flops += each.flops
        result.bytes += each.bytes
    return result


class OpCounter(Mode):
    """Counts the ops of a block by phase and op.

    Attributes:
        stats: an `OpStats` for each (phase, name of the op).

    >>> import tinytorch
    >>> x = tinytorch.ones(4, 8)
    >>> with OpCounter() as counter:
    ...     y = (x @ x.T).sum()
    >>> counter.ops["matmul"].calls, counter.ops["matmul"].flops
    (1, 256)
    """

    def __init__(self) -> None:
        self.stats: dict[tuple[str, str], OpStats] = {}
        self._costs: dict[Plan, Cost] = {}

    @property
    def ops(self) -> dict[str, OpStats]:
        """The sums over all phases for each op, the longest time first."""
        names = {name for _, name in self.stats}
        sums = {name: total(s for (_, n), s in self.stats.items() if n == name) for name in names}
        return dict(sorted(sums.items(), key=lambda item: -item[1].seconds))

    @property
    def phases(self) -> dict[str, OpStats]:
        """The sums over all ops for each phase that occurred: forward, backward, optimizer."""
        names = dict.fromkeys([*PHASES, *(phase for phase, _ in self.stats)])
        sums = {name: total(s for (p, _), s in self.stats.items() if p == name) for name in names}
        return {name: stats for name, stats in sums.items() if stats.calls}

    @property
    def total(self) -> OpStats:
        """The sum over everything."""
        return total(self.stats.values())

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        """Pass the op on to `self.below`, note its time and cost, and return its data.

        Only the call of `below` is timed, with `perf_counter`. The cost is the same for a plan, so
        `self._costs` remembers it.
        """
        start = perf_counter()
        data = self.below(op, inputs, params, plan)
        seconds = perf_counter() - start
        cost = self._costs.get(plan)
        if cost is None:
            cost = self._costs[plan] = cost_of(op, inputs, params, plan)
        self.note(op.name, start, seconds, cost)
        return data

    def write(self, target: Tensor, data: Any) -> None:
        start = perf_counter()
        super().write(target, data)
        moved = 2 * target.meta.nbytes
        self.note(IN_PLACE_WRITE, start, perf_counter() - start, Cost(0, moved))

    def note(self, name: str, start: float, seconds: float, cost: Cost) -> None:
        """Count one call that began at `start` on the clock `time.perf_counter`.

        It is added to the `OpStats` of (`current_phase()`, name), which the first call makes.
        """
        key = (current_phase(), name)
        stats = self.stats.get(key)
        if stats is None:
            stats = self.stats[key] = OpStats()
        stats.add(seconds, cost)
