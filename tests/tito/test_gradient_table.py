from __future__ import annotations

import pytest

import tinytorch
from tinytorch import Tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.errors import AutogradError
from tinytorch.op import find_op
from tito.gradient_table import GradientTable


def leaf(*values: float) -> Tensor:
    return tinytorch.tensor(values, dtype=tinytorch.float64, requires_grad=True)


@pytest.fixture
def table() -> GradientTable:
    return GradientTable()


def test_backward_follows_the_line(table: GradientTable) -> None:
    table.gradient("mul", a=lambda g, b: g * b, b=lambda g, a: g * a)
    inputs = [leaf(1.0, 2.0), leaf(3.0, -1.0)]
    assert gradgradcheck(lambda a, b: table.apply("mul", a, b), inputs)


def test_a_wrong_line_gives_a_wrong_gradient_and_only_there(table: GradientTable) -> None:
    before = find_op("mul").vjps
    table.gradient("mul", a=lambda g, a: g * a, b=lambda g, b: g * b)
    inputs = [leaf(1.0, 2.0), leaf(3.0, -1.0)]
    with pytest.raises(AutogradError, match="central differences"):
        gradcheck(lambda a, b: table.apply("mul", a, b), inputs)
    assert gradcheck(lambda a, b: a * b, inputs)
    assert find_op("mul").vjps is before


def test_broadcasting_is_summed_as_in_the_package(table: GradientTable) -> None:
    table.gradient("mul", a=lambda g, b: g * b, b=lambda g, a: g * a)
    a, b = leaf(1.0, 2.0), leaf(3.0).reshape(1).detach().requires_grad_()
    table.apply("mul", a, b).sum().backward()
    assert b.grad is not None and b.grad.tolist() == [3.0]


def test_parameters_reach_the_formulas(table: GradientTable) -> None:
    table.gradient("sum", a=lambda g, a_shape, dims, keepdim: g.reshape(1).expand(a_shape))
    x = leaf(1.0, 2.0)
    table.apply("sum", x, dims=(0,), keepdim=False).backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0]


def test_a_later_line_replaces_an_earlier_one(table: GradientTable) -> None:
    table.gradient("neg", a=lambda g: g)
    table.gradient("neg", a=lambda g: -g)
    x = leaf(1.0)
    table.apply("neg", x).backward()
    assert x.grad is not None and x.grad.tolist() == [-1.0]


def test_what_is_wrong_is_said(table: GradientTable) -> None:
    with pytest.raises(NotImplementedError, match="the gradient line of 'exp' is not written yet"):
        table.apply("exp", leaf(1.0))
    with pytest.raises(KeyError, match="there is no op 'expo'"):
        table.gradient("expo", a=lambda g: g)
    with pytest.raises(TypeError, match="needs a formula for each of"):
        table.gradient("mul", a=lambda g: g)
