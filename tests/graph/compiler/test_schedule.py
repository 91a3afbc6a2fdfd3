"""What is computed where: views, updates in place, copies of what is returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.steps import training_step
from tinytorch import nn, optim
from tinytorch.graph import Graph, GraphError, PassManager, trace
from tinytorch.graph.compiler.schedule import Role, Schedule, schedule_graph, schedule_traced
from tinytorch.graph.layout import Memory

pytestmark = pytest.mark.usefixtures("numpy_backend")


def schedule(function: Callable[..., Any], *examples: Any, **options: Any) -> Schedule:
    return schedule_traced(trace(function, *examples), **options)


def names(s: Schedule) -> list[str]:
    return [step.op.name for step in s.steps]


def memories(s: Schedule) -> list[Memory]:
    return [step.output.buffer.memory for step in s.steps]


def test_a_schedule_is_printed():
    s = schedule(lambda x, w: ((x @ w.T).relu() + 1.0).sum(), tinytorch.ones(2, 3),
                 tinytorch.ones(4, 3))  # fmt: skip
    assert str(s).splitlines() == [
        "4 steps, arena 64 bytes for 96, 1 own, 0 constants",
        "arena+0: float32[2, 4] = matmul(input0+0: float32[2, 3], input1+0: float32[3, 4] strides "
        "[4, 12])",
        "arena+0: float32[2, 4] = relu(arena+0: float32[2, 4])  in place of input 0",
        "arena+0: float32[2, 4] = add(arena+0: float32[2, 4], 1.0)  in place of input 0",
        "own0+0: float32[] = sum(arena+0: float32[2, 4])",
    ]


def test_a_step_writes_into_the_parameter_itself():
    w = tinytorch.ones(3, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)

    def step(x: tinytorch.Tensor) -> tinytorch.Tensor:
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    s = schedule(step, tinytorch.ones(3))
    roles = {i.node.target: i.role for i in s.inputs}
    assert roles == {"x": Role.ARGUMENT, "w": Role.STATE, "scalar": Role.SCALAR}
    (updated,) = [i for i, each in enumerate(s.inputs) if each.node.target == "w"]
    assert s.written == [updated]
    last = s.steps[-1]
    assert (last.op.name, last.output.buffer.memory, last.output.buffer.index) == (
        "sub", Memory.INPUT, updated
    )  # fmt: skip
    assert last.overwrites == 0


def test_an_update_waits_for_the_last_reader():
    a = tinytorch.ones(3)

    def step(x: tinytorch.Tensor) -> tinytorch.Tensor:
        old = a.clone() * 1.5
        with tinytorch.no_grad():
            a.copy_(x * 2.0)
        return old + x

    s = schedule(step, tinytorch.ones(3))
    # `a` is read before it is written: by then the multiplication may write into it
    writer = next(i for i, p in enumerate(memories(s)) if p is Memory.INPUT)
    readers = [
        i for i, step in enumerate(s.steps)
        if any(getattr(p, "buffer", None) == s.steps[writer].output.buffer for p in step.inputs)
    ]  # fmt: skip
    assert readers and max(readers) <= writer


def test_state_that_is_exchanged_is_copied_first():
    a, b = tinytorch.zeros(2), tinytorch.ones(2)

    def exchange() -> None:
        old = a.clone()
        with tinytorch.no_grad():
            a.copy_(b)
            b.copy_(old)

    compiled = tinytorch.compile(exchange, mode="python")
    compiled()
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    compiled()
    assert (a.tolist(), b.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_what_is_returned_is_in_no_shared_memory():
    constant = np.float32(2.0)
    s = schedule(lambda x: (x.T, x * constant, tinytorch.ones(3)), tinytorch.ones(2, 3))
    kinds = [s.views[node].buffer.memory for node in s.returns]
    assert kinds == [Memory.INPUT, Memory.OWN, Memory.OWN]


def test_a_gradient_has_memory_of_its_own():
    w = tinytorch.ones(3, requires_grad=True)

    def step(x: tinytorch.Tensor) -> tinytorch.Tensor:
        y = (w + x).sum()
        y.backward()  # the gradient is one number, expanded
        return y

    s = schedule(step, tinytorch.ones(3))
    gradient = s.views[s.returns[-1]]
    assert gradient.buffer.memory is Memory.OWN and gradient.is_contiguous


def test_casts_and_copies_are_steps():
    s = schedule(lambda x, n: (x * n).T.reshape(6) + 1.0, tinytorch.ones(2, 3),
                 tinytorch.ones(2, 3, dtype="int64"))  # fmt: skip
    assert names(s) == ["cast", "mul", "copy", "add"]


def test_fused_ops_are_kept_or_run_in_parts():
    traced = trace(lambda x: x.softmax(0), tinytorch.ones(4), decompose=False)
    assert names(schedule_traced(traced, is_kept=lambda node: True)) == ["softmax"]
    assert names(schedule_traced(traced)) == ["amax", "sub", "exp", "sum", "div"]
    fused, _ = PassManager(["fusion"], trials=0).run(trace(lambda x: x.exp() + x, x4()).graph)
    assert names(schedule_graph(fused)) == ["exp", "add"]
    (step,) = schedule_graph(fused, is_kept=lambda node: True).steps
    assert step.op.name.startswith("fused_exp_add")


def x4() -> tinytorch.Tensor:
    return tinytorch.ones(4)


def test_what_is_made_of_nothing_is_a_constant():
    s = schedule(lambda x: x + tinytorch.arange(4) * tinytorch.full((4,), 2.0), x4())
    assert [c.tolist() for c in s.constants] == [[0, 1, 2, 3], [2.0, 2.0, 2.0, 2.0]]
    large = schedule(lambda x: x + tinytorch.full((300, 300), 2.0), tinytorch.ones(300))
    assert large.constants == [] and names(large) == ["full", "add"]


def test_kernels_that_bring_their_result_leave_the_arena():
    s = schedule(lambda x: (x * 2.0 + 1.0).exp(), x4(), writes_out=lambda node: False)
    assert memories(s) == [Memory.OWN] * 3 and s.arena_bytes == 0


def test_the_arena_is_smaller_than_all_values():
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1176, 10)
    )
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    step = training_step(model, optimizer)

    s = schedule(step, tinytorch.ones(4, 1, 28, 28), tinytorch.zeros(4, dtype="int64"))
    assert s.peak <= s.arena_bytes <= 0.6 * s.plan.unplanned


def test_places_that_live_together_do_not_overlap():
    """Every value that a step reads is still the one that its step wrote."""
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    s = schedule(lambda x: model(x).log_softmax(1).sum(), tinytorch.ones(4, 6))
    last_writer: dict[int, Any] = {}
    for step in s.steps:
        for operand in step.node.all_input_nodes:
            view = s.views[operand]
            if view.buffer.memory is Memory.ARENA:
                owner = operand
                while owner not in {w.node for w in s.steps}:
                    (owner,) = owner.all_input_nodes
                for byte in bytes_of(s.views[owner]):
                    assert last_writer[byte] is owner, (step.node, operand)
        if step.output.buffer.memory is Memory.ARENA:
            last_writer.update(dict.fromkeys(bytes_of(step.output), step.node))


def bytes_of(view: Any) -> range:
    return range(view.offset, view.offset + view.size * view.dtype.itemsize)


def test_what_no_code_can_return_is_an_error():
    graph = trace(lambda x: x.exp(), x4()).graph
    graph.output_node().args = ((3.0,),)
    with pytest.raises(GraphError, match=r"the result 3.0 is no value of the graph"):
        schedule_graph(graph)


def test_shapes_must_be_known():
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(tinytorch.ops.exp, (x,)))
    with pytest.raises(
        GraphError, match=r"placeholder\[x\]`: its shape is not known; run ShapeProp"
    ):
        schedule_graph(graph)
