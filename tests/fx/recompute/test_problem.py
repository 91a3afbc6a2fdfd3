"""A plan's simulated peak is that of the rewritten graph, and that of running it."""

from __future__ import annotations

import copy
import operator
from functools import cache

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from tests.fx.small import SEMANTICS, ConvNet, joint_of, mlp, problem_of, squares
from tinytorch.fx.capture.joint import JointGraph
from tinytorch.fx.capture.slots import BUFFER
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import load_model
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.graph.memory import timeline
from tinytorch.graph.recompute.problem import Problem, RecomputeError
from tinytorch.graph.recompute.rewrite import rewrite
from tinytorch.graph.recompute.walk import Walk
from tinytorch.graph.semantics import Cost


class Case:
    """A joint graph, what it gives, and the peak of giving it."""

    def __init__(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        self.batch = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
        self.joint: JointGraph = joint_of(model, self.batch)
        self.inputs = self.joint.flat_inputs(model, self.batch)
        self.expected, self.peak = self.run(self.joint.module)

    def run(self, module: torch.fx.GraphModule) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(1)
        with MemoryMeter(self.inputs) as meter, torch.no_grad():
            outputs = module(*self.inputs)
        return outputs, meter.peak

    def copy(self) -> torch.fx.GraphModule:
        return torch.fx.GraphModule(self.joint.module, copy.deepcopy(self.joint.module.graph))


NAMES = ["mlp", "dropout", "batch norm"]


@cache
def case_of(name: str) -> Case:
    if name == "batch norm":
        return Case(ConvNet(), (2, 3, 8, 8))
    return Case(mlp(3, dropout=0.3 if name == "dropout" else 0.0), (16, 32))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES)
def test_keeping_everything_changes_nothing(name: str) -> None:
    case = case_of(name)
    problem = problem_of(case.copy())
    plan = problem.simulate(problem.everything)
    assert (plan.peak, plan.cost, plan.flops) == (case.peak, 0, 0)
    assert rewrite(problem, plan) == []


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.3, 0.7]))
def test_any_plan_is_exact(name: str, seed: int, share: float) -> None:
    case = case_of(name)
    module = case.copy()
    problem = problem_of(module)
    chance = torch.rand(len(problem.sizes), generator=torch.Generator().manual_seed(seed))
    plan = problem.simulate(s for s in problem.candidates if chance[s] < share)
    made = rewrite(problem, plan)
    module.graph.lint()
    module.recompile()
    outputs, peak = case.run(module)
    assert timeline(module.graph, SEMANTICS).peak == plan.peak == peak
    assert all(map(torch.equal, outputs, case.expected))
    counted = sum(SEMANTICS.cost(n).flops for n in made if n.target is torch.ops.aten.addmm.default)
    assert counted <= plan.flops


def test_recomputed_right_before_use() -> None:
    case = case_of("mlp")
    module = case.copy()
    problem = problem_of(module)
    made = rewrite(problem, problem.simulate(()))
    assert made
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    for node in made:
        assert node.meta["recomputed"]
        if node.target is operator.getitem:
            continue  # a tuple is taken apart at once, and some of its parts are read later
        between = list(module.graph.nodes)[order[node] + 1 : min(order[u] for u in node.users)]
        # only what is computed again for the same op is between a node and its first use
        assert all("recomputed" in n.meta for n in between)


def test_random_ops_are_replayed() -> None:
    case = case_of("dropout")
    module = case.copy()
    problem = problem_of(module)
    rewrite(problem, problem.simulate(()))
    targets = [str(n.target) for n in module.graph.nodes]
    assert targets.count("run_and_save_rng_state") == targets.count("run_with_rng_state") == 3


def test_statistics_are_updated_once() -> None:
    case = case_of("batch norm")
    module = case.copy()
    problem = problem_of(module)
    rewrite(problem, problem.simulate(()))
    results = module.graph.output_node().args[0]
    statistics = [n for s, n in zip(case.joint.outputs, results, strict=True) if s.role == BUFFER]
    assert len(statistics) == 12  # mean, variance and count of each
    assert not any("recomputed" in n.meta for n in statistics)
    again = [n for n in module.graph.nodes if "recomputed" in n.meta and "batch_norm" in n.name]
    assert again
    for node in again:  # of what it returns only the normalized values are read, and moments
        assert {u.args[1] for u in node.users} <= {0, 1, 2}
        assert all(u.target is operator.getitem for u in node.users)


def test_measured_seconds_are_the_cost() -> None:
    module = case_of("mlp").copy()
    seconds = dict.fromkeys(module.graph.nodes, 2.0)
    problem = Problem(module.graph, SEMANTICS, seconds=seconds)
    plan = problem.simulate(())
    assert plan.cost == 2.0 * len({s.node for s in map(problem.made_by.get, _forgotten(problem))
                                   if s is not None})  # fmt: skip
    assert problem.total_cost == 2.0 * len([*problem.forward, *(
        op for op in problem.backward if op.makes)])  # fmt: skip


def _forgotten(problem: Problem) -> set[int]:
    walk = Walk(problem.whole, frozenset(problem.fixed))
    return {key - len(problem.sizes) for _, _, key in walk.allocates}


def test_a_forward_alone_is_refused() -> None:
    model = mlp(1)
    joint = joint_of(model, (torch.ones(4, 32),))
    for node in joint.module.graph.nodes:
        node.meta["phase"] = "forward"
    with pytest.raises(RecomputeError, match="has no backward"):
        problem_of(joint.module)


def test_writing_in_place_is_refused_before_the_optimizer() -> None:
    model, batch = mlp(1), (torch.ones(4, 32),)
    step = capture_step(model, batch, "sgd", loss=squares)
    graph = step.module.graph
    first = next(n for n in graph.nodes if n.meta.get("phase") == "backward"
                 and n.op == "call_function")  # fmt: skip
    with graph.inserting_before(first):
        parameter = graph.find_nodes(op="placeholder")[0]
        new = graph.call_function(torch.ops.aten.mul_.Tensor, (parameter, 1.0))
    new.meta = {**parameter.meta, "phase": "backward"}
    said = rf"mul_.*writes in place, or may .* before the backward ends, at {__file__}"
    new.meta["stack_trace"] = f'File "{__file__}", line 1, in forward\n    x.mul_(1.0)'
    with pytest.raises(RecomputeError, match=said):
        problem_of(step.module)
    new.meta["phase"] = "optimizer"
    graph.output_node().prepend(new)
    problem_of(step.module)


def test_the_cost_of_a_view_is_nothing() -> None:
    problem = problem_of(case_of("mlp").copy())
    views = [n for n in problem.graph.nodes if n.target is torch.ops.aten.t.default]
    assert views and all(SEMANTICS.cost(n) == Cost(0, 0) for n in views)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf:resnet152", "hf:bert-base", "hf:gpt2"])
def test_transformers(name: str) -> None:
    example = load_model(name, small=True, batch=2)
    joint = joint_of(example.model, example.batch, example.loss)
    inputs = joint.flat_inputs(example.model, example.batch)
    for share in (0.0, 0.5):
        module = torch.fx.GraphModule(joint.module, copy.deepcopy(joint.module.graph))
        problem = problem_of(module)
        chance = torch.rand(len(problem.sizes), generator=torch.Generator().manual_seed(0))
        plan = problem.simulate(s for s in problem.candidates if chance[s] < share)
        rewrite(problem, plan)
        module.recompile()
        outputs = []
        for each in (joint.module, module):
            torch.manual_seed(0)
            with MemoryMeter(inputs) as meter, torch.no_grad():
                outputs.append(each(*inputs))
        assert meter.peak == plan.peak == timeline(module.graph, SEMANTICS).peak
        assert all(map(torch.equal, *outputs))
