"""Function, checkpoint and gradcheck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import Function, checkpoint, grad, gradcheck, gradgradcheck


@pytest.fixture(autouse=True)
def _numpy() -> Any:
    with tinytorch.using_backend("numpy"):
        yield


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float = 1.0) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * ctx.scale * x * x, None


def test_a_function_with_its_own_gradient_of_any_order() -> None:
    x = tinytorch.randn(4, dtype="float64", requires_grad=True)
    assert gradcheck(lambda x: Cube.apply(x, 2.0), [x], order=3)


def test_backward_may_give_none_for_arguments_that_had_their_default() -> None:
    class Scale(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float = 2.0, name: str = "") -> Any:
            ctx.by = by
            return x * by

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.by, None, None

    x = tinytorch.ones(2, requires_grad=True)
    Scale.apply(x).sum().backward()
    Scale.apply(x, 3.0).sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_what_is_wrong_with_a_function_is_said() -> None:
    x = tinytorch.ones(2, requires_grad=True)

    class TooFew(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    class TooMany(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None, g

    with pytest.raises(tinytorch.AutogradError, match="returned 3 gradients, forward took 2"):
        TooMany.apply(x, 2.0).sum().backward()
    with pytest.raises(tinytorch.AutogradError, match="returned 1 gradients, forward took 2"):
        TooFew.apply(x, 1.0).sum().backward()

    class WrongShape(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.sum(), None

    with pytest.raises(tinytorch.ShapeError, match=r"of shape \(\) for argument 0 of shape \(2,\)"):
        WrongShape.apply(x, 1.0).sum().backward()

    class NoTensor(Cube):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 1

    with pytest.raises(TypeError, match="forward must return a Tensor"):
        NoTensor.apply(x)


def test_a_functions_saved_value_may_not_be_overwritten() -> None:
    x = tinytorch.ones(2)
    w = tinytorch.ones(2, requires_grad=True)

    class Times(Function):
        @staticmethod
        def forward(ctx: Any, w: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return w * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0], None

    y = Times.apply(w, x).sum()
    x.zero_()
    with pytest.raises(tinytorch.AutogradError, match="overwritten in place"):
        y.backward()


def test_backward_is_called_again_for_each_gradient() -> None:
    x = tinytorch.tensor([2.0], requires_grad=True)
    y = Cube.apply(x, 1.0)
    v = tinytorch.ones(1)
    for _ in range(3):
        y.backward(v, retain_graph=True)
    assert x.grad.tolist() == [36.0]
    v.mul_(2)
    (first,) = grad(y, x, v, create_graph=True)
    assert first.tolist() == [24.0] and grad(first, x)[0].tolist() == [24.0]


def test_a_saved_result_has_its_history_in_the_second_derivative() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    x = tinytorch.randn(4, dtype="float64", requires_grad=True)
    assert gradcheck(Exp.apply, [x], order=3)


def test_gradients_of_a_function_have_the_dtypes_of_its_arguments() -> None:
    class Half(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.to("float32"), None

    x = tinytorch.ones(2, dtype="float64", requires_grad=True)
    Half.apply(x, 1.0).sum().backward()
    assert x.grad.dtype == tinytorch.float64


def test_an_argument_by_keyword_gets_no_gradient() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(tinytorch.AutogradError, match="'scale' requires a gradient"):
        Cube.apply(x.detach(), scale=x)
    assert Cube.apply(x, scale=x.detach()).tolist() == [1.0, 1.0]


class Products(Function):
    """x y and x + y, by the newer form of a Function."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:  # type: ignore[override]
        return x * y, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, _, product = ctx.saved_tensors
        return g * product / x + h, g * x + h


def test_a_function_with_several_results() -> None:
    x, y = (tinytorch.rand(3, dtype="float64").add_(1).requires_grad_() for _ in range(2))
    for use in (
        lambda p, s: p * s,
        lambda p, s: p.exp(),
        lambda p, s: s * s * s,
        lambda p, s: p + p * s[1:].sum(),
    ):
        assert gradcheck(lambda x, y: use(*Products.apply(x, y)), [x, y], order=2)  # noqa: B023
    product, total = Products.apply(x, y)
    product.retain_grad()
    (product * 2 + total).sum().backward()
    assert product.grad.tolist() == [2.0] * 3 and x.grad.tolist() == (2 * y + 1).tolist()
    assert not any(t.requires_grad for t in Products.apply(x.detach(), y.detach()))


def test_results_without_a_gradient() -> None:
    given = []

    class Sorted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, materialize: bool) -> Any:
            values, order = x.sort()
            ctx.order = order
            ctx.set_materialize_grads(materialize)
            mask = values > 0
            halves = values * 0.5
            ctx.mark_non_differentiable(halves)
            return values, order, mask, halves, values * 2, "text"

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            given.append(gradients)
            return tinytorch.zeros(3).scatter(0, ctx.order, gradients[0]), None

    x = tinytorch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    for materialize in (True, False):
        *results, text = Sorted.apply(x, materialize)
        assert [t.requires_grad for t in results] == [True, False, False, False, True]
        assert text == "text"
        (results[0] * tinytorch.arange(3.0)).sum().backward()
    assert x.grad.tolist() == [4.0, 0.0, 2.0]
    (_, *zeros, last), (_, *nothing) = given
    assert [(z.dtype.name, z.tolist()) for z in zeros[:2]] == [
        ("int64", [0, 0, 0]),
        ("bool", [False, False, False]),
    ]
    assert [z.tolist() for z in zeros[2:]] == [[0.0] * 3] * 2 and last is None
    assert nothing == [None] * 5


def test_integers_from_a_function_require_no_gradient() -> None:
    class Nearest(Cube):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float = 1.0) -> Any:
            return x.argmin()

    assert not Nearest.apply(tinytorch.ones(2, requires_grad=True)).requires_grad


def test_mark_dirty_is_refused() -> None:
    class Relu(Cube):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float = 1.0) -> Any:
            ctx.mark_dirty(x)
            return x.clamp_(min=0)

    with pytest.raises(tinytorch.AutogradError, match="cannot write into its arguments"):
        Relu.apply(tinytorch.ones(2, requires_grad=True) * 1)


def test_a_compiled_function_of_several_results() -> None:
    x, y = (tinytorch.rand(3).add_(1).requires_grad_() for _ in range(2))

    def loss(x: Any, y: Any) -> Any:
        product, total = Products.apply(x, y)
        return (product * total).sum()

    plain = grad(loss(x, y), [x, y])
    for _ in range(2):
        compiled = grad(tinytorch.compile(loss)(x, y), [x, y])
    for a, b in zip(plain, compiled, strict=True):
        assert np.allclose(a.tolist(), b.tolist(), rtol=1e-6)


def test_checkpoint_gives_the_same_gradients_and_keeps_less() -> None:
    calls = []

    def block(x: Any, w: Any) -> Any:
        calls.append(1)
        return ((x @ w).tanh() @ w).tanh()

    x = tinytorch.randn(3, 3, dtype="float64", requires_grad=True)
    w = tinytorch.randn(3, 3, dtype="float64", requires_grad=True)
    plain = grad(block(x, w).sum(), [x, w])
    calls.clear()
    again = grad(checkpoint(block, x, w).sum(), [x, w])
    assert len(calls) == 2
    for a, b in zip(plain, again, strict=True):
        assert a.tolist() == b.tolist()


def test_checkpoint_draws_the_same_random_numbers_again() -> None:
    x = tinytorch.ones(1000, requires_grad=True)
    y = checkpoint(lambda x: x * tinytorch.rand(1000), x)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


def test_checkpoint_reaches_parameters_that_are_not_arguments() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    x = tinytorch.ones(2, requires_grad=True)
    checkpoint(lambda x: x * w * 3, x).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("differentiable", [False, True])
def test_hooks_of_what_a_checkpoint_uses_see_the_whole_gradient_once(differentiable: bool) -> None:
    """They were called for the part of the checkpoint, too, and a factor came in twice."""
    found = []
    for run in (checkpoint, lambda f, x: f(x)):
        x, w = (tinytorch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, 4.0]))
        u, seen = w.exp(), []
        u.retain_grad()
        w.register_hook(lambda g, seen=seen: (seen.append(g.tolist()), g * 0.5)[1])
        y = run(lambda a, w=w, u=u: a * w * w + u, x)
        grads = grad((y * y).sum() + w.sum(), [x, w], create_graph=differentiable)
        found.append([*(g.tolist() for g in grads), u.grad.tolist(), seen])
    assert found[0] == found[1]


def test_checkpoint_is_differentiated_twice_and_touches_no_grad() -> None:
    x, w = (tinytorch.randn(3, dtype="float64", requires_grad=True) for _ in range(2))

    def block(a: Any) -> Any:
        return (a * a * w * x).sin()  # x is an argument, and captured

    found = []
    for run in (block, lambda a: checkpoint(block, a), lambda a: checkpoint(checkpoint, block, a)):
        first = grad(run(x * 2).sum() + (x * w).sum(), [x, w], create_graph=True)
        found.append([*first, *grad((first[0] * first[1]).sum(), [x, w])])
    for plain, once, nested in zip(*found, strict=True):
        assert np.allclose(once.tolist(), plain.tolist(), rtol=1e-12)
        assert np.allclose(nested.tolist(), plain.tolist(), rtol=1e-12)
    assert x.grad is None and w.grad is None


def test_checkpoint_without_an_argument_that_requires_a_gradient() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    y = checkpoint(lambda x: x * w, tinytorch.ones(2))
    (y + w).sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="checkpoint: the function must return a Tensor"):
        checkpoint(lambda x: (1, [x]), w)


def test_checkpoint_of_several_results() -> None:
    x, w = (tinytorch.randn(3, dtype="float64", requires_grad=True) for _ in range(2))

    def block(x: Any) -> Any:
        return x * w, (x + w).sin(), x.argmax(), w.detach() * 2, "text"

    found = []
    for run in (block, lambda x: checkpoint(block, x)):
        a, b, *others, text = run(x)
        assert [t.requires_grad for t in others] == [False, False] and text == "text"
        found.append(grad((a * b).sum(), [x, w]) + grad(run(x)[1].sum(), [x, w]))
    for plain, again in zip(*found, strict=True):
        assert plain.tolist() == again.tolist()


def test_checkpoint_of_a_function_that_uses_what_was_computed_before() -> None:
    w, x = (tinytorch.randn(3, dtype="float64", requires_grad=True) for _ in range(2))
    found = []
    for run in (lambda f, *args: f(*args), checkpoint):
        memory = (w * 2).sin()
        part = memory[1:]
        y = x
        for _ in range(2):
            y = run(lambda y: y * memory + w + part.sum(), y)  # noqa: B023
        loss = y.sum() + memory.sum() * part.sum()
        first = grad(loss, [w, x], create_graph=True)
        found.append([*first, *grad((first[0] * first[1]).sum(), [w, x], retain_graph=True)])
        w.grad = x.grad = None
        loss.backward()
        found[-1] += [w.grad, x.grad]
    for plain, again in zip(*found, strict=True):
        assert np.allclose(plain.tolist(), again.tolist(), rtol=1e-12)


def test_gradcheck_finds_a_wrong_first_derivative_and_a_wrong_second() -> None:
    x = tinytorch.randn(3, dtype="float64", requires_grad=True)

    class WrongFirst(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 * x * x, None

    with pytest.raises(tinytorch.AutogradError, match="central differences say"):
        gradcheck(lambda x: WrongFirst.apply(x, 1.0), [x])

    class WrongSecond(Cube):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x.detach() * x, None

    assert gradcheck(lambda x: WrongSecond.apply(x, 1.0), [x])
    with pytest.raises(tinytorch.AutogradError, match=r"\(order 1 to go\)"):
        gradgradcheck(lambda x: WrongSecond.apply(x, 1.0), [x])


def test_gradcheck_of_several_results_and_of_the_only_input() -> None:
    x, y = (tinytorch.rand(3, dtype="float64").add_(1).requires_grad_() for _ in range(2))
    assert gradgradcheck(Products.apply, [x, y]) and gradcheck(lambda x: x.sin(), x)

    class Wrong(Products):
        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return h + g, h

    with pytest.raises(tinytorch.AutogradError, match="central differences say"):
        gradcheck(Wrong.apply, [x, y])
    with pytest.raises(tinytorch.AutogradError, match="do not depend on any input"):
        gradcheck(lambda x: (x.detach(), 1), [x])


def test_gradcheck_wants_float64() -> None:
    with pytest.raises(tinytorch.AutogradError, match="float64 inputs that require a gradient"):
        gradcheck(lambda x: x, [tinytorch.ones(2, requires_grad=True)])
