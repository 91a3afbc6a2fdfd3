"""Which steps of a program are one loop, and which must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.replay.common import traced
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.program import Program
from tinytorch.replay import NotReplayable, fusion, make_program
from tinytorch.tensor import Tensor


@pytest.fixture(autouse=True)
def _on_optimized() -> Any:
    with tinytorch.using_backend(OptimizedBackend()):
        yield


def steps_of(function: Any, *given: Tensor) -> list[str]:
    """The steps of a function after fusion: names of ops, and of a run those of its ops."""
    trace, results = traced(function, *given)
    steps = fusion.fuse_steps(trace.needed(results), results, OptimizedBackend().fusible)
    return [text(step) for step in steps]


def text(step: Any) -> str:
    scalar = step.plan.op.scalar
    if not isinstance(scalar, Program):
        return str(step.plan.op.name)
    ops = " ".join(s.op.name for s in scalar.steps)
    return f"sum({ops})" if step.params else f"({ops})"


X, Y = tinytorch.ones(3, 4), tinytorch.ones(3, 4)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: x * y + 1.5, ["(mul add)"]),
        (lambda x, y: (x - y).abs().sum(1), ["sum(sub abs)"]),
        (lambda x, y: F.mse_loss.replayed(x, y), ["sum(sub mul)", "div"]),
        # a mean is computed once, and broadcasts into the run
        (lambda x, y: (x - x.mean(1, keepdim=True)) * y, ["sum", "div", "(sub mul)"]),
        # what is read twice outside is a result of its own
        (lambda x, y: (x * y).exp() @ (x * y).exp().mT,
         ["(mul exp)", "(mul exp)", "permute", "matmul"]),
        (lambda x, y: x[:1].expand(3, 4) * y + y, ["slice", "(mul add)"]),
        # of a few runs that read it, each computes it, but not what is computed of it
        (lambda x, y: (lambda p: p.exp().sum(1) + p.cos().sum(1))(x * y),
         ["sum(mul exp)", "sum(mul cos)", "add"]),
        (lambda x, y: (lambda p: p.exp().sum(1) + p.cos().sum(1))((x * y).tanh()),
         ["(mul tanh)", "sum(exp)", "sum(cos)", "add"]),
        (lambda x, y: (lambda p: p.sum() + p.exp().sum() + p.cos().sum() + p.sin().sum())(x * y),
         ["mul", "sum", "sum(exp)", "sum(cos)", "sum(sin)", "(add add add)"]),
        # nothing but numbers of another shape is in the loop
        (lambda x, y: x[0, 0].expand(3, 4) * 2.5 + 1.0,
         ["slice", "reshape", "expand", "mul", "add"]),
        (lambda x, y: x.long() * y.long() + 1, ["cast", "cast", "mul", "add"]),
        (lambda x, y: x.double() * 2.5 + 1.5, ["cast", "(mul add)"]),
        (lambda x, y: (x > y).to(x.dtype).sum(), ["sum(lt cast)"]),
        (lambda x, y: (x > y).sum(), ["lt", "cast", "sum"]),
    ],
)  # fmt: skip
def test_what_becomes_one_loop(function: Any, expected: list[str]) -> None:
    assert steps_of(function, X, Y) == expected


def test_of_many_elements_no_run_computes_what_another_does() -> None:
    x = tinytorch.ones(2, fusion.FEW)
    found = steps_of(lambda x: (lambda p: p.exp().sum(1) + p.cos().sum(1))(x * x), x)
    assert found == ["mul", "sum(exp)", "sum(cos)", "add"]


@pytest.mark.slow_beyond(6)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "empty"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: F.mse_loss.replayed(x, y),
        lambda x, y: F.binary_cross_entropy_with_logits.replayed(x, y),
        lambda x, y: tinytorch.var.replayed(x * y, 0),
        lambda x, y: tinytorch.norm.replayed(x - y, 2, 1),
        lambda x, y: (x * y[:1] + 0.25).tanh().sum((0, 1)),
    ],
)
def test_programs_of_runs_give_the_bits_of_the_ops(
    function: Any, dtype: str, layout: str, rng: np.random.Generator
) -> None:
    arrays = [rng.standard_normal((0, 5) if layout == "empty" else (40, 50)) for _ in range(2)]
    for i, value in enumerate([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30]):
        if arrays[0].size:
            arrays[0].flat[i * 7] = value
    x, y = (tinytorch.tensor(a.astype(dtype), requires_grad=True) for a in arrays)
    x, y = (x.mT, y.mT) if layout == "transposed" else (x, y)
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    program = make_program(function, tinytorch.state.current_backend(), (x, y), {})
    out = function(x, y)
    np.testing.assert_array_equal(program.run(x, y), out._data)
    g = tinytorch.ones_like(out)
    wanted = grad(out, [x, y], g)
    saved = [t if s else None for t, s in zip((x, y), program.saved, strict=True)]
    output = out._data if program.saves_result else None
    record = type("Record", (), {"inputs": saved, "metas": program.metas, "output": output})()
    with tinytorch.no_grad():
        found = program.op.shared_vjp(g, record, None, 0)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a._data, b._data)


def test_a_backend_with_a_sum_of_its_own_is_asked_for_it() -> None:
    class Counting(OptimizedBackend):
        calls = 0

        def sum(self, a: Any, *, dims: Any, keepdim: bool) -> Any:
            type(self).calls += 1
            return super().sum(a, dims=dims, keepdim=keepdim)

    backend = Counting()
    with tinytorch.using_backend(backend):
        program = make_program(lambda x: (x * x + 1.0).sum(0), backend, (X,), {})
        program.run(X)
    assert Counting.calls == 1


def test_on_large_arrays_what_is_heavy_is_not_run_twice() -> None:
    backend = OptimizedBackend()
    with tinytorch.using_backend(backend):
        x = X.detach().requires_grad_()
        for heavy in (
            lambda x: (x @ x.mT).sin(),
            lambda x: x.cumsum(0).sin(),
            lambda x: x.sort(0).values,
        ):
            with pytest.raises(NotReplayable, match="costs too much"):
                make_program(heavy, backend, (x,), {}, True)
            make_program(heavy, backend, (X,), {}, True)  # which has no gradient
        for light in (
            lambda x: (x * x).sum(0).t(),
            lambda x: x @ x.mT,  # whose gradient reads x alone
            lambda x: x.cumsum(0),
            lambda x: x[:2] * 2.0,
        ):
            make_program(light, backend, (x,), {}, True)
        i = tinytorch.tensor([0, 1])  # of whole numbers, but few
        make_program(lambda x, i: x[i + 1, i * 2], backend, (x, i), {}, True)


def test_copies_and_casts_are_no_loop_of_a_backend_that_has_none() -> None:
    x = tinytorch.linspace(0, 1, 5)

    def function(x: Tensor) -> Tensor:
        return x.detach().clone().detach().clone().double().float()

    program = make_program(function, NumpyBackend(), (x,), {})
    np.testing.assert_array_equal(program.run(x), x._data)
