"""Random programs, with their backward, come out the same from generated code as from eager."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.graph.programs import Program
from tests.graph.test_programs import PASSES
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

SEEDS = st.integers(0, 2**32)


def flat(result: object) -> list[np.ndarray | None]:
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in flat(part)]
    return [result if result is None else np.array(result.detach().numpy())]


def assert_close(a: object, b: object, message: object = "") -> None:
    """To rounding: generated code may keep other memory layouts, and so add in another order."""
    for x, y in zip(flat(a), flat(b), strict=True):
        if x is None or y is None:
            assert x is y, message
            continue
        assert (x.shape, x.dtype) == (y.shape, y.dtype), message
        scale = np.abs(y[np.isfinite(y)]).max(initial=1.0) if y.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(x, y, 1e-4, 1e-5 * scale, err_msg=str(message))


def inputs_of(program: Program, requires_grad: bool = True) -> list[Tensor]:
    return [Tensor(x, requires_grad=requires_grad) for x in program.inputs]


def check(program: Program, backend: str, **options: Any) -> None:
    """The program with its backward inside; and compiled as a forward of which eager asks one."""
    with using_backend(backend):
        both = program.with_backward()
        expected = both(*inputs_of(program))
        compiled = tinytorch.compile(both, **options)
        for _ in range(2):  # the second call finds memory that the first has used
            assert_close(compiled(*inputs_of(program)), expected, program.steps)
        if options.get("mode") in ("python", "native"):
            assert compiled.traces[-1].code.mode == options["mode"]
        forward = tinytorch.compile(program, **options)
        assert_close(_with_eager_backward(forward, program), expected, program.steps)
        with tinytorch.no_grad():
            inputs = inputs_of(program)
            assert_close(forward(*inputs), program(*inputs), program.steps)


def _with_eager_backward(function: Any, program: Program) -> Any:
    inputs = inputs_of(program)
    results = function(*inputs)
    floats = [r.sum() for r in results if r.requires_grad]
    grads = tinytorch.autograd.grad(floats, inputs, allow_unused=True) if floats else ()
    return [r.detach() for r in results], list(grads)


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS)
def test_python_over_numpy(seed: int):
    check(Program(seed), "numpy", mode="python")


@settings(max_examples=8)
@given(SEEDS)
def test_python_over_the_naive_backend(seed: int):
    check(Program(seed, length=8), "naive", mode="python")


@settings(max_examples=10)
@given(SEEDS)
def test_interpreted(seed: int):
    check(Program(seed), "numpy", mode="interpret")


@pytest.mark.slow
@settings(max_examples=10)
@given(SEEDS)
def test_with_every_pass(seed: int):
    check(Program(seed), "numpy", mode="python", passes=[*PASSES, "recompute"])


def random_updates(seed: int, states: list[Tensor], x: Tensor) -> list[Tensor]:
    """State read and written in random order, through views too; some values are returned."""
    random = Random(seed)
    values = [x]
    for _ in range(12):
        kind = random.choice(["compute", "compute", "read", "write", "part"])
        state, value = random.choice(states), random.choice(values)
        if kind == "compute":
            other = random.choice([*values, *states])
            values.append(random.choice([
                lambda v, o: v + o, lambda v, o: v * 0.5 - o, lambda v, o: (v @ o).tanh(),
                lambda v, o: v.T, lambda v, o: o.T + v, lambda v, o: v.sum(0, keepdim=True) + o,
            ])(value, other))  # fmt: skip
        elif kind == "read":
            values.append(random.choice([state.clone(), state.T * 1.0, state.detach() + 0.0]))
        elif kind == "write":
            random.choice([
                lambda t, v: t.copy_(v), lambda t, v: t.mul_(0.5).add_(v), lambda t, v: t.sub_(v.T),
                lambda t, v: t.copy_(t.T), lambda t, v: t.copy_(states[0]),
            ])(state, value)  # fmt: skip
        else:
            state[0].add_(value[1])
    return [random.choice([*values, *(s.clone() for s in states)]) for _ in range(3)]


@pytest.mark.slow
@settings(max_examples=40)
@given(SEEDS)
def test_state_that_is_written_and_read(seed: int):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((3, 3)).astype(np.float32) for _ in range(3)]
    batches = [rng.standard_normal((3, 3)).astype(np.float32) for _ in range(4)]

    def run(compiled: bool) -> list[Any]:
        states = [Tensor(a) for a in arrays]

        def step(x: Tensor) -> list[Tensor]:
            return random_updates(seed, states, x)

        function = tinytorch.compile(step, mode="python") if compiled else step
        found: list[Any] = []
        for x in batches:
            results = function(Tensor(x))
            found.append([np.array(r.numpy()) for r in [*results, *states]])
            if random_writes and results[0].numpy().flags.writeable:
                results[0].fill_(3.0)  # results are the caller's
        return found

    random_writes = bool(seed % 2)
    with using_backend("numpy"):
        for got, expected in zip(run(True), run(False), strict=True):
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, 1e-4, 1e-4)


# Compiling kernels takes seconds a program: these draw few, and do not shrink them.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backend", ["blocked", "optimized"])
def test_python_over_compiled_kernels(backend: str, seed: int):
    check(Program(seed), backend, mode="python")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_fastest_mode_on_the_optimized_backend(seed: int):
    check(Program(seed), "optimized", mode="auto")
