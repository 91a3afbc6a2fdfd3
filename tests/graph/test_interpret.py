from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dispatch import Mode
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.graph import (
    BackendChecker,
    GraphError,
    Interpreter,
    NanFinder,
    Profiler,
    ShapeProp,
    parse_graph,
    trace,
)
from tinytorch.state import current_phase

pytestmark = pytest.mark.usefixtures("numpy_backend")

GRAPH = """
    %x : float32[2, 3] = placeholder[x]
    %w : float32[3, 2] = placeholder[w]
    %matmul : float32[2, 2] = matmul(%x, %w)
    %log : float32[2, 2] = log(%matmul)
    %sum : float32[2] = sum(%log, dims=(1,), keepdim=False)  # backward
    return (%sum, {'matmul': %matmul})
"""


def tensors() -> tuple[tinytorch.Tensor, tinytorch.Tensor]:
    return tinytorch.ones(2, 3), tinytorch.ones(3, 2) * 2.0


def test_run():
    result, rest = Interpreter(parse_graph(GRAPH)).run(*tensors())
    assert np.allclose(result.numpy(), 2 * np.log(6))
    assert rest["matmul"].tolist() == [[6.0, 6.0], [6.0, 6.0]]


def test_the_number_of_inputs_is_checked():
    with pytest.raises(GraphError, match=r"the graph takes 2 inputs \(x, w\), not 1"):
        Interpreter(parse_graph(GRAPH)).run(tinytorch.ones(2, 3))


def test_values_are_let_go_after_their_last_use():
    class Alive(Interpreter):
        def run_node(self, n):
            alive.append(sorted(node.name for node in self.env))
            return super().run_node(n)

    alive: list[list[str]] = []
    Alive(parse_graph(GRAPH)).run(*tensors())
    assert alive == [[], ["x"], ["w", "x"], ["matmul"], ["log", "matmul"], ["matmul", "sum"]]


def test_every_opcode_has_its_method():
    class Calls(Interpreter):
        def call_function(self, target, args, kwargs):
            calls.append(target.name)
            return super().call_function(target, args, kwargs)

    calls: list[str] = []
    Calls(parse_graph(GRAPH)).run(*tensors())
    assert calls == ["matmul", "log", "sum"]


def test_phases_reach_the_modes():
    class Phases(Mode):
        def run(self, op, inputs, params, plan):
            phases.append((op.name, current_phase()))
            return self.below(op, inputs, params, plan)

    phases: list[tuple[str, str]] = []
    x, w = tensors()
    with Phases():
        Interpreter(parse_graph(GRAPH)).run(x, w)
    assert phases == [("matmul", "forward"), ("log", "forward"), ("sum", "backward")]


def test_a_run_can_be_differentiated():
    w = tinytorch.ones(3, 2, requires_grad=True)
    Interpreter(parse_graph(GRAPH)).run(tinytorch.ones(2, 3), w)[0].sum().backward()
    assert np.allclose(w.grad.numpy(), 2 / 3)


def test_shapes_are_propagated():
    graph = parse_graph(GRAPH)
    ShapeProp(graph).run(tensor_meta((5, 3), float32), tensor_meta((3, 4), float32))
    assert {n.name: n.meta["tensor_meta"].shape for n in graph.nodes if n.op != "output"} == {
        "x": (5, 3), "w": (3, 4), "matmul": (5, 4), "log": (5, 4), "sum": (5,)
    }  # fmt: skip
    graph.lint()
    ShapeProp(graph).propagate()
    ShapeProp(graph).run(tinytorch.ones(2, 3), tinytorch.ones(3, 2))
    assert graph.output_node().prev.meta["tensor_meta"].shape == (2,)
    with pytest.raises(tinytorch.ShapeError, match="matmul"):
        ShapeProp(graph).run(tensor_meta((5, 3), float32), tensor_meta((2, 4), float32))


def test_profiler():
    profiler = Profiler(parse_graph(GRAPH))
    profiler.run(*tensors())
    matmul, log, _ = profiler.profiles
    assert (matmul.node.name, matmul.flops, matmul.bytes) == ("matmul", 24, 24 + 24 + 16)
    assert matmul.live == 64 and log.live == 32
    assert all(p.seconds > 0 for p in profiler.profiles)
    lines = profiler.table(limit=2).splitlines()
    assert len(lines) == 3 and "MFLOP" in lines[0]


def test_profiler_counts_memory_once():
    profiler = Profiler(trace(lambda x: (x.T, x + 1.0), tinytorch.ones(2, 2)).graph)
    profiler.run(tinytorch.ones(2, 2))
    assert [p.live for p in profiler.profiles] == [16, 32]


def test_backends_are_compared_node_by_node():
    class Wrong(NumpyBackend):
        def log(self, a):
            return np.log(a) * 1.1

    graph = trace(lambda x: (x.exp() + 1.0).log().sum(), tinytorch.ones(3)).graph
    BackendChecker(graph, "numpy", "numpy").run(tinytorch.ones(3))
    checker = BackendChecker(graph, Wrong(), "numpy")
    with pytest.raises(tinytorch.BackendError) as error:
        checker.run(tinytorch.ones(3))
    message = str(error.value)
    assert "differs from 'numpy' by up to 0.131 at `%log : float32[3] = log(%add)`" in message
    assert "test_interpret.py:" in message


def test_integers_are_compared_exactly_and_nan_is_a_difference():
    class OffByOne(NumpyBackend):
        def argmax(self, a, dim, keepdim=False):
            return np.argmax(a, axis=dim, keepdims=keepdim) + 1

    class Nothing(NumpyBackend):
        def exp(self, a):
            return np.full_like(a, np.nan)

    x = tinytorch.arange(100_000.0)
    for function, backend, how in (
        (lambda x: x.argmax(0), OffByOne(), "by up to 1 at `%argmax : int64[] "),
        (lambda x: (x * 0.0).exp(), Nothing(), "in where it is NaN or infinite at `%exp :"),
    ):
        with pytest.raises(tinytorch.BackendError) as error:
            BackendChecker(trace(function, x).graph, backend).run(x)
        assert f"differs from 'numpy' {how}" in str(error.value)


def test_nan_is_found_where_it_begins():
    graph = trace(lambda x: ((x - 1.0).log() + 1.0).exp(), tinytorch.ones(2)).graph
    NanFinder(graph).run(tinytorch.tensor([2.0, 3.0]))
    with pytest.raises(FloatingPointError) as error:
        NanFinder(graph).run(tinytorch.tensor([2.0, 0.5]))
    message = str(error.value)
    assert message.startswith(
        "`%log : float32[2] = log(%sub)` is not finite, with sub in [-0.5, 1]"
    )
    assert "test_interpret.py:" in message
