"""Which values of the forward to forget, and compute again in the backward, to fit a memory budget.

A candidate is a value of the forward that the backward reads. Every choice is judged by what it
does: the graph is rewritten and its peak taken from the timeline, since the memory that recomputing
itself takes decides as often as the memory that it saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tinytorch.errors import missing_extra
from tinytorch.graph.memory import lifetimes, timeline
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics

FLOPS_PER_BYTE = 6.0  # what a core computes while memory brings a byte


@dataclass
class RecomputePlan:
    """A choice, and what it does.

    Attributes:
        names: of the values that are not kept for the backward.
        peak: bytes alive at the most, after rewriting.
        extra_flops: of what is computed again, as a fraction of the graph's.
    """

    names: list[str]
    peak: int
    extra_flops: float


def is_forward(node: AnyNode) -> bool:
    """It is computed in the forward."""
    return bool(node.op == "call_function" and node.meta.get("phase", "forward") == "forward")


class Recomputation:
    """The candidates of a graph, and how they depend on each other.

    Attributes:
        sizes: bytes of each candidate.
    """

    def __init__(self, graph: AnyGraph, semantics: Semantics = TINYTORCH) -> None:
        self.graph = graph
        self.semantics = semantics
        storages = semantics.storages(graph)
        self.roots = storages.roots
        results = {t.node for t in lifetimes(graph, storages).values() if t.is_result}
        backward = [n for n in graph.nodes if n.op == "call_function" and not is_forward(n)]
        read = dict.fromkeys(self.roots[a] for n in backward for a in n.all_input_nodes)
        self.sizes = {
            n: semantics.meta(n).nbytes
            for n in read
            if is_forward(n) and n not in results and semantics.is_pure(n)
        }
        #: forward values that stay in any case
        self.kept = {n for n in results if is_forward(n)} | (read.keys() - self.sizes.keys())

    def cost(self, node: AnyNode) -> float:
        """FLOPs, or the FLOPs that fit into the time that memory takes."""
        cost = self.semantics.cost(node)
        return max(cost.flops, FLOPS_PER_BYTE * cost.bytes)

    def sources(self, node: AnyNode) -> set[AnyNode]:
        """The forward values that a value is computed from."""
        return {self.roots[a] for a in node.all_input_nodes if is_forward(self.roots[a])}

    def chain(self, node: AnyNode, forgotten: set[AnyNode]) -> set[AnyNode]:
        """What must be computed again to have `node` again."""
        chain: set[AnyNode] = set()
        pending = [node]
        while pending:
            current = pending.pop()
            if current in chain:
                continue
            chain.add(current)
            for source in self.sources(current):
                stored = source in self.kept or (source in self.sizes and source not in forgotten)
                if not stored:
                    pending.append(source)
        return chain

    def plan(self, forgotten: Iterable[AnyNode]) -> RecomputePlan:
        """What forgetting these values does."""
        names = [n.name for n in self.sizes if n in set(forgotten)]
        graph = self.semantics.copy(self.graph)
        made = rewrite(graph, names, self.semantics)
        whole = sum(self.semantics.cost(n).flops for n in self.graph.nodes) or 1
        extra = sum(self.semantics.cost(n).flops for n in made)
        return RecomputePlan(names, timeline(graph, self.semantics).peak, extra / whole)


def rewrite(
    graph: AnyGraph, names: Iterable[str], semantics: Semantics = TINYTORCH
) -> list[AnyNode]:
    """Let the backward compute the named values again, each right before its first use there.

    Returns:
        The new nodes. They carry meta["recomputed"], so that no pass merges them with the first.
    """
    recomputation = Recomputation(graph, semantics)
    wanted = set(names)
    forgotten = {n for n in recomputation.sizes if n.name in wanted}
    stored = recomputation.kept | (recomputation.sizes.keys() - forgotten)
    again: dict[AnyNode, AnyNode] = {}
    made: list[AnyNode] = []

    def missing(node: AnyNode) -> bool:
        """Not to be had in the backward: not stored, no view of an input, not yet made again."""
        root = recomputation.roots[node]
        return is_forward(node) and is_forward(root) and root not in stored and node not in again

    for node in list(graph.nodes):
        if node.op != "call_function" or is_forward(node):
            continue
        pending = [a for a in node.all_input_nodes if missing(a)]
        while pending:
            current = pending[-1]
            deeper = [a for a in current.all_input_nodes if missing(a)]
            if deeper:
                pending += deeper
                continue
            pending.pop()
            if current not in again:
                with graph.inserting_before(node):
                    new = graph.node_copy(current, lambda n: again.get(n, n))
                new.meta = {**current.meta, "phase": "backward", "recomputed": True}
                again[current] = new
                made.append(new)
        for a in node.all_input_nodes:
            if a in again:
                node.replace_input_with(a, again[a])
    return made


# -- choosing --------------------------------------------------------------------------------------


def choose_greedy(graph: AnyGraph, budget: int, semantics: Semantics = TINYTORCH) -> RecomputePlan:
    """Forget one value after the other until the peak is within the budget.

    Next is always the value that saves most bytes for the time that it takes to compute it again,
    from what is kept at that point. A value whose loss makes the peak higher is kept after all:
    what is computed again takes memory too.

    Returns:
        The first plan that fits; if none does, the one of the lowest peak.

    Source: S. Purandare et al., "muTWO: compile-time techniques for concurrent training of multiple
    models", 2023 (the recompute ratio); that each step is measured is our addition.
    """
    recomputation = Recomputation(graph, semantics)
    forgotten: list[AnyNode] = []
    left = set(recomputation.sizes)
    best = recomputation.plan([])
    while left and best.peak > budget:
        chosen = set(forgotten)

        def ratio(node: AnyNode, chosen: set[AnyNode] = chosen) -> tuple[float, str]:
            cost = sum(map(recomputation.cost, recomputation.chain(node, chosen)))
            return recomputation.sizes[node] / (1 + cost), node.name

        # of a large graph several at a time, as long as that neither hurts nor is enough
        step = sorted(left, key=ratio, reverse=True)[: max(1, len(left) // 32)]
        plan = recomputation.plan([*forgotten, *step])
        if len(step) > 1 and not budget < plan.peak <= best.peak:
            step = step[:1]
            plan = recomputation.plan([*forgotten, *step])
        left.difference_update(step)
        if plan.peak <= best.peak:
            forgotten += step
            best = plan
    return best


def choose_exact(
    graph: AnyGraph, budget: int, semantics: Semantics = TINYTORCH, steps: int = 16
) -> RecomputePlan:
    """The cheapest recomputation for a bound on what is kept, by integer programming.

    Minimizes the cost of what is computed again, subject to: the kept bytes are within a bound;
    what the backward reads is kept or computed again; and so is what that is computed from. The
    bound is lowered in `steps` until the peak of the rewritten graph is within the budget. For
    graphs of up to some hundred nodes.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    recomputation = Recomputation(graph, semantics)
    total = sum(recomputation.sizes.values())
    best = recomputation.plan([])
    for step in range(steps, -1, -1):
        if best.peak <= budget:
            break
        plan = recomputation.plan(cheapest(recomputation, total * step // steps))
        best = plan if plan.peak < best.peak else best
    return best


def cheapest(recomputation: Recomputation, kept_bytes: int) -> list[AnyNode]:
    """The values to forget at the least cost, if those kept may take `kept_bytes`."""
    try:
        import numpy as np
        from scipy.optimize import (  # type: ignore[import-untyped]
            Bounds,
            LinearConstraint,
            milp,
        )
    except ImportError:
        raise missing_extra("scipy", "graph", "choose_exact") from None
    candidates = list(recomputation.sizes)
    values = list(dict.fromkeys(n for c in candidates for n in _everything_below(recomputation, c)))
    keep = {n: i for i, n in enumerate(candidates)}
    compute = {n: len(keep) + i for i, n in enumerate(values)}
    rows: list[Any] = []
    lower: list[float] = []

    def require(coefficients: dict[int, float], least: float) -> None:
        row = np.zeros(len(keep) + len(compute))
        for i, c in coefficients.items():
            row[i] = c
        rows.append(row)
        lower.append(least)

    require({keep[n]: -float(size) for n, size in recomputation.sizes.items()}, -float(kept_bytes))
    for n in candidates:
        require({keep[n]: 1, compute[n]: 1}, 1)
    for n in values:
        for source in recomputation.sources(n):
            if source not in recomputation.kept:
                have = {compute[source]: 1.0, compute[n]: -1.0}
                require({**have, keep[source]: 1.0} if source in keep else have, 0)
    costs = np.array([0.0] * len(keep) + [recomputation.cost(n) for n in values])
    solution = milp(
        costs / (costs.max() or 1.0),
        integrality=np.ones(len(costs)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.array(rows), lb=np.array(lower)),
    )
    assert solution.x is not None, solution.message  # forgetting everything is always allowed
    return [n for n in candidates if solution.x[keep[n]] < 0.5]


def _everything_below(recomputation: Recomputation, node: AnyNode) -> set[AnyNode]:
    return recomputation.chain(node, set(recomputation.sizes))
