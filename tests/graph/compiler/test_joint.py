"""Compiled forwards in eager computations: their results have gradients, of any order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, optim
from tinytorch.autograd import grad
from tinytorch.errors import AutogradError
from tinytorch.graph.node import GraphError
from tinytorch.nn import functional as F
from tinytorch.state import current_phase, phase
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


def compile(function: Any, **options: Any) -> Any:
    return tinytorch.compile(function, mode="python", **options)


def leaf(rng: np.random.Generator, *shape: int) -> Tensor:
    return tinytorch.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)


def assert_same(a: Any, b: Any) -> None:
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            assert x is y
        else:
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-4, 1e-5)


def several(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    h = (x @ w).tanh()
    return h.sum(), h * 2.0, x, (h > 0).sum(), h.detach() + x


@pytest.mark.parametrize("order", [1, 2])
def test_several_results(rng: np.random.Generator, order: int):
    x, w = leaf(rng, 2, 3), leaf(rng, 3, 3)

    def gradients(function: Callable[..., Any]) -> Any:
        total, h, same, count, other = function(x, w)
        assert same is x
        assert (total.requires_grad, h.requires_grad, other.requires_grad) == (True,) * 3
        assert not count.requires_grad
        y = total * h.sum() + (h * h).sum() + (other * other * same).sum()
        first = grad(y, [x, w], create_graph=order == 2)
        if order == 1:
            return first
        return grad(sum((g * g).sum() for g in first), [x, w])

    assert_same(gradients(compile(several)), gradients(several))


@pytest.mark.parametrize("order", [1, 2])
def test_an_argument_that_is_computed_from_another(rng: np.random.Generator, order: int):
    x = leaf(rng, 3)

    def gradients(function: Callable[..., Any]) -> Any:
        y = x * 2.0
        first = grad(function(x, y, y * x), [x, y], tinytorch.ones(3), create_graph=True)
        if order == 1:
            return first
        return grad(sum((g * g).sum() for g in first), [x, y])

    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x * y).tanh() * z + x

    assert_same(gradients(compile(function)), gradients(function))


def test_a_module_in_an_eager_loop():
    def build() -> nn.Module:
        tinytorch.manual_seed(3)
        return nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3)
        )

    plain, model = build(), build()
    compiled = compile(model)
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (plain, compiled)]
    rng = np.random.default_rng(0)
    for i in range(15):
        x = tinytorch.tensor(rng.standard_normal((5, 6)).astype(np.float32))
        y = tinytorch.tensor(rng.integers(0, 3, 5))
        losses = []
        for m, optimizer in zip((plain, compiled), optimizers, strict=True):
            tinytorch.manual_seed(i)
            optimizer.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert compiled.compiled.reasons == ["first call"]
    for (name, a), b in zip(plain.state_dict().items(), model.state_dict().values(), strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), 1e-4, 1e-6, err_msg=name)
    x = tinytorch.tensor(rng.standard_normal((5, 6)).astype(np.float32))
    plain.eval(), compiled.eval()
    with tinytorch.no_grad():
        assert_same([compiled(x)], [plain(x)])
    assert compiled.compiled.reasons[1:] == ["gradients are off, and were not"]


def test_a_frozen_parameter_gets_no_gradient(rng: np.random.Generator):
    model = nn.Linear(3, 2)
    compiled = compile(model)
    x = leaf(rng, 4, 3)
    compiled(x).sum().backward()
    assert model.weight.grad is not None and x.grad is not None
    model.zero_grad()
    model.weight.requires_grad_(False)
    compiled(x).sum().backward()
    assert model.weight.grad is None and model.bias.grad is not None
    model.requires_grad_(False)
    assert not compiled(x.detach()).requires_grad


def test_gradients_add_up_over_calls(rng: np.random.Generator):
    w, x = leaf(rng, 3), leaf(rng, 3)
    square = compile(lambda x: x * x * w)
    (square(x).sum() + square(square(x)).sum()).backward()
    got = [x.grad, w.grad]
    x.grad = w.grad = None
    ((x * x * w).sum() + (x * x * w * (x * x * w) * w).sum()).backward()
    assert_same(got, [x.grad, w.grad])


def test_an_input_that_the_result_does_not_depend_on(rng: np.random.Generator):
    x, w = leaf(rng, 3), leaf(rng, 3)
    function = compile(lambda x, w: x.exp())
    assert_same(grad(function(x, w).sum(), [x, w], allow_unused=True), [x.detach().exp(), None])
    constant = compile(lambda x: x.detach() * 2.0)
    assert not constant(x).requires_grad


def test_a_gradient_is_nobody_elses_memory(rng: np.random.Generator):
    x, w = leaf(rng, 3), leaf(rng, 3)
    compile(lambda x, w: (x * w).sum())(x, w).backward()
    assert x.grad is not None and w.grad is not None
    for gradient in (x.grad, w.grad):
        for other in (x, w):
            assert not np.shares_memory(gradient.numpy(), other.detach().numpy())


def test_what_the_backward_reads_must_stay(rng: np.random.Generator):
    x, w = leaf(rng, 3), leaf(rng, 3)
    y = compile(lambda x, w: (x * w).sum())(x, w)
    with tinytorch.no_grad():
        w.add_(1.0)
    with pytest.raises(AutogradError, match="was overwritten in place after it was used"):
        y.backward()
    y = compile(lambda x, w: (x + w).sum() * 2.0)(x, w)
    with tinytorch.no_grad():
        w.add_(1.0)  # which no gradient reads
    y.backward()
    y = compile(lambda x, w: (x + w).sum() * 2.0)(x, w)
    with tinytorch.no_grad():
        w.add_(1.0)
    with pytest.raises(AutogradError, match="create_graph=True computes the call again"):
        grad(y, [x], create_graph=True)


def test_a_second_backward_needs_the_history(rng: np.random.Generator):
    x = leaf(rng, 3)
    y = compile(lambda x: (x * x).sum())(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(AutogradError, match="was freed by an earlier backward"):
        y.backward()


def test_a_profiler_sees_the_ops_of_the_backward(rng: np.random.Generator):
    x = leaf(rng, 4, 4)
    y = compile(lambda x: (x @ x).tanh())(x)
    with tinytorch.bench.OpCounter() as counter:
        y.sum().backward()
    assert counter.ops["matmul"].calls == 2
    (expected,) = grad((x @ x).tanh().sum(), [x])
    assert_same([x.grad], [expected])


def test_dropout_uses_one_mask_forward_and_backward():
    drop = compile(lambda x: F.dropout(x, 0.5))
    x = tinytorch.ones(200, requires_grad=True)
    y = drop(x)
    y.sum().backward()
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())
    assert not np.array_equal(drop(x).detach().numpy(), y.detach().numpy())


def test_integer_inputs(rng: np.random.Generator):
    table, index = leaf(rng, 5, 3), tinytorch.tensor([4, 0, 4])
    (got,) = grad(compile(lambda t, i: F.embedding(i, t).exp())(table, index).sum(), [table])
    (expected,) = grad(F.embedding(index, table).exp().sum(), [table])
    assert_same([got], [expected])


def test_the_gradient_of_a_maximum_of_equals_is_that_of_eager_code_at_nan_too() -> None:
    """Each NaN takes the whole gradient: the maximum of x and x is not simply x."""

    def twice(x: Tensor) -> Tensor:
        log = x.log()  # NaN at -2, where its gradient is -1 / 2
        return tinytorch.maximum(log, log).sum()

    gradients = []
    for function in (twice, tinytorch.compile(twice)):
        x = tinytorch.tensor([-2.0, 4.0], requires_grad=True)
        with tinytorch.using_backend("numpy"):
            function(x * 1.0).backward()
        assert x.grad is not None
        gradients.append(x.grad.numpy())
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_backward_inside_goes_on_to_what_an_argument_was_computed_from(backend):
    def step(x):
        (x * x).sum().backward()
        return x.detach() * 2

    with tinytorch.using_backend(backend):
        compiled, leaf = tinytorch.compile(step), tinytorch.ones(2, requires_grad=True)
        for _ in range(3):  # the guard knows leaves only
            leaf.grad = None
            compiled(leaf)
            assert leaf.grad.tolist() == [2.0, 2.0]
            leaf.grad, computed = None, leaf * 3
            with pytest.warns(RuntimeWarning, match="ends at the graph's inputs"):
                compiled(computed)
            assert leaf.grad.tolist() == [18.0, 18.0] and computed.grad is None
        leaf.grad = None
        with pytest.raises(GraphError, match="was computed from others"):
            tinytorch.graph.trace(step, leaf)(leaf * 3)


def test_a_forward_that_overwrites_a_leaf_keeps_the_history_of_its_results():
    w = tinytorch.tensor([4.0, 0.5], requires_grad=True)

    def limited(x):
        with tinytorch.no_grad():
            w.clamp_(max=1.0)
        return x * w

    with pytest.warns(RuntimeWarning, match="overwrites a leaf"):
        y = compile(limited)(tinytorch.ones(2))
    (y * 3 + w).sum().backward()
    assert w.tolist() == [1.0, 0.5] and w.grad.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_result_that_is_a_leaf_requires_its_gradient(recorded):
    def start(x):
        with tinytorch.set_grad_enabled(recorded):
            return x * 2, tinytorch.zeros_like(x, requires_grad=True)

    compiled = compile(start)
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="is a leaf that requires a gradient"):
            _, leaf = compiled(tinytorch.ones(2))
        assert leaf.requires_grad and leaf.is_leaf
    given = tinytorch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile(lambda x: x)(given) is given


def test_a_step_whose_result_is_a_new_leaf_can_be_repeated():
    def step(w, x):
        (g,) = grad(((x @ w) ** 2).sum(), [w])
        return (w - 0.1 * g).detach().requires_grad_()

    w, x, compiled = tinytorch.ones(2, 2, requires_grad=True), tinytorch.eye(2), compile(step)
    for expected in (0.8, 0.64):
        with pytest.warns(RuntimeWarning, match="is a leaf that requires a gradient"):
            w = compiled(w, x)
        assert w.is_leaf and w.requires_grad and w[0, 0].item() == pytest.approx(expected)


def test_a_loss_that_an_optimizer_evaluates_first_has_a_gradient(rng):
    x, y, model = leaf(rng, 5, 3).detach(), leaf(rng, 5, 1).detach(), nn.Linear(3, 1)
    loss, phases = compile(lambda: F.mse_loss(model(x), y)), set()
    optimizer = optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        phases.add(current_phase())
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    first = optimizer.step(closure).item()
    assert loss().item() < first and phases == {"forward"}


def test_a_loss_that_is_compiled_in_another_phase_has_a_gradient():
    w = tinytorch.ones(2, requires_grad=True)
    with phase("optimizer"):
        compile(lambda: (w * w).sum())().backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_gradients_that_are_switched_on_inside_of_a_no_grad_stay_on():
    w = tinytorch.ones(2, requires_grad=True)

    @compile
    def attack(x):
        with tinytorch.enable_grad():
            return x * w

    with tinytorch.no_grad(), pytest.warns(RuntimeWarning, match="enable_grad.. inside"):
        y = attack(tinytorch.ones(2))
    y.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]


def test_a_leaf_that_is_given_twice_gets_all_of_its_gradient():
    def step(x, y):
        (x * x * 2 + y).sum().backward()

    compiled, x = compile(step), tinytorch.ones(2, requires_grad=True)
    for _ in range(3):  # the guard tells a call with two leaves from one with one
        y, x.grad = tinytorch.ones(2, requires_grad=True), None
        compiled(x, y)
        assert x.grad.tolist() == [4.0, 4.0] and y.grad.tolist() == [1.0, 1.0]
        x.grad = None
        with pytest.warns(RuntimeWarning, match="two of them are one tensor"):
            compiled(x, x)
        assert x.grad.tolist() == [5.0, 5.0]
