"""Simulated swapping against an independent replay, and the choice against all there are."""

from __future__ import annotations

import copy
import heapq
import itertools
from functools import cache

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.fx.small import SEMANTICS, ConvNet, joint_of, mlp, problem_of
from tinytorch.fx.recompute.swap_search import find_swap_frontier, joint_path
from tinytorch.fx.recompute.swapping import Swapping, SwapPlan
from tinytorch.graph.memory import lifetimes
from tinytorch.graph.recompute.frontier import Frontier, find_frontier
from tinytorch.graph.recompute.problem import Plan, RecomputeError, is_forward
from tinytorch.graph.recompute.rewrite import rewrite
from tinytorch.graph.storages import Storages

UNIT = 1 / 64  # of durations: sums of them are exact
NAMES = ["mlp", "batch norm"]
FAST, SLOW = 2.0**18, 2.0**9  # bytes per second: a copy is hidden, or is not


@cache
def module_of(name: str) -> torch.fx.GraphModule:
    if name == "batch norm":
        return joint_of(ConvNet(), (torch.ones(2, 3, 8, 8),)).module
    depth, width = (3, 32) if name == "mlp" else (1, 8)
    return joint_of(mlp(depth, width), (torch.ones(16, width),)).module


def copy_of(name: str, seed: int = 0) -> torch.fx.GraphModule:
    """With a duration for every node that makes memory."""
    original = module_of(name)
    module = torch.fx.GraphModule(original, copy.deepcopy(original.graph))
    found = SEMANTICS.storages(module.graph)
    generator = torch.Generator().manual_seed(seed)
    for node in module.graph.nodes:
        random = int(torch.randint(0, 64, (), generator=generator)) * UNIT
        is_call = node.op == "call_function" and bool(found.made(node))
        node.meta["seconds"] = random if is_call else 0.0
    return module


def swapping_of(name: str, seed: int, bandwidth: float) -> Swapping:
    problem = problem_of(copy_of(name, seed))
    return Swapping(problem, {n: n.meta["seconds"] for n in problem.graph.nodes}, bandwidth)


def recomputing_of(swapping: Swapping) -> Frontier:
    return find_frontier(swapping.problem)


def random_plan(swapping: Swapping, seed: int) -> SwapPlan:
    generator = torch.Generator().manual_seed(seed)
    treated = torch.randint(0, 3, (len(swapping.problem.sizes),), generator=generator).tolist()
    kept = {s for s in swapping.problem.candidates if treated[s] == 0}
    return swapping.simulate(kept, {s for s in swapping.candidates if treated[s] == 1})


# -- an independent replay -------------------------------------------------------------------------


class Replay:
    """Goes through the rewritten graph node by node, with a queue of events for the copies.

    It knows the plan's names, moments of asking and bandwidth, and nothing of what was simulated.
    """

    def __init__(self, name: str, seed: int, plan: SwapPlan, bandwidth: float) -> None:
        module = copy_of(name, seed)
        problem = problem_of(module)
        makers = {s: problem.made_by[s] for s in plan.swapped}
        names = {s: (op.node.name, op.makes.index(s)) for s, op in makers.items()}
        counted = {op.node.name for op in problem.backward}
        rewrite(problem, Plan(plan.kept | plan.swapped, 0, 0.0, 0))
        module.recompile()
        self.graph, self.bandwidth = module.graph, bandwidth
        self.found = SEMANTICS.storages(self.graph)
        nodes = {n.name: n for n in module.graph.nodes}
        self.number = {s: self.found.made(nodes[n])[i] for s, (n, i) in names.items()}
        self.asked = {t.asked: [] for t in plan.transfers}
        for t in plan.transfers:
            self.asked[t.asked].append(self.number[t.storage])
        self.counted = {n for n in module.graph.nodes if n.name in counted
                        or (n.meta.get("recomputed") and self.found.made(n))}  # fmt: skip
        self.device: dict[int, int] = {}  # storages that take memory, each so many times
        self.peak, self.now, self.stream = 0, 0.0, 0.0
        self.events: list[tuple[float, int, int]] = []  # when a copy out ends: its storage
        self.arrives: dict[int, float] = {}
        self.out_end: dict[int, float] = {}

    def run(self) -> tuple[int, float]:
        dies = _deaths(self.graph, self.found)
        leaves = self._last_forward_uses()
        event = 0
        for rank, node in enumerate(self.graph.nodes):
            self._advance(self.now)
            if node in self.counted:
                for s in self.asked.get(event, ()):
                    self._ask(s)
                event += 1
            self._look()
            waited = max((self.arrives.get(s, 0.0) for s in self.found.read(node)), default=0.0)
            self._advance(max(self.now, waited))
            self.device.update(dict.fromkeys(set(self.found.made(node)) - self.found.external, 1))
            self._look()
            self._advance(self.now + node.meta.get("seconds", 0.0))
            for s in dies.get(rank, ()):
                del self.device[s]
            for s in leaves.get(rank, ()):
                self.out_end[s] = self._copy(s, self.now)
                heapq.heappush(self.events, (self.out_end[s], rank, s))
        return self.peak, self.now

    def _last_forward_uses(self) -> dict[int, list[int]]:
        last: dict[int, int] = {}
        for rank, node in enumerate(self.graph.nodes):
            if is_forward(node):
                for s in {*self.found.read(node), *self.found.held[node]}:
                    last[s] = rank
        return {rank: sorted(s for s in self.number.values() if last[s] == rank)
                for rank in last.values()}  # fmt: skip

    def _ask(self, s: int) -> None:
        if self.out_end[s] <= self.now:
            self.device[s] = 1
        else:  # it is still on its way out: it stays where it is
            self.events = [e for e in self.events if e[2] != s]
            heapq.heapify(self.events)
        self.arrives[s] = self._copy(s, max(self.now, self.out_end[s]))

    def _copy(self, s: int, earliest: float) -> float:
        self.stream = max(self.stream, earliest) + self.found.sizes[s] / self.bandwidth
        return self.stream

    def _advance(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, s = heapq.heappop(self.events)
            self._look()
            del self.device[s]
        self.now = until

    def _look(self) -> None:
        self.peak = max(self.peak, sum(self.found.sizes[s] for s in self.device))


def _deaths(graph: torch.fx.Graph, found: Storages) -> dict[int, list[int]]:
    dies: dict[int, list[int]] = {}
    for s, t in lifetimes(graph, found).items():
        if not t.is_result:
            dies.setdefault(t.last, []).append(s)
    return dies


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), bandwidth=st.sampled_from([SLOW, 2.0**13, FAST]))
def test_a_plan_takes_what_a_replay_of_the_rewritten_graph_takes(
    name: str, seed: int, bandwidth: float
) -> None:
    swapping = swapping_of(name, seed, bandwidth)
    plan = random_plan(swapping, seed)
    assert (plan.peak, plan.seconds) == Replay(name, seed, plan, bandwidth).run()
    assert plan.peak >= swapping.floor
    assert plan.seconds >= swapping.compute_seconds + plan.recompute_seconds
    assert plan.stall_seconds == plan.seconds - swapping.compute_seconds - plan.recompute_seconds


# -- the rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_without_swapping_it_is_recomputation(name: str) -> None:
    swapping = swapping_of(name, 0, FAST)
    problem = swapping.problem
    for plan in recomputing_of(swapping).plans:
        found = swapping.simulate(plan.kept)
        assert (found.peak, found.transfers, found.stall_seconds) == (plan.peak, (), 0)
    whole = swapping.simulate(problem.everything)
    assert whole.seconds == swapping.compute_seconds


@pytest.mark.parametrize("name", NAMES)
def test_a_bus_without_limit_costs_no_time(name: str) -> None:
    swapping = swapping_of(name, 1, float("inf"))
    plan = swapping.simulate((), swapping.candidates)
    assert plan.seconds == swapping.compute_seconds
    assert swapping.floor <= plan.peak < swapping.simulate(swapping.problem.everything).peak


def test_a_slow_bus_makes_the_backward_wait() -> None:
    swapping = swapping_of("mlp", 1, SLOW)
    plan = swapping.simulate((), swapping.candidates)
    assert plan.stall_seconds > 0
    assert plan.seconds == swapping.compute_seconds + plan.stall_seconds
    ordered = sorted([t.out for t in plan.transfers] + [t.back for t in plan.transfers])
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))  # one copy at a time
    for t in plan.transfers:
        assert t.out[1] - t.out[0] == t.nbytes / SLOW
        assert t.out[1] <= t.away[1] <= t.back[0]


def test_what_cannot_be_swapped() -> None:
    swapping = swapping_of("mlp", 0, FAST)
    result = next(iter(swapping.problem.results))
    with pytest.raises(RecomputeError, match=rf"storages \[{result}\] cannot be swapped"):
        swapping.simulate((), [result])
    with pytest.raises(RecomputeError, match="bandwidth of 0 bytes/s"):
        Swapping(swapping.problem, {}, 0.0)


# -- choosing --------------------------------------------------------------------------------------


def every_plan(swapping: Swapping) -> list[SwapPlan]:
    """Each candidate kept, swapped or computed again, in all combinations."""
    p = swapping.problem
    ways = []
    for s in sorted({*p.candidates, *swapping.candidates}):
        can = [True, s in swapping.candidates, s not in p.fixed]
        ways.append([(s, way) for way in range(3) if can[way]])
    return [
        swapping.simulate(
            {s for s, way in choice if way == 0}, {s for s, way in choice if way == 1}
        )
        for choice in itertools.product(*ways)
    ]


@pytest.mark.parametrize("bandwidth", [2.0**9, 2.0**11, 2.0**13])
def test_the_choice_is_the_best_of_all_on_a_tiny_graph(bandwidth: float) -> None:
    swapping = swapping_of("tiny", 3, bandwidth)
    plans = every_plan(swapping)
    frontier = find_swap_frontier(swapping, recomputing_of(swapping))
    lowest, whole = min(p.peak for p in plans), frontier.everything.peak
    assert frontier.plans[0].peak == lowest
    for budget in sorted({*range(lowest, whole, max(1, (whole - lowest) // 7)), whole}):
        best = min(p.seconds for p in plans if p.peak <= budget)
        found = frontier.within(budget)
        assert found.peak <= budget
        assert found.seconds == best


def test_the_bandwidth_decides_between_swapping_and_recomputing() -> None:
    recomputing = recomputing_of(swapping_of("mlp", 5, FAST))
    budget = (recomputing.plans[0].peak + recomputing.everything.peak) // 2
    chosen = []
    for bandwidth in (SLOW, FAST):
        frontier = find_swap_frontier(swapping_of("mlp", 5, bandwidth), recomputing)
        for lower, higher in itertools.pairwise(frontier.plans):
            assert lower.peak < higher.peak
            assert lower.seconds > higher.seconds
        chosen.append(frontier.within(budget))
    slow, fast = chosen
    assert slow.recompute_seconds > 0
    assert not slow.swapped
    assert fast.swapped
    assert fast.recompute_seconds == 0
    assert fast.seconds < slow.seconds


def test_mutwos_way_ends_with_nothing_kept() -> None:
    swapping = swapping_of("mlp", 2, 2.0**13)
    *_, last = joint_path(swapping)
    left = last.kept & set(swapping.candidates)
    assert not left
    assert last.swapped


def test_a_budget_below_the_lowest_says_so() -> None:
    swapping = swapping_of("tiny", 0, FAST)
    frontier = find_swap_frontier(swapping, recomputing_of(swapping))
    lowest = frontier.plans[0].peak
    with pytest.raises(RecomputeError, match=f"swapping included; the lowest that can is {lowest}"):
        frontier.within(lowest - 1)
