"""Memory of a graph: what is alive when, what is alive at the peak, and a plan of buffers.

Nothing is run. A storage lives from the node that makes it to the last use of a value in it, views
included. Inputs and constants are not counted: they are there before. Results live to the end.
The graph may be one of ours or of torch.fx: `Semantics.storages` knows which memory its values are
in. Run node by node, with each value freed after its last use, a graph takes just what is said
here. Not seen: what a kernel allocates and frees inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinytorch.bench.units import format_bytes
from tinytorch.errors import missing_extra
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics
from tinytorch.graph.storages import Storages

ALIGNMENT = 64  # bytes: a cache line, and a vector register of AVX-512


@dataclass
class Lifetime:
    """The interval of nodes over which a storage is alive.

    Attributes:
        node: that makes it.
        nbytes: its size.
        first, last: positions in the graph between which it is needed, both included.
        is_result: a result of the graph is in it.
    """

    node: AnyNode
    nbytes: int
    first: int
    last: int
    is_result: bool = False


def lifetimes(graph: AnyGraph, storages: Storages) -> dict[int, Lifetime]:
    """The lifetimes of the storages that the graph makes, by number, in its order."""
    last = last_reads(graph, storages)
    results = {s for n in graph.find_nodes(op="output") for s in storages.read(n)}
    return {
        s: Lifetime(node, storages.sizes[s], rank, last.get(s, rank), s in results)
        for rank, node in enumerate(graph.nodes)
        for s in storages.made(node)
        if s not in storages.external
    }


def last_reads(graph: AnyGraph, storages: Storages) -> dict[int, int]:
    """For each storage that is read the position of the last node that does."""
    return {s: rank for rank, node in enumerate(graph.nodes) for s in storages.read(node)}


@dataclass
class Timeline:
    """The bytes alive at each node.

    Attributes:
        nodes: of the graph, in order.
        live: bytes alive while each runs, its own result included.
        lifetimes: of the values.
    """

    nodes: list[AnyNode]
    live: list[int]
    lifetimes: list[Lifetime]

    @property
    def peak(self) -> int:
        """The most that is alive at once, in bytes."""
        return max(self.live, default=0)

    @property
    def peak_node(self) -> AnyNode:
        """The first node at which the peak is reached."""
        return self.nodes[self.live.index(self.peak)]

    @property
    def alive_at_peak(self) -> list[Lifetime]:
        """The storages alive at the peak, the largest first."""
        rank = self.live.index(self.peak)
        alive = [t for t in self.lifetimes if t.first <= rank <= t.last]
        return sorted(alive, key=lambda t: -t.nbytes)

    @property
    def total(self) -> int:
        """Bytes of all values, as if none were ever freed."""
        return sum(t.nbytes for t in self.lifetimes)

    def __str__(self) -> str:
        peak, total = format_bytes(self.peak), format_bytes(self.total)
        lines = [f"peak {peak} of {total} at {self.peak_node}"]
        for t in self.alive_at_peak[:10]:
            where = t.node.meta.get("stack_trace") or ""
            lines.append(f"  {format_bytes(t.nbytes):>9}  {t.node.name:20} {where}".rstrip())
        return "\n".join(lines)


def timeline(graph: AnyGraph, semantics: Semantics = TINYTORCH) -> Timeline:
    """Compute the bytes alive at each node of a graph.

    >>> from tinytorch.graph.parse import parse_graph
    >>> timeline(parse_graph('''
    ...     %x : float32[100] = placeholder[x]
    ...     %a : float32[100] = exp(%x)
    ...     %b : float32[100] = neg(%a)
    ...     %c : float32[] = sum(%b, dims=(0,), keepdim=False)
    ...     return (%c,)
    ... ''')).live
    [0, 400, 800, 404, 4]
    """
    return accumulate(graph, lifetimes(graph, semantics.storages(graph)).values())


def accumulate(graph: AnyGraph, values: Iterable[Lifetime]) -> Timeline:
    """The timeline of a graph of which these storages are counted."""
    nodes, values = list(graph.nodes), list(values)
    change = [0] * (len(nodes) + 1)
    for t in values:
        change[t.first] += t.nbytes
        change[t.last + 1] -= t.nbytes
    return Timeline(nodes, list(itertools.accumulate(change[:-1])), values)


# -- a plan of buffers -----------------------------------------------------------------------------


@dataclass
class BufferPlan:
    """The offset of each storage in one piece of memory that is allocated once.

    Results are not in the plan: they leave the graph and have memory of their own. (`plan_buffers`
    can be told otherwise.)

    Attributes:
        offsets: for each storage its first byte.
        in_place: storages that are written over one that is last used there, with that one.
        size: bytes of the whole piece.
        unplanned: bytes of all these storages if each had memory of its own.
    """

    offsets: dict[int, int]
    in_place: dict[int, int]
    size: int
    unplanned: int


def plan_buffers(
    graph: AnyGraph, semantics: Semantics = TINYTORCH, separate: Container[AnyNode] | None = None
) -> BufferPlan:
    """Plan memory: storages that are never alive together share it.

    An elementwise node writes in place of an input of its own size that nothing needs any more.
    What is left is placed by size, the largest first, at the lowest offset where it meets nothing
    that is alive at the same time.

    Args:
        separate: nodes whose values have memory of their own; by default the results.

    Source: Y. Pisarchyk, J. Lee, "Efficient memory management for deep neural net inference", 2020,
    greedy by size for offset calculation.
    """
    storages = semantics.storages(graph)
    alive = {
        s: t for s, t in lifetimes(graph, storages).items()
        if not (t.is_result if separate is None else t.node in separate)
    }  # fmt: skip
    found = {s: _overwritten(s, alive, storages, semantics) for s in alive}
    in_place = {s: old for s, old in found.items() if old is not None}
    blocks = _blocks(alive, in_place)
    placed: list[_Block] = []
    for block in sorted(blocks, key=lambda b: -alive[b.storages[0]].nbytes):
        block.offset = _lowest_offset(block, placed)
        placed.append(block)
    return BufferPlan(
        offsets={s: block.offset for block in blocks for s in block.storages},
        in_place=in_place,
        size=max((block.offset + block.size for block in blocks), default=0),
        unplanned=sum(t.nbytes for t in alive.values()),
    )


def _overwritten(
    storage: int, alive: dict[int, Lifetime], storages: Storages, semantics: Semantics
) -> int | None:
    """The storage of an input into which an elementwise node can write its result.

    It is last used there, has as many elements of the same size, and is not read a second time
    through a view, in another order.
    """
    t = alive[storage]
    if semantics.kind(t.node) != "elementwise" or len(storages.held[t.node]) != 1:
        return None
    inputs = t.node.all_input_nodes
    for a in inputs:
        for old in storages.made(a):
            once = sum(old in storages.held[i] for i in inputs) == 1
            is_last = old in alive and alive[old].last == t.first
            same_size = storages.sizes[old] == t.nbytes
            if once and is_last and same_size and _shape(a, semantics) == _shape(t.node, semantics):
                return old
    return None


def _shape(node: AnyNode, semantics: Semantics) -> Any:
    meta = semantics.meta(node)
    return None if meta is None else meta.shape


@dataclass
class _Block:
    """Storages that take over each other's memory, in order."""

    storages: list[int]
    size: int
    first: int
    last: int
    offset: int = 0


def _blocks(alive: dict[int, Lifetime], in_place: dict[int, int]) -> list[_Block]:
    block_of: dict[int, _Block] = {}
    blocks = []
    for s, t in alive.items():
        if s in in_place:
            block_of[s] = block_of[in_place[s]]
            block_of[s].storages.append(s)
            block_of[s].last = t.last
        else:
            size = -(-t.nbytes // ALIGNMENT) * ALIGNMENT
            block_of[s] = _Block([s], size, t.first, t.last)
            blocks.append(block_of[s])
    return blocks


def _lowest_offset(block: _Block, placed: list[_Block]) -> int:
    """Where a block meets none of those placed that are alive at the same time."""
    taken = sorted(
        (b.offset, b.offset + b.size) for b in placed
        if b.first <= block.last and block.first <= b.last
    )  # fmt: skip
    offset = 0
    for start, end in taken:
        if offset + block.size <= start:
            break
        offset = max(offset, end)
    return offset


# -- a picture -------------------------------------------------------------------------------------


def plot_memory(
    timelines: dict[str, Timeline], path: str | Path, budget: int | None = None
) -> None:
    """Draw memory against execution rank, one line a timeline.

    Args:
        timelines: by label. The dotted line is where the first one's backward begins.
        path: of the picture; the suffix says the format.
        budget: bytes, drawn as a horizontal line.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "graph", "plot_memory") from None
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes: Any = figure.subplots()
    for label, each in timelines.items():
        mebibytes = [b / 2**20 for b in each.live]
        axes.step(range(len(mebibytes)), mebibytes, where="post", label=label)
    first = next(iter(timelines.values()))
    phases = [n.meta.get("phase", "forward") for n in first.nodes]
    if "backward" in phases:
        axes.axvline(phases.index("backward"), color="gray", linestyle=":", label="backward begins")
    if budget is not None:
        axes.axhline(budget / 2**20, color="red", linestyle="--", label="budget")
    axes.set_xlabel("execution rank")
    axes.set_ylabel("MiB alive")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path)
