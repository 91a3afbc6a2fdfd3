"""Dispatch: rules before kernels, modes, results checked, in-place writes seen."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import ops
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dispatch import Mode, apply, write
from tinytorch.state import current_backend, current_phase, grad_mode, phase


class Listener(Mode):
    """Notes every op that passes, with its phase."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
        self.seen.append((op.name, current_phase()))
        return self.below(op, inputs, params, plan)


@pytest.fixture(autouse=True)
def _numpy() -> Any:
    with tinytorch.using_backend("numpy"):
        yield


def test_a_rule_speaks_before_any_kernel() -> None:
    class Never(NumpyBackend):
        def matmul(self, a: Any, b: Any) -> Any:
            raise AssertionError("the kernel ran")

    with tinytorch.using_backend(Never()), pytest.raises(tinytorch.ShapeError) as error:
        tinytorch.ones(2, 3) @ tinytorch.ones(4, 5)
    assert str(error.value) == (
        "matmul: shapes (2, 3) and (4, 5) do not fit: the first has 3 columns, the second 4 rows"
    )


def test_a_kernel_that_breaks_its_promise_is_named() -> None:
    class Wrong(NumpyBackend):
        def matmul(self, a: Any, b: Any) -> Any:
            return np.zeros((1, 1), np.float64)

    with tinytorch.using_backend(Wrong()), pytest.raises(tinytorch.BackendError) as error:
        tinytorch.ones(2, 3) @ tinytorch.ones(3, 2)
    assert str(error.value) == (
        "Wrong.matmul returned float64[1, 1], but the op's rules say float32[2, 2]"
    )


def test_modes_hear_forward_and_backward_with_the_phase() -> None:
    x = tinytorch.ones(3, requires_grad=True)
    with Listener() as listener:
        (x * x).sum().backward()
    assert ("mul", "forward") in listener.seen
    assert ("mul", "backward") in listener.seen
    assert [name for name, _ in listener.seen[:2]] == ["mul", "sum"]


def test_modes_nest_and_their_own_ops_go_below_them() -> None:
    class Doubling(Mode):
        def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
            return self.below(op, inputs, params, plan) * 2

    with Listener() as outer, Doubling():
        y = tinytorch.ones(2) + tinytorch.ones(2)
    assert y.tolist() == [8.0, 8.0]  # each `ones` is doubled to 2, and so is their sum
    assert [name for name, _ in outer.seen] == ["full", "full", "add"]

    class Recursive(Mode):
        calls = 0

        def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
            Recursive.calls += 1
            tinytorch.ones(2) + tinytorch.ones(2)
            return self.below(op, inputs, params, plan)

    x = tinytorch.ones(2)
    with Recursive():
        x + x
    assert Recursive.calls == 1


def test_a_mode_ends_with_its_block_even_on_an_error() -> None:
    listener = Listener()
    with pytest.raises(ZeroDivisionError), listener:
        raise ZeroDivisionError
    tinytorch.ones(2)
    assert listener.seen == []


def test_fused_ops_are_decomposed_where_a_mode_wants_it() -> None:
    class Whole(Listener):
        decompose = False

        def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
            self.seen.append((op.name, ""))
            return np.zeros(plan.meta.shape, plan.meta.dtype.dtype)

    class Parts(Listener):
        decompose = True

    x = tinytorch.ones(2, 3)
    with Whole() as whole:
        x.softmax(1)
    with Parts() as parts:
        x.softmax(1)
    assert whole.seen == [("softmax", "")]
    assert [name for name, _ in parts.seen] == ["amax", "detach", "sub", "exp", "sum", "div"]


def test_a_fused_op_without_a_gradient_is_differentiated_whatever_the_mode_wants() -> None:
    class Whole(Mode):
        decompose = False

    def double_backward() -> tinytorch.Tensor:
        x = tinytorch.tensor([[0.5, -1.0, 2.0]], dtype="float64", requires_grad=True)
        (first,) = tinytorch.autograd.grad(x.softmax(1)[0, 0], x, create_graph=True)
        return tinytorch.autograd.grad(first[0, 1], x)[0]

    class Fusing(NumpyBackend):
        def softmax(self, x: Any, *, dim: int) -> Any:
            e = np.exp(x - x.max(dim, keepdims=True))
            return e / e.sum(dim, keepdims=True)

        def softmax_backward(self, g: Any, out: Any, *, dim: int) -> Any:
            return out * (g - (g * out).sum(dim, keepdims=True))

    expected = double_backward().tolist()
    with tinytorch.using_backend(Fusing()), Whole():
        assert double_backward().tolist() == [pytest.approx(row) for row in expected]


def test_phase_and_grad_mode_are_restored() -> None:
    with phase("optimizer"), grad_mode(False):
        assert current_phase() == "optimizer"
        assert not tinytorch.is_grad_enabled()
    assert current_phase() == "forward"
    assert tinytorch.is_grad_enabled()


def test_no_grad_is_also_a_decorator_and_enable_grad_undoes_it() -> None:
    x = tinytorch.ones(2, requires_grad=True)

    @tinytorch.no_grad()
    def double() -> tinytorch.Tensor:
        with tinytorch.enable_grad():
            inner = x * 2
        assert inner.requires_grad
        return x * 2

    assert not double().requires_grad
    with tinytorch.set_grad_enabled(False):
        assert not (x * 2).requires_grad


def test_a_backend_chosen_in_a_thread_or_coroutine_stays_there() -> None:
    here = current_backend()
    names: dict[str, str] = {}
    barrier = threading.Barrier(2)

    def work(name: str) -> None:
        with tinytorch.using_backend(name):
            barrier.wait()
            names[name] = type(current_backend()).__name__

    threads = [threading.Thread(target=work, args=(n,)) for n in ("naive", "numpy")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == {"naive": "NaiveBackend", "numpy": "NumpyBackend"}

    async def task(name: str) -> str:
        with tinytorch.using_backend(name):
            await asyncio.sleep(0)
            return type(current_backend()).__name__

    async def both() -> list[str]:
        return list(await asyncio.gather(task("naive"), task("numpy")))

    assert asyncio.run(both()) == ["NaiveBackend", "NumpyBackend"]
    assert current_backend() is here


def test_numpy_arrays_and_numbers_are_operands_and_nothing_else_is() -> None:
    x = tinytorch.ones(2)
    assert (x + np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert (np.ones(2, np.float32) + x).tolist() == [2.0, 2.0]
    assert (x * np.float64(3)).dtype is tinytorch.float32  # a NumPy number is as weak as Python's
    with pytest.raises(TypeError, match=r"add takes tensors, NumPy arrays and numbers, not str"):
        x + "1"
    with pytest.raises(TypeError, match="not NoneType"):
        x * None


def test_an_in_place_write_reaches_the_mode() -> None:
    class Writes(Mode):
        written: list[Any] = []  # noqa: RUF012 - one list for the test

        def write(self, target: Any, data: Any) -> None:
            self.written.append(data)
            super().write(target, data)

    x = tinytorch.zeros(2)
    with Writes() as mode:
        x.add_(1)
    assert len(mode.written) == 1
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: x.add_(1),
            "in-place add on a leaf that requires a gradient (shape (2,)) would falsify the "
            "recorded history; write `t = t + x` instead, or update it under `with no_grad():`",
        ),
        (
            lambda x: write(y := x * 2, ops.mul, y, 2.0),
            "in-place mul on a recorded result (shape (2,)) would falsify the recorded history; "
            "write `t = t + x` instead, or update it under `with no_grad():`",
        ),
    ],
)
def test_history_is_not_falsified(make: Any, message: str) -> None:
    x = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(tinytorch.AutogradError) as error:
        make(x)
    assert str(error.value) == message
    assert x.tolist() == [1.0, 1.0]


def test_in_place_results_must_fit() -> None:
    x = tinytorch.ones(2)
    with pytest.raises(tinytorch.ShapeError) as error:
        write(x, ops.add, x, tinytorch.ones(3, 2))
    assert str(error.value) == (
        "in-place add: a result of shape (3, 2) does not fit into a tensor of shape (2,)"
    )


def test_a_broadcast_view_cannot_be_written() -> None:
    view = tinytorch.ones(1).expand(3)
    with pytest.raises(tinytorch.AutogradError, match="broadcast or read-only view"):
        view.add_(1)


def test_an_op_of_the_users_own_runs_on_every_backend_and_has_a_gradient() -> None:
    from tinytorch.gradients import gradient
    from tinytorch.op import OPS

    def softsign(a):  # type: ignore[no-untyped-def]
        return a / (1 + abs(a))

    op = ops.elementwise(ops.dtype_rules.floating)(softsign)
    try:
        gradient("softsign", a=lambda g, a: g / ((a.abs() + 1.0) * (a.abs() + 1.0)))
        expected = [-0.5, 0.0, 0.75]
        for name in ("naive", "numpy"):
            with tinytorch.using_backend(name):
                assert apply(op, tinytorch.tensor([-1.0, 0.0, 3.0])).tolist() == expected
        x = tinytorch.tensor([-1.5, 0.5], dtype="float64", requires_grad=True)
        assert tinytorch.autograd.gradgradcheck(lambda x: apply(op, x), [x])
        with pytest.raises(ValueError, match="there is an op 'softsign' already"):
            ops.elementwise(ops.dtype_rules.floating)(softsign)
    finally:
        del OPS["softsign"]


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
def test_a_history_keeps_what_the_gradients_asked_for_read(backend: str) -> None:
    """Of a product with a constant the constant alone."""
    w, constant = tinytorch.ones(3, requires_grad=True), tinytorch.ones(3)
    with tinytorch.using_backend(backend):
        factor = w * 2.0
        kept, alive = weakref.ref(constant), weakref.ref(factor)
        product = factor * constant
    del factor, constant
    assert alive() is None and kept() is not None and product.requires_grad
