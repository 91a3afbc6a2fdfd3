"""A history keeps what the gradients of those inputs read that require one, and no more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tinytorch
from tinytorch.tensor import Tensor

BACKENDS = ["naive", "numpy", "optimized"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "step",
    [
        lambda x: x * 2.0,
        lambda x: 0.5 * x,
        lambda x: x / 3.0,
        lambda x: x * tinytorch.ones(4, 4),
        lambda x: x @ tinytorch.ones(4, 4),
        lambda x: tinytorch.where(tinytorch.ones(4, 4) > 0, x, 0.0),
    ],
)
def test_what_no_gradient_reads_is_let_go_of(
    step: Callable[[Tensor], Tensor], backend: str
) -> None:
    w = tinytorch.ones(4, 4, requires_grad=True)
    with tinytorch.using_backend(backend):
        for _ in range(3):  # by the rules, by what is known of them, by a program
            x = w + 1.0
            alive = weakref.ref(x._data)
            out = step(x)
            x[0, 0] = 5.0  # and it may be written
            del x
            gc.collect()
            assert alive() is None
            w.grad = None
            out.sum().backward()
            assert w.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("step", "slope"),
    [
        (lambda x, y: x * y, lambda x, y: (y, x)),
        (lambda x, y: x / y, lambda x, y: (1 / y, -x / y**2)),
        (lambda x, y: x * y.detach(), lambda x, y: (y, None)),
        (lambda x, y: x.detach() / y, lambda x, y: (None, -x / y**2)),
        (lambda x, y: x - y, lambda x, y: (1, -1)),
    ],
)
def test_what_is_read_is_kept(step: Any, slope: Any, backend: str) -> None:
    x, y = tinytorch.tensor(3.0, requires_grad=True), tinytorch.tensor(2.0, requires_grad=True)
    with tinytorch.using_backend(backend):
        for _ in range(3):
            x.grad = y.grad = None
            step(x, y).backward()
            for t, expected in zip((x, y), slope(3.0, 2.0), strict=True):
                found = None if t.grad is None else t.grad.item()
                assert found == pytest.approx(expected)
