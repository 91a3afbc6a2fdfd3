"""Recomputation of our own graphs; what all graphs share is tested in tests/fx/recompute."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings, strategies as st

import tinytorch
from tests.graph.programs import Program
from tests.graph.recompute.integer_program import exact_plans
from tests.graph.test_memory import deep_step
from tinytorch.graph import Interpreter, PassManager, trace
from tinytorch.graph.interpret import Profiler
from tinytorch.graph.ir import Graph
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes import Recompute
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.recompute.frontier import STRATEGIES, Frontier, find_frontier
from tinytorch.graph.recompute.mutwo import greedy_plans
from tinytorch.graph.recompute.problem import Problem, RecomputeError, is_forward
from tinytorch.graph.recompute.rewrite import rewrite
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


@cache
def solved(blocks: int) -> tuple[Graph, Problem, Frontier]:
    with tinytorch.using_backend("numpy"):
        graph = deep_step(blocks).graph
    problem = Problem(graph, TINYTORCH)
    return graph, problem, find_frontier(problem)


def test_keeping_everything_is_the_graph_as_it_is():
    graph, problem, frontier = solved(3)
    assert frontier.everything.peak == timeline(graph).peak
    assert problem.simulate(problem.everything).cost == 0
    assert not Recompute(budget=1.0).run(TINYTORCH.copy(graph))


@settings(max_examples=25, deadline=None)
@example(48831, 0.0)  # a view that nobody reads
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 0.7]))
def test_any_plan_is_exact_and_changes_no_number(seed: int, share: float):
    with tinytorch.using_backend("numpy"):
        program = Program(seed)
        inputs = [Tensor(x, requires_grad=True) for x in program.inputs]
        graph = trace(program.with_backward(), *inputs).graph
        plain = [Tensor(x) for x in program.inputs]
        if all(n.op != "call_function" or is_forward(n) for n in graph.nodes):
            return
        before, _ = tree_flatten(Interpreter(graph).run(*plain))
        random, problem = Random(seed), Problem(graph, TINYTORCH)
        plan = problem.simulate([s for s in problem.candidates if random.random() < share])
        rewrite(problem, plan)
        graph.lint()
        after, _ = tree_flatten(Interpreter(graph).run(*plain))
    assert timeline(graph).peak == plan.peak
    for a, b in zip(before, after, strict=True):
        assert a is b is None or a.numpy().tobytes() == b.numpy().tobytes()


def test_the_predicted_peak_is_what_a_run_holds():
    program = trace(_tower, tinytorch.ones(32, 32, requires_grad=True)).graph
    problem = Problem(program, TINYTORCH)
    plan = find_frontier(problem).plans[0]
    assert plan.peak < problem.simulate(problem.everything).peak
    rewrite(problem, plan)
    profiler, x = Profiler(program), tinytorch.ones(32, 32)
    profiler.run(x)
    assert max(p.live for p in profiler.profiles) == plan.peak + x.nbytes


def _tower(x: Tensor) -> Tensor | None:
    y = x
    for _ in range(8):
        y = (y * 0.5).tanh().exp()
    y.sum().backward()
    return x.grad


def test_the_pass_fits_the_budget_and_no_other_pass_undoes_it():
    graph, _, frontier = solved(6)
    budget = 0.75
    made, report = PassManager([Recompute(budget=budget), "cse", "dce"]).run(graph)
    assert not report.failures, report
    assert report.results[0].changed
    assert timeline(made).peak == frontier.within(budget).peak <= budget * timeline(graph).peak
    again = [n for n in made.nodes if n.meta.get("recomputed")]
    assert again and all(n.meta["phase"] == "backward" for n in again)


def test_by_default_the_peak_gets_as_low_as_it_can():
    graph, _, frontier = solved(3)
    own = TINYTORCH.copy(graph)
    assert Recompute().run(own)
    assert timeline(own).peak == frontier.plans[0].peak


def test_a_budget_out_of_reach_says_the_lowest_that_is_not():
    graph, _, frontier = solved(3)
    with pytest.raises(RecomputeError, match=f"the lowest that can is {frontier.plans[0].peak} "):
        Recompute(budget=1).run(TINYTORCH.copy(graph))


def test_a_graph_without_a_backward_stays_as_it_is():
    graph = trace(lambda x: x.exp().log(), tinytorch.ones(3)).graph
    before = str(graph)
    assert not Recompute(budget=0.5).run(graph)
    assert str(graph) == before
    x = tinytorch.ones(3, requires_grad=True)  # nor one whose backward reads nothing of it
    graph = trace(lambda x: (x * 2.0).sum().backward(), x).graph
    assert not Recompute().run(PassManager(["dce"]).run(graph)[0])


def test_the_exact_choice_is_no_dearer_than_the_greedy_one():
    _, problem, _ = solved(5)
    greedy, exact = (
        find_frontier(problem, {name: strategy})
        for name, strategy in (("mutwo", greedy_plans), ("exact", exact_plans))
    )
    for budget in (0.9, 0.8):
        assert exact.within(budget).cost <= greedy.within(budget).cost * 1.05


def test_all_strategies_together_are_as_good_as_the_exact_choice():
    _, problem, frontier = solved(5)
    exact = find_frontier(problem, {**STRATEGIES, "exact": exact_plans})
    for budget in (0.9, 0.8):
        assert frontier.within(budget).cost <= exact.within(budget).cost * 1.01


def test_half_the_peak_of_a_twelve_block_model_at_a_third_more_flops():
    _, problem, frontier = solved(12)
    plan = frontier.within(0.5)
    assert plan.flops < 0.35 * problem.total_flops


def test_what_is_computed_again_stands_before_its_first_use():
    graph = TINYTORCH.copy(solved(2)[0])
    problem = Problem(graph, TINYTORCH)
    made = rewrite(problem, problem.simulate(()))
    graph.lint()
    assert made
    for node in made:
        assert node.users and all(user.meta["phase"] == "backward" for user in node.users)
