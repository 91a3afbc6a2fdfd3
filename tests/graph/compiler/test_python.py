"""The generated Python: its text, how it fails, and that it runs every backend's kernels."""

from __future__ import annotations

import linecache
import sys
import textwrap
import traceback
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.user_ops import reversed_view, rolled
from tinytorch import optim
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.graph.compiler.python import PythonProgram, indented, wrapped
from tinytorch.op import OPS
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


def program_of(compiled: Any) -> PythonProgram:
    program = compiled.traces[-1].code.program
    assert isinstance(program, PythonProgram)
    return program


def without_comments(source: str) -> str:
    """The code; comments at the end of lines say the line of this file, which moves."""
    lines = [
        line if line.lstrip().startswith("#") else line.split("  # ")[0].rstrip()
        for line in source.splitlines()
    ]
    return "\n".join(lines)


def test_a_training_step_as_code():
    w = tinytorch.ones(4, 3, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.5)

    @tinytorch.compile(mode="python", keep_grads=False)
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x @ w.T).relu().sum()
        loss.backward()
        optimizer.step()
        return loss

    step(tinytorch.ones(2, 3))
    source = program_of(step).source
    expected = """
    # 7 steps on <NumpyBackend>, arena 128 bytes
    def make(arena):
        scalar = empty((), float32)
        matmul = ndarray((2, 4), float32, arena, 64)
        relu = ndarray((2, 4), float32, arena, 64)
        relu_backward_1 = ndarray((2, 4), float32, arena, 64)
        matmul_1 = ndarray((3, 4), float32, arena, 0)
        permute_2 = ndarray((4, 3), float32, arena, 0, (4, 16))
        mul = ndarray((4, 3), float32, arena, 64)
        def call(x, w, scalar_now):
            scalar.fill(scalar_now)
            # forward
            permute = w.transpose((1, 0))
            _matmul(x, permute, matmul)
            _relu(matmul, relu)
            sum = empty((), float32)
            _sum(relu, sum, dims=(0, 1), keepdim=False)
            # backward
            _relu_backward(constant_0, relu, relu_backward_1)
            permute_1 = x.transpose((1, 0))
            _matmul(permute_1, relu_backward_1, matmul_1)
            # optimizer
            _mul(permute_2, scalar, mul)
            _sub(w, mul, w)
            return [sum]
        return call"""
    assert without_comments(source) == textwrap.dedent(expected).strip()
    (line,) = [line for line in source.splitlines() if "_matmul(x, permute" in line]
    assert line.endswith("in step") and "# float32[2, 4]  test_python.py:" in line


def test_a_traceback_shows_the_code():
    function = tinytorch.compile(_take, mode="python")
    function(tinytorch.ones(3), tinytorch.tensor([0, 2]))
    with pytest.raises(IndexError) as raised:
        function(tinytorch.ones(3), tinytorch.tensor([0, 7]))
    text = "".join(traceback.format_exception(raised.value))
    assert "check_index(i, 3)" in text and "test_python.py:" in text
    filename = program_of(function).filename
    assert linecache.getline(filename, 1).startswith("# 2 steps on")
    assert (
        function(tinytorch.ones(3), tinytorch.tensor([0, 2])).tolist() == [pytest.approx(np.e)] * 2
    )


def _take(t: Tensor, i: Tensor) -> Tensor:
    return tinytorch.apply(OPS["take"], t.exp(), i)


def test_a_debugger_stops_in_the_code():
    function = tinytorch.compile(lambda x: (x * 2.0).exp(), mode="python")
    function(tinytorch.zeros(2))
    filename, lines = program_of(function).filename, []

    def watch(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == filename and event == "line":
            lines.append(linecache.getline(filename, frame.f_lineno).split("  #")[0].strip())
        return watch

    old = sys.gettrace()
    sys.settrace(watch)
    try:
        function(tinytorch.zeros(2))
    finally:
        sys.settrace(old)
    assert lines[-3:] == ["exp = empty((2,), float32)", "_exp(mul, exp)", "return [exp]"]


def test_code_that_is_forgotten_leaves_linecache():
    function = tinytorch.compile(lambda x: x * 2.0, mode="python")
    function(tinytorch.ones(1))
    filename = program_of(function).filename
    assert filename in linecache.cache
    del function
    import gc

    gc.collect()
    assert filename not in linecache.cache


def test_names_do_not_collide():
    @tinytorch.compile(mode="python")
    def function(empty: Tensor, arena: Tensor, float32: Tensor, sum: Tensor, _add: Tensor) -> Any:
        return (empty + arena).sum() + float32 * sum + _add

    for _ in range(2):
        got = function(*[tinytorch.ones(2) * float(i) for i in range(5)])
    assert got.tolist() == [2.0 + 2.0 * 3.0 + 4.0] * 2


def test_numbers_that_have_no_literal():
    @tinytorch.compile(mode="python")
    def function(x: Tensor) -> Tensor:
        return tinytorch.maximum(x, float("-inf")) + tinytorch.minimum(x, float("inf")) * 1e-300

    assert function(tinytorch.ones(2)).tolist() == [1.0, 1.0]
    nan = tinytorch.compile(lambda x: x * float("nan"), mode="python")
    assert np.isnan(nan(tinytorch.ones(2)).numpy()).all()


def test_nothing_warns_of_infinity():
    function = tinytorch.compile(lambda x: 1.0 / x + x.log(), mode="python")
    assert np.isnan(function(tinytorch.zeros(2)).numpy()).all()


def test_memory_of_kernels_that_bring_their_result_is_let_go():
    function = tinytorch.compile(lambda x: ((x * 2.0).cumprod(0) + 1.0).sigmoid().sum())
    function(tinytorch.ones(3))
    lines = without_comments(program_of(function).source).splitlines()
    after = lines.index("        cumprod = _cumprod(mul, dim=0)")
    assert lines[after + 1 : after + 3] == [
        "        _add(cumprod, 1.0, add)",
        "        del cumprod",
    ]


class OneMethod(NumpyBackend):
    """A student's first backend."""

    calls = 0

    def matmul(self, a: Any, b: Any) -> Any:
        self.calls += 1
        return np.einsum("ik,kj->ij", a, b)


class WritesOut(NumpyBackend):
    """A backend whose own kernel fills memory that it is given."""

    def exp(self, a: Any) -> Any:
        return np.exp(a)

    def specialize_out(self, plan: Any) -> Any:
        if plan.op.name == "exp":
            return lambda a, out: np.exp(a, out)
        return super().specialize_out(plan)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_ops_that_a_user_adds(backend: str):
    """On `optimized` too: what machine code lacks is generated Python, and the reason is said."""
    x = tinytorch.tensor(np.arange(12.0).reshape(3, 4)[:, ::-1])
    with rolled() as roll, reversed_view() as view, tinytorch.using_backend(backend):

        def function(x: Tensor) -> Tensor:
            middle = tinytorch.apply(roll, x * 2, shift=1, dim=0)
            return tinytorch.apply(view, middle.mT, dim=0) + tinytorch.apply(view, x.mT, dim=1)

        compiled = tinytorch.compile(function)
        np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
        assert (compiled(x) == function(x)).all()


def test_a_users_backend():
    backend = OneMethod()
    function = tinytorch.compile(lambda x: (x @ x.T).exp(), backend=backend, mode="python")
    for _ in range(3):
        got = function(tinytorch.ones(2, 3))
    assert got.tolist() == [[pytest.approx(np.exp(3.0))] * 2] * 2
    assert backend.calls == 3
    source = without_comments(program_of(function).source)
    assert "matmul = _matmul(x, permute)" in source and "_exp(matmul, exp)" in source


def test_a_kernel_that_breaks_its_promise():
    class Wrong(NumpyBackend):
        def matmul(self, a: Any, b: Any) -> Any:
            return np.zeros(3)

    function = tinytorch.compile(lambda x: x @ x, backend=Wrong(), mode="python")
    with pytest.raises(tinytorch.BackendError, match=r"Wrong.matmul returned float64\[3\], but"):
        function(tinytorch.ones(2, 2))


def test_a_users_kernel_can_write_into_given_memory():
    function = tinytorch.compile(lambda x: (x * 2.0).exp().sum(), backend=WritesOut())
    assert function(tinytorch.zeros(3)).item() == 3.0
    assert "_exp(mul, exp)" in program_of(function).source


def test_long_lists_are_wrapped():
    assert wrapped("f(", ["a", "b"], ")") == ["f(a, b)"]
    names = [f"argument_{i}" for i in range(12)]
    assert wrapped("f(", names, ")") == ["f(", *indented([f"{n}," for n in names]), ")"]
    assert wrapped("del ", names, "") == [f"del {n}" for n in names]
