"""One analysis for both worlds: a program takes the same memory as a graph of ours and of torch.fx.

Both are held against a run that counts references node by node, and knows nothing of lifetimes.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.fx.small import SEMANTICS, ConvNet, joint_of, mlp
from tests.graph.test_memory import check_plan
from tinytorch.autograd import grad
from tinytorch.fx.convert.to_torch import to_torch
from tinytorch.graph import trace
from tinytorch.graph.memory import Timeline, accumulate, lifetimes, plan_buffers, timeline
from tinytorch.graph.semantics import TINYTORCH, Semantics
from tinytorch.graph.storages import Storages
from tinytorch.tensor import Tensor

SIZE = 6


def program(seed: int, length: int = 14) -> Any:
    """Products, sums, and views of views, with gradients; some values are returned."""

    def function(*inputs: Tensor) -> Any:
        random = Random(seed)
        values = list(inputs)
        for _ in range(length):
            a, b = random.choice(values), random.choice(values[-4:])
            values.append(random.choice([
                lambda a, b: a + b, lambda a, b: a * b, lambda a, b: -b, lambda a, b: b.exp(),
                lambda a, b: a.matmul(b), lambda a, b: a.T, lambda a, b: b.T,
                lambda a, b: a.sum(0, keepdim=True).expand(SIZE, SIZE) * b,
                lambda a, b: b[:1].expand(SIZE, SIZE),
            ])(a, b))  # fmt: skip
        results = [values[-1], random.choice(values[2:])]
        loss = (values[-1] * 1e-9).sum()
        return [r.detach() for r in results], grad([loss], inputs, allow_unused=True)

    return function


def counted(graph: Any, storages: Storages, semantics: Semantics) -> list[int]:
    """Bytes alive at each node, by references: values hold memory, and readers hold values."""
    readers = Counter(a for n in graph.nodes for a in n.all_input_nodes)
    memory: dict[Any, tuple[Any, int]] = {}  # of each value that is held: whose, and its bytes
    live = []
    for node in graph.nodes:
        if node.op != "output":
            viewed = semantics.aliases(node)
            own = (node, sum(storages.sizes[s] for s in storages.made(node)))
            memory[node] = memory[viewed[0]] if viewed else own
        held = {maker: nbytes for maker, nbytes in memory.values() if maker.op == "call_function"}
        live.append(sum(held.values()))
        for read in node.all_input_nodes:
            readers[read] -= 1
        for value in (node, *node.all_input_nodes):
            if not readers[value]:
                memory.pop(value, None)
    return live


def spans(line: Timeline) -> list[tuple[int, bool]]:
    return sorted((t.nbytes, t.is_result) for t in line.lifetimes)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_program_takes_the_same_memory(seed: int) -> None:
    with tinytorch.using_backend("numpy"):
        inputs = [tinytorch.ones(SIZE, SIZE, requires_grad=True) for _ in range(2)]
        ours = trace(program(seed), *inputs).graph
    module = to_torch(ours)
    theirs = SEMANTICS.storages(module.graph, [torch.ones(SIZE, SIZE) for _ in range(2)])
    line = timeline(ours)
    torchs = accumulate(module.graph, lifetimes(module.graph, theirs).values())
    assert [n.op for n in ours.nodes] == [n.op for n in module.graph.nodes]  # node by node
    assert line.live == torchs.live and line.peak > 0
    assert spans(line) == spans(torchs)
    assert line.live == counted(ours, TINYTORCH.storages(ours), TINYTORCH)


@pytest.mark.parametrize(("model", "shape"), [(mlp(2), (16, 32)), (ConvNet(), (2, 3, 8, 8))])
def test_buffers_are_planned_for_torch_too(model: torch.nn.Module, shape: tuple[int, ...]) -> None:
    graph = joint_of(model, (torch.ones(shape),)).module.graph
    plan = plan_buffers(graph, SEMANTICS)
    check_plan(graph, plan, SEMANTICS)
    assert plan.in_place
    assert plan.size < 0.7 * plan.unplanned
