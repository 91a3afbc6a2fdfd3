"""The strategies, and the frontier of plans that they make together."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._functorch import partitioners

from tests.fx.small import SEMANTICS, ConvNet, joint_of, mlp, problem_of, squares
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.passes.checkpoint import Checkpoint
from tinytorch.fx.recompute.checkpointing import CLEANING
from tinytorch.fx.recompute.known import known_frontier
from tinytorch.fx.recompute.mincut import BUDGETS, STRATEGIES, min_cut_partition, min_cut_plans
from tinytorch.graph.ir import GraphError
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes import PassManager, get_pass_by_name
from tinytorch.graph.recompute.frontier import Frontier, find_frontier
from tinytorch.graph.recompute.mutwo import candidates, greedy_order, greedy_plans
from tinytorch.graph.recompute.problem import Plan, Problem, RecomputeError
from tinytorch.graph.recompute.rewrite import rewrite
from tinytorch.graph.recompute.segment_search import Search, cheapest, segment_plans
from tinytorch.graph.recompute.segments import Segments

BATCH = (torch.randn((64, 32), generator=torch.Generator().manual_seed(0)),)
IMAGES = (torch.randn((4, 3, 16, 16), generator=torch.Generator().manual_seed(0)),)


@pytest.fixture(scope="module")
def module() -> torch.fx.GraphModule:
    return joint_of(mlp(6), BATCH).module


@pytest.fixture(scope="module")
def frontier(module: torch.fx.GraphModule) -> Frontier:
    return find_frontier(problem_of(module), STRATEGIES)


# -- muTWO -----------------------------------------------------------------------------------------


def test_mutwo_forgets_most_bytes_for_the_time_first(module: torch.fx.GraphModule) -> None:
    problem = problem_of(module)
    order = greedy_order(problem)
    assert sorted(order) == sorted(candidates(problem))
    alone = candidates(problem)
    first = max(alone.values(), key=lambda c: c.nbytes / c.cost)
    assert alone[order[0]].nbytes / alone[order[0]].cost == first.nbytes / first.cost
    plans = list(greedy_plans(problem))
    assert plans[0] == problem.everything
    assert plans[-1] == problem.everything - set(order)


def test_mutwo_knows_what_a_value_is_computed_from(module: torch.fx.GraphModule) -> None:
    problem = problem_of(module)
    found = candidates(problem)
    for s, c in found.items():
        assert s not in c.sources
        assert c.sources <= found.keys()
        # keeping its sources, and forgetting only it, costs just what the candidate says
        assert problem.simulate(problem.everything - {s}).cost == pytest.approx(c.cost)
        assert c.made_bytes >= c.nbytes


# -- segments --------------------------------------------------------------------------------------


def test_segments_of_a_chain() -> None:
    problem = problem_of(joint_of(mlp(12), BATCH).module)
    segments = Segments(problem)
    assert len(segments) >= 6
    assert segments.ends[-1] == len(problem.forward)
    windows = [i for window in reversed(segments.windows) for i in window]
    assert windows == list(range(len(problem.backward)))


def test_an_option_is_measured_exactly(module: torch.fx.GraphModule) -> None:
    problem = problem_of(module)
    segments = Segments(problem)
    for first, end in [(0, 1), (2, 3), (1, 4), (0, len(segments))]:
        run = segments.run(first, end)
        for kept in (frozenset(run.free), frozenset(run.free[::2]), frozenset[int]()):
            option = segments.measure(run, kept)
            plan = problem.simulate(run.elsewhere | kept)
            assert option.cost == plan.cost
            assert run.reference + option.peak <= plan.peak


def test_equal_segments_are_searched_once() -> None:
    segments = Segments(problem_of(joint_of(mlp(12), BATCH).module))
    keys = [segments.structure(segments.run(i, i + 1)) for i in range(len(segments))]
    assert len(set(keys)) < len(keys)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("share", [0.9, 0.8, 0.7])
def test_the_combination_is_within_the_budget(share: float) -> None:
    problem = problem_of(joint_of(ConvNet(), IMAGES).module)
    budget = int(share * problem.simulate(problem.everything).peak)
    segments = Segments(problem)
    kept = cheapest(segments, Search(segments).runs(), budget)
    assert kept is not None
    assert problem.simulate(kept).peak <= budget * 1.02  # what spans segments is not modelled


def test_what_an_option_does_not_touch_changes_nothing() -> None:
    problem = problem_of(joint_of(ConvNet(), IMAGES).module)
    segments, shift = Segments(problem), len(problem.sizes)
    run = segments.run(0, len(segments))
    untouched = 0
    for kept in (frozenset(run.free), frozenset(run.free[::2]), frozenset(run.free[:3])):
        option = segments.measure(run, kept)
        for s in run.free:
            if s not in option.touched and s + shift not in option.touched:
                untouched += 1
                other = segments.measure(run, kept ^ {s})
                assert (other.freed, other.peak, other.cost) == (
                    option.freed, option.peak, option.cost
                )  # fmt: skip
    assert untouched


def test_no_combination_for_no_memory(module: torch.fx.GraphModule) -> None:
    segments = Segments(problem_of(module))
    assert cheapest(segments, Search(segments).runs(), 0) is None


def test_a_budget_of_everything_costs_nothing(module: torch.fx.GraphModule) -> None:
    problem = problem_of(module)
    assert problem.simulate(next(segment_plans(problem))).cost == 0


# -- minimum cut -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_min_cut_is_torchs(module: torch.fx.GraphModule) -> None:
    before = str(module.graph)
    parts = min_cut_partition(module, 0.5)
    assert str(module.graph) == before
    assert parts.kept
    returned = parts.forward.graph.output_node().args[0]
    assert len(returned) == parts.results + len(parts.kept)
    names = {n.name for n in module.graph.nodes}
    assert any(name in names for name in parts.kept)


@pytest.mark.slow
def test_asking_for_all_budgets_at_once_is_asking_for_each(
    module: torch.fx.GraphModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(module)
    nodes = {n.name: n for n in module.graph.nodes}
    single = []
    for budget in BUDGETS:
        kept = [nodes[name] for name in min_cut_partition(module, budget).kept if name in nodes]
        single.append(problem.simulate(s for n in kept for s in problem.found.held[n]))
    cuts = []
    cut = partitioners.solve_min_cut
    monkeypatch.setattr(partitioners, "solve_min_cut", lambda *a: cuts.append(a) or cut(*a))
    together = [problem.simulate(kept) for kept in min_cut_plans(problem)]
    assert [(p.peak, p.cost) for p in together] == [(p.peak, p.cost) for p in single]
    assert len({p.peak for p in together}) > 1
    assert len(cuts) <= len(BUDGETS) + 3  # a cut each, and the three that all begin with
    assert partitioners.choose_saved_values_set.__module__ == partitioners.__name__


# -- the frontier ----------------------------------------------------------------------------------


def test_lower_is_dearer(frontier: Frontier) -> None:
    for lower, higher in zip(frontier.plans, frontier.plans[1:], strict=False):
        assert lower.peak < higher.peak
        assert lower.cost > higher.cost
    assert frontier.everything.cost == 0


def test_a_lower_budget_never_gives_a_higher_peak(frontier: Frontier) -> None:
    lowest, whole = frontier.plans[0].peak, frontier.everything.peak
    before: Plan | None = None
    for budget in range(whole, lowest - 1, -max(1, (whole - lowest) // 500)):
        plan = frontier.within(budget)
        assert plan.peak <= budget
        if before is not None:
            assert plan.peak <= before.peak
            assert plan.cost >= before.cost
        before = plan


def test_no_strategy_beats_the_frontier(module: torch.fx.GraphModule, frontier: Frontier) -> None:
    problem = problem_of(module)
    for strategy in STRATEGIES.values():
        for kept in strategy(problem):
            plan = problem.simulate(kept)
            assert frontier.within(plan.peak).cost <= plan.cost
    blocks = problem.simulate(_block_boundaries(problem_of(module)))
    assert frontier.within(blocks.peak).cost <= blocks.cost


def _block_boundaries(problem: Problem) -> set[int]:
    segments = Segments(problem)
    return {s for i in range(len(segments)) for s in segments.run(i, i + 1).always}


def test_fractions_and_bytes(frontier: Frontier) -> None:
    whole = frontier.everything.peak
    assert frontier.within(0.8) == frontier.within(int(0.8 * whole))
    assert frontier.within(1.0) == frontier.everything
    assert frontier.within(10 * whole) == frontier.everything


def test_an_impossible_budget_says_the_lowest_possible(frontier: Frontier) -> None:
    lowest = frontier.plans[0].peak
    with pytest.raises(RecomputeError, match=f"the lowest that can is {lowest} "):
        frontier.within(lowest - 1)
    assert frontier.within(lowest) == frontier.plans[0]


def test_unknown_strategy(module: torch.fx.GraphModule) -> None:
    with pytest.raises(KeyError, match="magic"):
        known_frontier(problem_of(module), ["magic"])


def test_recompute_rewrites(module: torch.fx.GraphModule, frontier: Frontier) -> None:
    own = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    problem = problem_of(own)
    plan = find_frontier(problem, {"mutwo": greedy_plans}).within(0.6)
    assert rewrite(problem, plan)
    assert timeline(own.graph, SEMANTICS).peak == plan.peak <= 0.6 * frontier.everything.peak


# -- the pass --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_pass_on_a_whole_step() -> None:
    # with more activations than optimizer state, or the optimizer is the peak
    step = capture_step(mlp(8, 16), (torch.ones(256, 16),), "sgd", loss=squares, lr=0.1)
    passes = [get_pass_by_name(name)(SEMANTICS) for name in CLEANING]
    manager = PassManager([*passes, Checkpoint(SEMANTICS, budget=0.6)], semantics=SEMANTICS)
    graph, report = manager.run(step.module.graph)
    assert not report.failures, report
    before = timeline(step.module.graph, SEMANTICS).peak
    assert timeline(graph, SEMANTICS).peak <= 0.6 * before


def test_the_pass_checks_the_budget(module: torch.fx.GraphModule) -> None:
    with pytest.raises(GraphError, match="not within the budget"):
        Checkpoint(SEMANTICS, budget=0.5).verify(module.graph, module.graph)
