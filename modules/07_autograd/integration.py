"""What the seventh module's parts do inside the package."""

import math

import tinytorch
from tinytorch.autograd import gradcheck, gradgradcheck
from tito.checks import check, close, equal


def leaf(*values: float) -> tinytorch.Tensor:
    return tinytorch.tensor(values, dtype="float64", requires_grad=True)


def test_your_lines_differentiate() -> None:
    """your gradient lines agree with differences, and so do the gradients of the gradients"""
    a, b = leaf(0.5, 1.5, 2.0), leaf(1.0, -0.7, 3.0)
    check(gradgradcheck(lambda a, b: a * b - a / b, [a, b]), "mul, sub and div")
    for name in ("exp", "sqrt", "tanh", "sigmoid"):
        check(gradgradcheck(lambda a, name=name: getattr(a, name)(), [a]), name)


def test_shapes_that_broadcast_and_reduce() -> None:
    """products, sums and maxima of every shape have the gradient that differences find"""
    x = tinytorch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 3.0]], dtype="float64", requires_grad=True)
    w = tinytorch.tensor([[1.0], [2.0], [-1.0]], dtype="float64", requires_grad=True)
    check(gradcheck(lambda x, w: (x @ w) * x, [x, w]), "matmul and broadcasting")
    check(gradcheck(lambda x: x.sum(0) * x.amax(1, keepdim=True), [x]), "sum and amax")


def test_a_graph_that_branches_and_joins() -> None:
    """backward visits your order, once each, however deep"""
    w = leaf(1.0)
    t = w
    for _ in range(30):
        t = t + t
    t.backward()
    equal(w.grad.tolist(), [2.0**30])
    t = w.detach().requires_grad_()
    for _ in range(5_000):
        t = t * 1.0
    t.backward()


def test_updates_leave_no_history() -> None:
    """a step of gradient descent under no_grad finds the minimum and is not recorded"""
    w = tinytorch.tensor(5.0, requires_grad=True)
    for _ in range(60):
        w.grad = None
        ((w - 2.0) * (w - 2.0)).backward()
        with tinytorch.no_grad():
            w = (w - w.grad * 0.2).requires_grad_()
    close(w.item(), 2.0, atol=1e-3)
    equal(w.history, None)
    check(math.isfinite(w.item()), "the weight is a number")
