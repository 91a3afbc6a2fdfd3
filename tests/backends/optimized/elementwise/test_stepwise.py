"""What uses an op whose definition cannot be compiled gives what it does otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import nn, ops, shapes
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.elementwise.stepwise import step_by_step
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.op import Op, Plan
from tinytorch.program import Program, Step
from tinytorch.replay import function as replaying, replayed


def _tried(a: float) -> float:
    """A right answer to the exercise of module 03."""
    try:
        return 1 / (1 + math.exp(-a))
    except OverflowError:
        return 0.0


def _untyped(a: float) -> float:
    """Its words are those of a definition, and numba has no `key` of max."""
    return 1 / (1 + math.exp(-max(a, a, key=abs))) if a > -80 else 0.0


@replayed
def summed(x: Any) -> Any:
    return (x * x.sigmoid() + 1.0).sum(-1)


def _results(size: int) -> list[Any]:
    """Results and gradients of functions of sigmoid: fused ones, a program, a layer."""
    x = tinytorch.tensor(np.linspace(-90, 90, 3 * size).reshape(3, size), dtype=float32)
    x.requires_grad_()
    found: list[Any] = []
    for function in (F.silu, F.logsigmoid, summed):
        for _ in range(3):
            x.grad = None
            out = function(x)
            out.sum().backward()
        found += [out, x.grad]
    tinytorch.manual_seed(0)
    layer = nn.LSTM(4, 5)
    for _ in range(3):
        out = layer(x.detach()[:, :4].reshape(3, 1, 4))[0]
    return [t.detach().numpy() for t in (*found, out)]


@pytest.mark.filterwarnings("ignore:.* runs as a slow loop in Python:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.* runs op by op:RuntimeWarning")
@pytest.mark.parametrize("definition", [_tried, _untyped])
@pytest.mark.parametrize("size", [4, 2**12, pytest.param(2**18, marks=pytest.mark.slow)])
def test_functions_of_an_op_that_cannot_be_compiled(
    definition: Callable[[float], float], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "HOT", 1)
    with tinytorch.using_backend(OptimizedBackend()):
        expected = _results(size)
    monkeypatch.setattr(ops.sigmoid, "scalar", definition)
    with tinytorch.using_backend(OptimizedBackend()):
        found = _results(size)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_steps_of_numbers_alone_and_several_results() -> None:
    steps = (
        Step(ops.mul, ("x1", "x1")),
        Step(ops.detach, ("x0",)),
        Step(ops.add, ("t1", "t0")),
        Step(ops.neg, ("x0",)),
    )
    program = Program(2, steps, "t2", False, ("t3", "t1"))
    meta = tensor_meta((2, 3), float32)
    op = Op("several", "x0 x1", "elementwise", shapes.broadcast, lambda *_: 0, lambda *_: 0)  # type: ignore[arg-type]
    backend = OptimizedBackend()
    run = step_by_step(program, Plan(op, (meta, float), {}, meta, None), backend.add_kernel)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, opposite, same = run(x, 3.0)
    np.testing.assert_array_equal(total, x + 9)
    np.testing.assert_array_equal(opposite, -x)
    np.testing.assert_array_equal(same, x)
    assert not np.may_share_memory(same, x)  # it may be written in place


def test_a_result_has_the_shape_of_all_operands() -> None:
    """Also where it depends on one of them alone."""
    program = Program(2, (Step(ops.neg, ("x1",)),), "t0", False)
    metas = tensor_meta((2, 3), float32), tensor_meta((3,), float32)
    op = Op("one", "x0 x1", "elementwise", shapes.broadcast, lambda *_: 0, lambda *_: 0)  # type: ignore[arg-type]
    run = step_by_step(program, Plan(op, metas, {}, metas[0], None), OptimizedBackend().add_kernel)
    found = run(np.zeros((2, 3), np.float32), np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(found, [[0, -1, -2]] * 2)
    assert found.flags.writeable and found.flags.c_contiguous
