"""Functions made of several elementwise ops, where their formulas have branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_gradients_where_a_formula_has_a_branch(backend: str) -> None:
    """asinh had none at 0, and xlogy none where a is 0: both are made of a `where`."""
    with tinytorch.using_backend(backend):
        for name, values in {
            "asinh": [[0.0, -0.0, 1e-8, -1e-8, 3.0, -3.0, 1e9]],
            "xlogy": [[0.0, 0.0, 2.0], [2.0, 0.5, 3.0]],
        }.items():
            ours = [tinytorch.tensor(v, requires_grad=True) for v in values]
            theirs = [torch.tensor(v, requires_grad=True) for v in values]
            for library, given in ((tinytorch, ours), (torch, theirs)):
                getattr(library, name)(*given).sum().backward()
            for a, b in zip(ours, theirs, strict=True):
                assert a.grad is not None and b.grad is not None
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6)
        minus = tinytorch.tensor([-1e6, -3.0, 0.5])
        assert tinytorch.isnan(tinytorch.acosh(minus)).all()  # the first was -inf


SCALED: dict[str, Callable[[Any, float], Any]] = {
    "addcmul": lambda t, v: t.addcmul(t.ones(2), t.ones(2), t.ones(2), value=v),
    "addcdiv": lambda t, v: t.addcdiv(t.ones(2), t.ones(2), t.ones(2), value=v),
    "addcmul_": lambda t, v: t.ones(2).addcmul_(t.ones(2), t.ones(2), value=v),
    "addcdiv_": lambda t, v: t.ones(2).addcdiv_(t.ones(2), t.ones(2), value=v),
    "add": lambda t, v: t.add(t.ones(2), t.ones(2), alpha=v),
    "add_": lambda t, v: t.ones(2).add_(t.ones(2), alpha=v),
    "sub": lambda t, v: t.sub(t.ones(2), t.ones(2), alpha=v),
    "lerp": lambda t, v: t.lerp(t.ones(2), t.zeros(2), v),
    "addmm": lambda t, v: t.addmm(t.ones(2, 2), t.ones(2, 2), t.ones(2, 2), alpha=v),
    "addmm beta": lambda t, v: t.addmm(t.ones(2, 2), t.ones(2, 2), t.ones(2, 2), beta=v),
    "baddbmm": lambda t, v: t.baddbmm(*[t.ones(1, 2, 2)] * 3, beta=v),
    "addbmm": lambda t, v: t.addbmm(t.ones(2, 2), *[t.ones(1, 2, 2)] * 2, alpha=v),
    "addmv": lambda t, v: t.addmv(t.ones(2), t.ones(2, 2), t.ones(2), beta=v),
    "addr": lambda t, v: t.addr(t.ones(2, 2), t.ones(2), t.ones(2), alpha=v),
    "index_add": lambda t, v: t.ones(2).index_add(0, t.tensor([0]), t.ones(1), alpha=v),
}


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("name", SCALED)
def test_a_factor_that_float32_has_not(name: str, backend: str) -> None:
    function = SCALED[name]
    with tinytorch.using_backend(backend):
        for factor in (1e39, -1e39, 10**39):
            with pytest.raises((RuntimeError, TypeError, OverflowError)):
                function(torch, factor)
            with pytest.raises(tinytorch.DTypeError, match="the numbers of float32"):
                function(tinytorch, factor)
        for factor in (float("inf"), float("nan"), 1e38, 2, 0.5):
            found, expected = function(tinytorch, factor), function(torch, factor)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erfinv(dtype: str, backend: str) -> None:
    powers = 10.0 ** -np.arange(1, 16)
    y = np.concatenate([np.linspace(-1, 1, 101), 1 - powers, powers - 1, powers]).astype(dtype)
    ours, theirs = tinytorch.tensor(y), torch.tensor(y.astype(np.float64))
    for x in (ours, theirs):
        x.requires_grad_()
    with tinytorch.using_backend(backend):
        found, expected = tinytorch.erfinv(ours), torch.erfinv(theirs)
        (g,) = tinytorch.autograd.grad(found.sum(), ours, create_graph=True)
        (wanted,) = torch.autograd.grad(expected.sum(), theirs, create_graph=True)
        inside = np.abs(y) < 1
        (second,) = tinytorch.autograd.grad(g[tinytorch.tensor(inside)].sum(), ours)
    (wanted_second,) = torch.autograd.grad(wanted[torch.tensor(inside)].sum(), theirs)
    few = 4 * float(np.finfo(dtype).eps)
    pairs = (found, expected, few), (g, wanted, 64 * few)
    for a, b, rtol in pairs:
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol)
    np.testing.assert_allclose(
        second.numpy()[inside], wanted_second.numpy()[inside], rtol=1e3 * few, atol=few
    )
    assert tinytorch.isnan(tinytorch.erfinv(tinytorch.tensor([1.5, -2.0, np.nan]))).all()


def _derivatives(library: Any, function: str, array: Any) -> list[Any]:
    """The value, and the first two derivatives."""
    x = library.tensor(array.tolist(), dtype=getattr(library, array.dtype.name))
    x.requires_grad_()
    y = getattr(library, function)(x)
    (first,) = library.autograd.grad(y.sum(), [x], create_graph=True)
    (second,) = library.autograd.grad(first.sum(), [x])
    return [t.detach().numpy() for t in (y, first, second)]


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", ["sinh", "cosh", "erfc"])
def test_where_a_part_of_the_formula_is_beyond_the_dtype(function, dtype, backend) -> None:
    """exp(89) is no float32, sinh(89) is; and 1 - erf(10) was 0."""
    ends = [0.5, 1.0, 2.0, 4.0, 6.0, 8.9] if function == "erfc" else [0.0, 0.1, 1.0]
    ends += [26.0] if dtype == "float64" else []
    ends += {"float32": [88.6, 88.9, 89.3, 90.0], "float64": [709.5, 710.3, 711.0]}[dtype]
    x = np.array([*ends, *(-v for v in ends)], dtype)
    with tinytorch.using_backend(backend):
        found = _derivatives(tinytorch, function, x)
        special = getattr(tinytorch, function)(tinytorch.tensor([np.inf, -np.inf, np.nan]))
    expected = _derivatives(torch, function, x.astype("float64"))
    if dtype == "float64":
        expected = _derivatives(torch, function, x)
    with np.errstate(over="ignore"):
        for order, (a, b) in enumerate(zip(found, expected, strict=True)):
            rtol = 40**order * 8 * np.finfo(dtype).eps
            np.testing.assert_allclose(a, b.astype(dtype), rtol, np.finfo(dtype).tiny)
    wanted = getattr(torch, function)(torch.tensor([np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(special.numpy(), wanted.numpy())
