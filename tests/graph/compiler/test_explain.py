"""`explain()` says what was done, what was not and why, and how long everything takes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.steps import training_step
from tinytorch import nn, optim
from tinytorch.bench import Machine, OpCounter, measure_machine
from tinytorch.graph import GraphError
from tinytorch.graph.compiler.timing import example_values
from tinytorch.nn import functional as F

pytestmark = pytest.mark.usefixtures("numpy_backend")


def make_step(**options: Any) -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    step = training_step(model, optimizer)

    return tinytorch.compile(step, **options), model


def test_a_training_step():
    step, model = make_step()
    for n in (5, 5, 6):
        step(tinytorch.ones(n, 8), tinytorch.zeros(n, dtype="int64"))
    before = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
    explanation = step.explain()
    for name, value in model.state_dict().items():  # explaining runs on copies
        assert np.array_equal(value.detach().numpy(), before[name])
    assert explanation.reasons == [
        "first call", "argument 0 is float32[6, 8], and was float32[5, 8]"
    ]  # fmt: skip
    (code,) = explanation.codes
    assert (code.name, code.mode) == ("call", "python")
    assert code.source in explanation.source and "def call(" in code.source
    assert [p.name for p in code.passes[:5]] == ["algebra", "layout", "fold", "cse", "dce"]
    assert code.passes[0].nodes_before > code.passes[-1].nodes_after
    assert code.memory["peak"] <= code.memory["arena"] < code.memory["intermediates"]
    assert code.predicted is not None and code.measured is not None
    assert all(node.measured is not None and node.measured > 0 for node in code.nodes)
    matmul = next(node for node in code.nodes if node.op == "matmul")
    assert matmul.flops == 2 * 6 * 8 * 16
    assert explanation.machine.seconds(matmul.flops, matmul.bytes) == matmul.predicted
    assert "calls the kernels of the optimized backend" in explanation.fallbacks[0][1]


def test_the_text_and_the_dict_say_the_same():
    step, _ = make_step(mode="python")
    step(tinytorch.ones(5, 8), tinytorch.zeros(5, dtype="int64"))
    with OpCounter():
        step(tinytorch.ones(5, 8), tinytorch.zeros(5, dtype="int64"))
    explanation = step.explain()
    text = str(explanation)
    assert repr(explanation) == text
    found = json.loads(json.dumps(explanation.to_dict()))
    assert found["uncompiled_calls"] == 1 and "1 calls ran op by op" in text
    (code,) = found["codes"]
    assert code["source"].rstrip() in text and "roofline" in text
    for node in code["nodes"][:3]:
        assert node["node"] in text
    assert {"name", "changed", "error", "seconds", "nodes_before", "nodes_after"} == set(
        code["passes"][0]
    )


def test_forward_and_backward_are_told_apart():
    model = tinytorch.compile(nn.Linear(3, 2))
    model(tinytorch.ones(4, 3)).sum().backward()
    assert [code.name for code in model.explain().codes] == ["forward", "backward"]
    with tinytorch.no_grad():
        model(tinytorch.ones(4, 3))
    assert [c.name for c in model.explain().codes] == ["call"]


def test_an_interpreted_function():
    function = tinytorch.compile(lambda x: x * 2.0, mode="interpret")
    function(tinytorch.ones(2))
    (code,) = function.explain().codes
    assert (code.mode, code.source, code.nodes, code.measured) == ("interpret", "", [], None)
    assert "call: interpret" in str(function.explain())


def test_nothing_to_explain():
    with pytest.raises(GraphError, match="nothing is compiled yet: call the function first"):
        tinytorch.compile(lambda x: x).explain()


def test_the_roofline():
    machine = Machine(flops=100.0, bandwidth=10.0)
    assert machine.seconds(1000, 10) == 10.0
    assert machine.seconds(100, 1000) == 100.0
    measured = measure_machine(tinytorch.get_backend())
    assert measured.flops > 1e6 and measured.bandwidth > 1e6
    assert measure_machine(tinytorch.get_backend()) is measured


def test_example_values_are_copies():
    w = tinytorch.ones(2)
    function = tinytorch.compile(lambda x: F.dropout(x * w, 0.5), mode="python")
    x = tinytorch.ones(2)
    function(x)
    code = function.traces[0].code
    values = example_values(code.schedule)
    assert [type(v) for v in values].count(int) == 1  # the seed
    for value in values:
        assert not isinstance(value, np.ndarray) or not np.shares_memory(value, w.numpy())
