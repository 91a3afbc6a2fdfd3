"""Random programs come out the same through eager, the interpreter and every pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.graph.programs import Program
from tinytorch.graph import (
    BackendChecker,
    PassManager,
    get_pass_by_name,
    list_passes,
    parse_graph,
    trace,
)
from tinytorch.graph.passes import AlgebraicSimplification
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")
PASSES = ["algebra", "layout", "fold", "cse", "dce", "fused-attention", "fusion"]


def flat(result: object) -> list[np.ndarray | None]:
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in flat(part)]
    return [result if result is None else result.detach().numpy()]


def same(a: object, b: object) -> bool:
    pairs = zip(flat(a), flat(b), strict=True)
    return all(
        x is y if x is None else x.dtype == y.dtype and np.array_equal(x, y, equal_nan=True)
        for x, y in pairs
    )


def inputs_of(program: Program) -> list[Tensor]:
    return [Tensor(x, requires_grad=True) for x in program.inputs]


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_interpreter_equals_eager(seed: int):
    program = Program(seed)
    function = program.with_backward()
    traced = trace(function, *inputs_of(program))
    assert same(traced(*inputs_of(program)), function(*inputs_of(program)))


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_interpreter_equals_eager_on_the_naive_backend_too(seed: int):
    program = Program(seed, length=8)
    function = program.with_backward()
    traced = trace(function, *inputs_of(program))
    with using_backend("naive"):
        assert same(traced(*inputs_of(program)), function(*inputs_of(program)))
        BackendChecker(traced.graph, "naive", "numpy").run(*inputs_of(program))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_every_pass_keeps_results_and_gradients(seed: int):
    program = Program(seed)
    function = program.with_backward()
    for f in (program, function):
        traced = trace(f, *inputs_of(program))
        graph, report = PassManager(PASSES, rounds=2, trials=2).run(traced.graph)
        assert not report.failures, report
        assert same(traced.with_graph(graph)(*inputs_of(program)), f(*inputs_of(program)))


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_fast_math_stays_within_rounding(seed: int):
    program = Program(seed)
    traced = trace(program, *inputs_of(program))
    fast = AlgebraicSimplification(fast_math=True, rules=None)
    PassManager([fast, "dce"], trials=0).run(traced.graph)[0].lint()


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_text_is_read_back(seed: int):
    program = Program(seed)
    graph = trace(program.with_backward(), *inputs_of(program)).graph
    again = parse_graph(str(graph), graph.constants)
    again.lint()
    assert str(again) == str(graph)


def test_all_passes_are_exercised():
    package = "tinytorch.graph.passes"  # the compiler has some of its own
    ours = {n for n in list_passes() if get_pass_by_name(n).__module__.startswith(package)}
    assert ours == {*PASSES, "recompute"}
