"""Derivatives of functions: the same call in both libraries gives the same."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import func
from tinytorch.autograd import functional
from tinytorch.errors import AutogradError


def _flat(value):
    if isinstance(value, tuple):
        return [leaf for v in value for leaf in _flat(v)]
    return [value]


@pytest.mark.parametrize(
    "use",
    [
        lambda f, x, w: f.jacobian(lambda a: a * a.sum(), x),
        lambda f, x, w: f.jacobian(lambda a, b: a @ b, (x, w)),
        lambda f, x, w: f.hessian(lambda a: (a**3).sum() * a[0, 0], x),
        lambda f, x, w: f.hessian(lambda a, b: (a @ b).pow(2).sum(), (x, w)),
        lambda f, x, w: f.vjp(lambda a: a @ w, x, x @ w),
        lambda f, x, w: f.vjp(lambda a: a.sum(), x),
        lambda f, x, w: f.hvp(lambda a: (a**3).sum(), x, x * 2),
        lambda f, x, w: f.vhp(lambda a, b: (a @ b).pow(2).sum(), (x, w), (x, w)),
        lambda f, x, w: f.vhp(lambda a, b: (a * 3).sum(), (x, w), (x, w)),
        lambda f, x, w: f.jacobian(lambda a: (a * 0 + 1.0).detach(), x),
        lambda f, x, w: f.jacobian(lambda a: (a * a, a.sum()), x),
        lambda f, x, w: f.jvp(lambda a: a @ w, x, x * 2),
    ],
)
def test_gives_what_pytorch_gives(use, rng):
    x, w = rng.standard_normal((2, 3)), rng.standard_normal((3, 2))
    ours = _flat(use(functional, tinytorch.tensor(x), tinytorch.tensor(w)))
    theirs = _flat(use(torch.autograd.functional, torch.tensor(x), torch.tensor(w)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9)
        assert not a.requires_grad


def test_create_graph_and_errors():
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    tinytorch.autograd.functional.jacobian(lambda a: a**2, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(AutogradError, match="not one element"):
        functional.hessian(lambda a: a, x)
    with pytest.raises(AutogradError, match="not one element"):
        functional.hvp(lambda a: a, x, x)
    with pytest.raises(AutogradError, match="returns float, not a tensor"):
        functional.jacobian(lambda a: 1.0, x)
    with pytest.raises(AutogradError, match="does not depend on input 1"):
        functional.jacobian(lambda a, b: a * 2, (x, x), strict=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda f, x, y: f.grad(lambda a: (a**3).sum())(x),
        lambda f, x, y: f.grad(lambda a: f.grad(lambda b: (b**3).sum())(a).sum())(x),
        lambda f, x, y: f.grad(lambda a, b: (a * b).sum(), argnums=1)(x, y),
        lambda f, x, y: f.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, y),
        lambda f, x, y: f.grad(lambda a: ((a * a).sum(), a * 2), has_aux=True)(x),
        lambda f, x, y: f.grad_and_value(lambda a: a.exp().sum())(x),
    ],
)
def test_functions_become_their_gradients(use, rng):
    x, y = rng.standard_normal(4), rng.standard_normal(4)
    mine = tinytorch.tensor(x, requires_grad=True)
    ours = _flat(use(func, mine.detach(), tinytorch.tensor(y)))
    theirs = _flat(use(torch.func, torch.tensor(x), torch.tensor(y)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
    use(func, mine, tinytorch.tensor(y))
    assert mine.grad is None


def test_a_gradient_is_that_of_one_element():
    with pytest.raises(AutogradError, match=r"shape \(2,\), not one element"):
        func.grad(lambda a: a * 2)(tinytorch.tensor([1.0, 2.0]))


def test_only_what_was_computed_from_other_tensors_requires_a_gradient():
    from tinytorch.func import grad, grad_and_value

    x, w = tinytorch.tensor(2.0), tinytorch.tensor(3.0, requires_grad=True)

    def plain(x):
        return x * x, {"x": x, "twice": (x * 2, "text")}

    g, (y, aux) = grad_and_value(plain, has_aux=True)(x)
    assert not any(t.requires_grad for t in (g, y, aux["x"], aux["twice"][0]))
    assert (g.item(), y.item(), aux["twice"][1]) == (4.0, 4.0, "text")
    g, y = grad_and_value(lambda x: x * x * w)(x)
    (g + y).backward()
    assert w.grad.item() == 8.0 and x.grad is None
    g, (y, z) = grad_and_value(lambda x: (x * w, x * x), has_aux=True)(x)
    assert g.requires_grad and y.requires_grad and not z.requires_grad
    assert grad(lambda x: grad_and_value(lambda x: x**3)(x)[1])(x).item() == 12.0


def test_func_needs_no_import_of_its_own():
    """As `torch.func`; in a fresh process, since this file has imported it."""
    code = "import tinytorch; tinytorch.func.grad(lambda x: (x * x).sum())(tinytorch.ones(2))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_gradient_for_the_parameters_of_a_module(rng):
    weight, bias, x = (rng.standard_normal(s).astype("f") for s in ((2, 3), (2,), (4, 3)))
    found = []
    for library in (torch, tinytorch):
        model = library.nn.Linear(3, 2)
        values = {"weight": library.tensor(weight), "bias": library.tensor(bias)}

        def loss(parameters, x, library=library, model=model):
            return library.func.functional_call(model, parameters, (x,)).square().sum()

        gradients = library.func.grad(loss)(values, library.tensor(x))
        assert list(gradients) == ["weight", "bias"]
        assert isinstance(model.weight, library.nn.Parameter) and model.weight.grad is None
        found.append([g.numpy() for g in gradients.values()])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    with pytest.raises(KeyError, match="wieght"):
        func.functional_call(model, {"wieght": x}, tinytorch.tensor(x))
    with pytest.raises(KeyError, match="bias"):
        func.functional_call(model, {"weight": model.weight}, tinytorch.tensor(x), strict=True)


class TwoNames:
    """A model of each library whose layers share their weight."""

    def __init__(self, library):
        nn = library.nn

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(self.a(x))

        self.model, self.library = Tied(), library

    def call(self, names, **options):
        tensors = [self.library.eye(2) * (i + 2) for i in range(2)]
        given = dict(zip(names, tensors, strict=False))
        x = self.library.ones(1, 2)
        y = self.library.func.functional_call(self.model, given, (x,), **options)
        assert self.model.a.weight is self.model.b.weight
        return y.tolist()


@pytest.mark.parametrize("name", ["a.weight", "b.weight"])
def test_what_is_given_for_a_tensor_of_two_names_is_in_both_places(name):
    ours, theirs = TwoNames(tinytorch), TwoNames(torch)
    assert ours.call([name]) == theirs.call([name]) == [[4.0, 4.0]]
    assert ours.call([name], strict=True) == [[4.0, 4.0]]
    options = {"tie_weights": False}
    both = ["a.weight", "b.weight"]
    assert ours.call(both, **options) == theirs.call(both, **options) == [[6.0, 6.0]]
    for each in (ours, theirs):
        with pytest.raises(ValueError, match=r"a\.weight|b\.weight"):
            each.call(both)


def test_a_tensor_is_given_once():
    w = tinytorch.ones(1, 2)
    with pytest.raises(ValueError, match=r"\['weight'\] are in several dictionaries"):
        func.functional_call(tinytorch.nn.Linear(2, 1), ({"weight": w}, {"weight": w}), (w,))


@pytest.mark.parametrize("loss", [lambda x: x.detach().sum(), lambda x: (x * 0 + 1).detach()[0]])
def test_a_constant_has_a_gradient_of_zero(loss):
    for library in (tinytorch, torch):
        assert library.func.grad(loss)(library.ones(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda f, x: f.grad(lambda a: 2.0)(x), AutogradError, "type float, not one element"),
        (lambda f, x: f.grad(lambda a: a.sum(), 1)(x), ValueError, "argnums is 1, of 1 arguments"),
        (lambda f, x: f.grad(lambda a: a.sum(), ())(x), ValueError, r"argnums is \(\), of 1"),
        (lambda f, x: f.grad(lambda a: a.sum(), has_aux=True)(x), TypeError, "returns a pair"),
    ],
)
def test_what_is_no_gradient_is_named(action, error, message):
    with pytest.raises(error, match=message):
        action(func, tinytorch.ones(2))
