from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.graph.programs import Program
from tests.graph.steps import training_step
from tinytorch import nn, ops, optim
from tinytorch.graph import Graph, GraphError, PassManager, ShapeProp, TracedFunction, trace
from tinytorch.graph.interpret import Profiler
from tinytorch.graph.memory import (
    BufferPlan,
    lifetimes,
    plan_buffers,
    plot_memory,
    timeline,
)
from tinytorch.graph.parse import parse_graph
from tinytorch.graph.semantics import TINYTORCH, Semantics
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")

CHAIN = """
    %x : float32[256] = placeholder[x]
    %a : float32[256] = exp(%x)
    %b : float32[256] = neg(%a)
    %v : float32[16, 16] = reshape(%b, shape=(16, 16))
    %c : float32[16, 1] = sum(%v, dims=(1,), keepdim=True)
    %d : float32[16, 16] = mul(%v, %c)
    return (%d,)
"""


def deep_step(blocks: int, width: int = 64) -> TracedFunction:
    """The training step of a deep multi-layer perceptron with its activations."""
    layers = [m for _ in range(blocks) for m in (nn.Linear(width, width), nn.Tanh(), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    step = training_step(model, optimizer)

    x = tinytorch.rand(256, width)
    return trace(step, x, tinytorch.zeros(256, dtype="int64"), keep_grads=False)


def test_lifetimes_follow_views():
    graph = parse_graph(CHAIN)
    found = {t.node.name: t for t in lifetimes(graph, TINYTORCH.storages(graph)).values()}
    assert set(found) == {"a", "b", "c", "d"}
    assert (found["a"].first, found["a"].last) == (1, 2)
    assert (found["b"].first, found["b"].last) == (2, 5)  # through its view %v
    assert found["d"].is_result and not found["b"].is_result
    assert found["c"].nbytes == 64


def test_timeline_and_what_is_alive_at_the_peak():
    line = timeline(parse_graph(CHAIN))
    assert line.live == [0, 1024, 2048, 1024, 1024 + 64, 2048 + 64, 1024]
    assert line.peak == 2112 and line.peak_node.name == "d"
    assert [t.node.name for t in line.alive_at_peak] == ["b", "d", "c"]
    assert line.total == 3 * 1024 + 64
    assert str(line).startswith("peak 2.06 KiB of 3.06 KiB at d")


def test_the_timeline_is_what_a_run_holds():
    def f(x):
        return ((x.exp() + 1.0).log() * x.sum()).tanh() + x  # x lives to the end

    x = tinytorch.ones(64, 64)
    graph = trace(f, x).graph
    profiler = Profiler(graph)
    profiler.run(x)
    measured = [p.live - x.nbytes for p in profiler.profiles]
    predicted = dict(zip(timeline(graph).nodes, timeline(graph).live, strict=True))
    assert measured == [predicted[p.node] for p in profiler.profiles]


def check_plan(graph: Any, plan: BufferPlan, semantics: Semantics = TINYTORCH) -> None:
    """No two values overlap in time and place, but where one takes over from the other."""
    found = lifetimes(graph, semantics.storages(graph))
    values = [(s, t) for s, t in found.items() if s in plan.offsets]
    for i, (s, a) in enumerate(values):
        start, end = plan.offsets[s], plan.offsets[s] + a.nbytes
        assert end <= plan.size
        for r, b in values[i + 1 :]:
            in_time = a.first <= b.last and b.first <= a.last
            in_place = start < plan.offsets[r] + b.nbytes and plan.offsets[r] < end
            if in_time and in_place and a.nbytes and b.nbytes:
                assert plan.in_place.get(r) == s and a.last == b.first


def test_plan():
    graph = parse_graph(CHAIN)
    plan = plan_buffers(graph)
    check_plan(graph, plan)
    names = [n.name for n in TINYTORCH.storages(graph).makers]
    assert {names[new]: names[old] for new, old in plan.in_place.items()} == {"b": "a"}
    assert plan.size == 1024 + 64 and plan.unplanned == 2 * 1024 + 64


@pytest.mark.parametrize(
    "line",
    [
        "%b : float32[2, 2] = mul(%a, %t)",  # reads %a in two orders
        "%b : float32[2, 2] = sub(%t, %a)",
        "%b : bool[2, 2] = lt(%a, 0.0)",  # elements of another size
        "%b : bool[2, 2] = lt(%d, %y)",  # as many bytes, but fewer elements
    ],
)
def test_not_everything_can_be_written_in_place(line: str):
    graph = parse_graph(f"""
        %x : float32[2, 2] = placeholder[x]
        %y : float32[2, 2] = placeholder[y]
        %z : float32[1] = placeholder[z]
        %a : float32[2, 2] = exp(%x)
        %d : float32[1] = exp(%z)
        %t : float32[2, 2] = permute(%a, dims=(1, 0))
        {line}
        %end : float32[2, 2] = exp(%b)
        return (%end,)
    """)
    graph.lint()
    makers = TINYTORCH.storages(graph).makers
    assert "b" not in {makers[s].name for s in plan_buffers(graph).in_place}


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_plans_of_random_programs_are_sound(seed: int):
    program = Program(seed, length=20)
    inputs = [Tensor(x, requires_grad=True) for x in program.inputs]
    graph = trace(program.with_backward(), *inputs).graph
    plan = plan_buffers(graph)
    check_plan(graph, plan)
    # each value is rounded up to a cache line
    assert plan.size <= plan.unplanned + 64 * len(plan.offsets)


def test_a_training_step_needs_a_fraction_of_its_values():
    graph = deep_step(4).graph
    plan = plan_buffers(graph)
    check_plan(graph, plan)
    assert plan.size <= 0.6 * plan.unplanned


def test_a_convolutional_step_needs_a_fraction_of_its_values():
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    optimizer = optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    x, y = tinytorch.zeros(8, 1, 28, 28), tinytorch.zeros(8, dtype="int64")
    graph = trace(step, x, y, keep_grads=False).graph
    plan = plan_buffers(graph)
    check_plan(graph, plan)
    assert plan.size <= 0.6 * plan.unplanned


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    line = timeline(deep_step(2).graph)
    plot_memory({"all kept": line}, tmp_path / "memory.svg", budget=2**20)
    text = (tmp_path / "memory.svg").read_text()
    assert "<svg" in text
    with pytest.raises(FileNotFoundError):
        plot_memory({"all kept": line}, tmp_path / "nowhere" / "memory.svg")
    assert np.all(np.array(line.live) >= 0)


def test_a_graph_without_shapes_is_told_where_to_get_them():
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(ops.exp, (x,)))
    for action in (timeline, plan_buffers, PassManager(["dce"]).run):
        with pytest.raises(GraphError, match=r"node x has no shape and dtype.*ShapeProp\(graph\)"):
            action(graph)
    ShapeProp(graph).run(tinytorch.ones(100))
    assert timeline(graph).peak == 400
