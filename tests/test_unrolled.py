"""What runs (`unrolled`) and what is meant (`dispatch.apply`) are the same function."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import dispatch, ops
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dispatch import Mode, is_tensor
from tinytorch.history import Record
from tinytorch.op import OPS
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample
from tinytorch.unrolled import unrolled

meaning = dispatch.apply.__wrapped__  # type: ignore[attr-defined]
SAMPLES = 8  # of each op


@pytest.fixture(autouse=True)
def _backend_and_meaning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """On a backend that has run nothing; and `meaning`, which calls `apply`, calls itself."""
    monkeypatch.setattr(dispatch, "apply", meaning)
    with tinytorch.using_backend(NumpyBackend()):
        yield


class Fused(NumpyBackend):
    """Has one fused kernel with a gradient, and one whose op has none."""

    def softmax(self, x: Any, *, dim: int) -> Any:
        e = np.exp(x - x.max(dim, keepdims=True))
        return e / e.sum(dim, keepdims=True)

    def softmax_backward(self, g: Any, y: Any, *, dim: int) -> Any:
        return y * (g - (g * y).sum(dim, keepdims=True))


class Zeros(Mode):
    """Every result is zeros."""

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
        return np.zeros_like(self.below(op, inputs, params, plan))


class InParts(Mode):
    decompose = True


def outcome(function: Any, op: Any, inputs: Any, params: Any) -> Any:
    """Everything that can be seen of a call: its result and history, or its error."""
    try:
        out = function(op, *inputs, **params)
    except Exception as error:
        return type(error), str(error), type(error.__context__)
    return described(out)


def described(value: Any, depth: int = 4) -> Any:
    """Without identities: equal where nobody can see a difference. Histories down to a depth."""
    if is_tensor(value):
        data, history = value._data, described(value.history, depth)
        flags = type(value), value.requires_grad, value.grad
        return data.dtype, data.shape, data.tobytes(), value.meta, flags, history
    if type(value) is Record:
        names = Record.__slots__ if depth else ("op", "metas", "meta")
        return {name: described(getattr(value, name), depth - 1) for name in names}
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        return tuple(described(each, depth) for each in value)
    if isinstance(value, dict):
        return {name: described(each, depth) for name, each in value.items()}
    return type(value), repr(value)


def assert_same(op: Any, inputs: Any, params: Any) -> None:
    with np.errstate(all="ignore"):
        expected = outcome(meaning, op, inputs, params)
        fast = unrolled(meaning)
        for _ in range(2):  # as at first, and with its kernel known
            assert outcome(fast, op, inputs, params) == expected, f"{op}{inputs}{params}"


def operands(op: Any, random: Random, dtype: str) -> tuple[list[Any], Any]:
    """A sample of an op: tensors, some of which need a gradient or have a history, arrays, numbers.

    Elementwise ops get inputs of other dtypes too, and numbers in the places of tensors.
    """
    sample = draw_sample(op.name, random, "edges", dtype)
    inputs: list[Any] = sample.tensors()
    for i, x in enumerate(inputs):
        if not is_tensor(x):
            continue
        if op.kind == "elementwise" and random.random() < 0.2:
            x = inputs[i] = x.to(random.choice(["float32", "int64", "bool"]))
        if x.dtype.is_floating_point and random.random() < 0.6:
            x = inputs[i] = x.detach().requires_grad_()
            if random.random() < 0.5:
                inputs[i] = x.view(x.shape)
        elif random.random() < 0.2:
            inputs[i] = x.numpy()
        elif op.kind == "elementwise" and random.random() < 0.1:
            inputs[i] = random.choice([2.5, 3, True, np.float32(1.5), np.int64(2)])
    return inputs, sample.params


@pytest.mark.parametrize("name", OPS)
def test_each_op_has_the_same_result_history_and_error(name: str) -> None:
    random = Random(name)
    dtypes = admitted_dtypes(name)
    for _ in range(SAMPLES):
        inputs, params = operands(OPS[name], random, random.choice(dtypes))
        assert_same(OPS[name], inputs, params)
        with random.choice([tinytorch.no_grad(), Zeros(), InParts()]):
            assert_same(OPS[name], inputs, params)


def test_a_fused_kernel_runs_or_its_parts_do() -> None:
    x = tinytorch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
    g = tinytorch.ones(1, 3)
    with tinytorch.using_backend(Fused()):
        for inputs in ([x], [x.detach()]):
            assert_same(ops.softmax, inputs, {"dim": 1})
        for inputs in ([g, x.detach()], [g, x], [g.detach().requires_grad_(), x.detach()]):
            assert_same(ops.softmax_backward, inputs, {"dim": 1})


def test_what_casts_first_is_one_kernel_from_then_on_but_where_it_is_recorded() -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the unrolled form gave up")

    counts, weights = tinytorch.tensor([1, 2, 3]), tinytorch.tensor([0.5, 1.0, 2.0])
    for inputs in ([counts, weights], [weights, counts], [counts, 2.5], [counts], [counts > 1, 1]):
        op = ops.exp if len(inputs) == 1 else ops.mul
        out = meaning(op, *inputs)
        assert described(unrolled(never)(op, *inputs)) == described(out)
    weights.requires_grad_()
    product = unrolled(meaning)(ops.mul, counts, weights)
    product.sum().backward()
    assert weights.grad.tolist() == [1.0, 2.0, 3.0]
    small = tinytorch.tensor([1], dtype="uint8")
    for _ in range(2):  # -1 is 255 of uint8: a number that is wrapped goes the long way
        chosen = unrolled(meaning)(ops.where, tinytorch.tensor([0]), small, -1)
        assert chosen.tolist() == [255]


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "params", "message"),
    [
        (ops.matmul, (X, X), {}, "matmul: shapes (2, 3) and (2, 3) do not fit"),
        (ops.add, (X, "1"), {}, "add takes tensors, NumPy arrays and numbers, not str"),
        (ops.add, (X, None), {}, "add takes tensors, NumPy arrays and numbers, not NoneType"),
        (ops.add, (1, 2.0), {}, "add needs at least one tensor, not only Python numbers"),
        (ops.add, (X,), {}, "add takes 2 inputs, not 1"),
        (ops.exp, (X, X, X), {}, "exp takes 1 inputs, not 3"),
        (ops.bitwise_and, (X, X), {}, "bitwise_and"),
        (ops.sum, (X,), {"dims": [0], "keepdim": False}, "unhashable type"),
    ],
)
def test_errors_are_the_same(op: Any, inputs: Any, params: Any, message: str) -> None:
    for wrap in (lambda x: x, lambda x: tinytorch.tensor(x) if x is X else x):
        given = tuple(map(wrap, inputs))
        assert message in outcome(meaning, op, given, params)[1]
        assert_same(op, given, params)


def test_a_kernel_that_breaks_its_promise_is_found_again_each_time() -> None:
    class Wrong(NumpyBackend):
        def exp(self, a: Any) -> Any:
            return a[:1]

    with tinytorch.using_backend(Wrong()):
        x = tinytorch.ones(3)
        assert "Wrong.exp returned float32[1]" in outcome(meaning, ops.exp, (x,), {})[1]
        assert_same(ops.exp, (x,), {})


@pytest.mark.parametrize("name", OPS)
def test_what_has_run_before_needs_no_second_look(name: str) -> None:
    """Otherwise all of the above would compare `meaning` with itself."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the unrolled form gave up")

    op = OPS[name]
    if op.decomposition is not None:
        return  # this backend runs its parts
    dtype = {"logical": "bool", "bitwise": "int64"}.get(name.partition("_")[0], "float64")
    sample = draw_sample(name, Random(name), "finite", dtype)
    inputs = sample.tensors(requires_grad=True)
    with np.errstate(all="ignore"):
        out = meaning(op, *inputs, **sample.params)
        again = unrolled(never)(op, *inputs, **sample.params)
    assert described(again) == described(out)
