"""Copies and other functions that go through a large tensor in the order of its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.functions.copies import LARGE, copied, order_of
from tinytorch.replay.function import HOT

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "flip last": lambda x: x.flip(-1),
    "flip all": lambda x: x.flip(0, 1),
    "flip none": lambda x: x.flip(()),
    "tril": lambda x: x.tril(3),
    "triu": lambda x: x.triu(-2),
    "diagonal": lambda x: x.diagonal(7),
    "diagonal below": lambda x: x.diagonal(-130),
    "diag": lambda x: x.diag(1),
    "trace": lambda x: x.trace(),
    "prod": lambda x: x.prod(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "nan_to_num": lambda x: x.nan_to_num(),
    "index_select": lambda x: x.index_select(0, x.new_zeros(3).long() + 5),
    "index_select last": lambda x: x.index_select(1, x.new_zeros(3).long() + 5),
    "max": lambda x: x.max(0)[0],
    "max last": lambda x: x.max(1)[0],
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "every second": lambda a: a.T[::2],
}


@pytest.fixture(params=["numpy", "optimized"], autouse=True)
def _backend(request: pytest.FixtureRequest) -> Any:
    with tinytorch.using_backend(request.param):
        yield


def _values(dtype: str, rng: np.random.Generator) -> Any:
    if dtype == "int64":
        return rng.integers(-(2**63), 2**63 - 1, (160, 128), endpoint=True)
    a = rng.standard_normal((160, 128)).astype(dtype)
    a.reshape(-1)[::97] = -0.0
    return a


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_layout_gives_pytorchs_elements(
    name: str, dtype: str, layout: str, rng: np.random.Generator
) -> None:
    function, a = FUNCTIONS[name], LAYOUTS[layout](_values(dtype, rng))
    if dtype != "int64" and name not in ("prod", "trace"):
        a.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    ours, theirs = tinytorch.from_numpy(a), torch.from_numpy(a)
    expected = function(theirs).numpy()
    for _ in range(3):
        found = function(ours).numpy()
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if name in ("prod", "trace") and dtype != "int64":
            np.testing.assert_allclose(found, expected, rtol=1e-4)
        else:
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_in_each_layout(name: str, layout: str, rng: np.random.Generator) -> None:
    function, a = FUNCTIONS[name], LAYOUTS[layout](_values("float64", rng))
    x = tinytorch.from_numpy(a).requires_grad_()
    y = torch.from_numpy(a).requires_grad_()
    weight = rng.standard_normal(tuple(function(y).shape))
    (function(y) * torch.from_numpy(np.asarray(weight))).sum().backward()
    for _ in range(2):
        x.grad = None
        (function(x) * tinytorch.tensor(weight)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-300)


def test_programs_serve_all_layouts(rng: np.random.Generator) -> None:
    a = rng.standard_normal((160, 160))
    for name in ("flip", "tril", "triu", "diagonal", "diag"):
        function = FUNCTIONS[name]
        for _ in range(HOT + 2):
            function(tinytorch.from_numpy(a))
        for b in (a.T, a, a[::-1, ::-1], np.ascontiguousarray(a.T).T):
            x = tinytorch.tensor(np.zeros(1))
            x = (
                tinytorch.from_numpy(np.ascontiguousarray(b))
                if min(b.strides) < 0
                else (tinytorch.from_numpy(b))
            )
            np.testing.assert_array_equal(
                function(x).numpy(), function(torch.from_numpy(b.copy())).numpy()
            )


def test_a_copy_is_stored_as_its_source_if_that_is_large() -> None:
    n = int((LARGE / 8) ** 0.5)
    small, large = tinytorch.zeros(8, 6).t(), tinytorch.zeros(n, 2 * n).double().t()
    assert order_of(small) is None and order_of(large) == (1, 0)
    assert order_of(large.contiguous()) is None and order_of(large[:, ::2]) is None
    assert copied(large)._data.T.flags.c_contiguous
    assert copied(large)._data.base is not large._data.base
    assert large.contiguous().is_contiguous() and copied(small).is_contiguous()


def test_a_copy_has_memory_of_its_own() -> None:
    x = tinytorch.zeros(200, 128).t()
    copy = x.clone()
    copy[0, 0] = 1.0
    assert x[0, 0].item() == 0.0 and copy[0, 0].item() == 1.0


def test_a_diagonal_of_each_layout_is_a_view() -> None:
    for x in (tinytorch.zeros(130, 128), tinytorch.zeros(128, 130).t()):
        for _ in range(HOT + 2):
            x.diagonal(2)
        x.diagonal(2)[0] = 1.0
        assert x[0, 2].item() == 1.0
