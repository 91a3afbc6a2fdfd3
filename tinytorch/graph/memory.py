"""Memory of a graph: what is alive when, the peak and its witness, and a plan of buffers.

Nothing is run. A node's value lives from the node to its last use; a view lives in the memory of
what it views. Inputs and constants are not counted: they are there before. Results live to the end.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinytorch.bench.units import format_bytes
from tinytorch.errors import missing_extra
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics

ALIGNMENT = 64  # bytes: a cache line, and a vector register of AVX-512


@dataclass
class Lifetime:
    """The memory of one value and its views.

    Attributes:
        node: that makes the value.
        nbytes: its size.
        first, last: positions in the graph between which it is needed, both included.
        is_result: it is, or is viewed by, a result of the graph.
    """

    node: AnyNode
    nbytes: int
    first: int
    last: int
    is_result: bool


def memory_roots(graph: AnyGraph, semantics: Semantics = TINYTORCH) -> dict[AnyNode, AnyNode]:
    """For each node the one whose memory its value is in: itself, unless it is a view."""
    roots: dict[AnyNode, AnyNode] = {}
    for node in graph.nodes:
        viewed = semantics.aliases(node)
        roots[node] = roots[viewed[0]] if viewed else node
    return roots


def lifetimes(graph: AnyGraph, semantics: Semantics = TINYTORCH) -> list[Lifetime]:
    """The lifetimes of all values that the graph makes, in its order."""
    roots = memory_roots(graph, semantics)
    found: dict[AnyNode, Lifetime] = {}
    for rank, node in enumerate(graph.nodes):
        if node.op == "call_function" and roots[node] is node:
            found[node] = Lifetime(node, semantics.meta(node).nbytes, rank, rank, False)
        for used in node.all_input_nodes:
            lifetime = found.get(roots[used])
            if lifetime is not None:
                lifetime.last = rank
                lifetime.is_result |= node.op == "output"
    return list(found.values())


@dataclass
class Timeline:
    """How much is alive at each node.

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
    def witness(self) -> list[Lifetime]:
        """What is alive at the peak, the largest first."""
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
        for t in self.witness[:10]:
            where = t.node.meta.get("stack_trace") or ""
            lines.append(f"  {format_bytes(t.nbytes):>9}  {t.node.name:20} {where}".rstrip())
        return "\n".join(lines)


def timeline(graph: AnyGraph, semantics: Semantics = TINYTORCH) -> Timeline:
    """What is alive at each node of a graph."""
    return accumulate(list(graph.nodes), lifetimes(graph, semantics))


def accumulate(nodes: list[AnyNode], values: list[Lifetime]) -> Timeline:
    """The timeline of values with these lifetimes."""
    change = [0] * (len(nodes) + 1)
    for t in values:
        change[t.first] += t.nbytes
        change[t.last + 1] -= t.nbytes
    live, alive = [], 0
    for delta in change[:-1]:
        alive += delta
        live.append(alive)
    return Timeline(nodes, live, values)


# -- a plan of buffers -----------------------------------------------------------------------------


@dataclass
class BufferPlan:
    """Where each value lies in one piece of memory that is allocated once.

    Results are not in the plan: they leave the graph and have memory of their own. (`plan_buffers`
    can be told otherwise.)

    Attributes:
        offsets: for each node that makes a value its place, in bytes.
        in_place: nodes that write over an input which dies there, with that input.
        size: bytes of the whole piece.
        unplanned: bytes of all these values if each had memory of its own.
    """

    offsets: dict[AnyNode, int]
    in_place: dict[AnyNode, AnyNode]
    size: int
    unplanned: int


def plan_buffers(
    graph: AnyGraph, semantics: Semantics = TINYTORCH, apart: Container[AnyNode] | None = None
) -> BufferPlan:
    """Give values that are never alive together the same memory.

    An elementwise node writes in place of an input of its own size that nothing needs any more.
    What is left is placed by size, the largest first, at the lowest offset where it meets nothing
    that is alive at the same time.

    Args:
        apart: nodes whose values have memory of their own; by default the results.

    Source: Y. Pisarchyk, J. Lee, "Efficient memory management for deep neural net inference", 2020,
    greedy by size for offset calculation.
    """
    values = [
        t for t in lifetimes(graph, semantics)
        if not (t.is_result if apart is None else t.node in apart)
    ]  # fmt: skip
    blocks, in_place = _merge_in_place(values, memory_roots(graph, semantics), semantics)
    placed: list[tuple[int, int, list[Lifetime]]] = []  # offset, size, who lives there
    for block in sorted(blocks, key=lambda b: -b[0].nbytes):
        size = -(-block[0].nbytes // ALIGNMENT) * ALIGNMENT
        first, last = block[0].first, block[-1].last
        taken = sorted(
            (offset, offset + n) for offset, n, others in placed
            if others[0].first <= last and first <= others[-1].last
        )  # fmt: skip
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((offset, size, block))
    return BufferPlan(
        offsets={t.node: offset for offset, _, block in placed for t in block},
        in_place=in_place,
        size=max((offset + size for offset, size, _ in placed), default=0),
        unplanned=sum(t.nbytes for t in values),
    )


def _merge_in_place(
    values: list[Lifetime], roots: dict[AnyNode, AnyNode], semantics: Semantics
) -> tuple[list[list[Lifetime]], dict[AnyNode, AnyNode]]:
    """Values that take over each other's memory, in order; and who writes over whom."""
    by_node = {t.node: t for t in values}
    block_of: dict[AnyNode, list[Lifetime]] = {}
    in_place: dict[AnyNode, AnyNode] = {}
    for t in values:
        old = _overwritable(t, by_node, roots, semantics)
        if old is None:
            block_of[t.node] = [t]
            continue
        block_of[t.node] = block_of[old]
        block_of[old].append(t)
        in_place[t.node] = old
    unique = {id(block): block for block in block_of.values()}
    return list(unique.values()), in_place


def _overwritable(
    t: Lifetime, by_node: dict[AnyNode, Lifetime], roots: dict[AnyNode, AnyNode], s: Semantics
) -> AnyNode | None:
    """The input whose memory an elementwise node can write its result into.

    It dies there, has as many elements of the same size, and is not read a second time through a
    view, in another order.
    """
    if s.kind(t.node) != "elementwise":
        return None
    inputs = t.node.all_input_nodes
    for a in inputs:
        old = by_node.get(a)
        if old is None or old.last != t.first or sum(roots[i] is a for i in inputs) > 1:
            continue
        if (s.meta(a).shape, old.nbytes) == (s.meta(t.node).shape, t.nbytes):
            return a
    return None


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
