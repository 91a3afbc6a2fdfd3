"""The gradient of running products, made without a division: zeros and tiny products are right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.autograd import grad, gradgradcheck
from tinytorch.backends import reference, reference_reductions
from tinytorch.backends.optimized.rows import scans
from tinytorch.jit import threads

SHAPES = [
    *[((7,), 0), ((6, 5), 0), ((6, 5), 1), ((2, 4, 3), 1)],
    *[((300, 4), 0), ((3, 200), 1), ((9, 1), 1)],
]


@pytest.mark.parametrize("backend", ["optimized", "numpy", "naive"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_gradients_are_those_of_pytorch(backend, shape, dim, rng):
    x, g = rng.standard_normal(shape), rng.standard_normal(shape)
    x[rng.random(shape) < 0.15] = 0.0
    theirs = torch.tensor(x, requires_grad=True)
    (wanted,) = torch.autograd.grad(theirs.cumprod(dim), theirs, torch.tensor(g))
    with tinytorch.using_backend(backend):
        ours = tinytorch.tensor(x, requires_grad=True)
        (found,) = grad(ours.cumprod(dim), [ours], tinytorch.tensor(g))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-9, 1e-12)


@pytest.mark.parametrize("dim", [0, 1])
def test_products_that_round_to_0_on_the_way(dim, rng):
    # PyTorch divides, and says 0 for the first and NaN or infinity where a factor is tiny
    x = np.array([[1e-30, 1e-30, 1e30, 2.0]], np.float32)
    x = x if dim else x.T.copy()
    ours = tinytorch.tensor(x, requires_grad=True)
    with tinytorch.using_backend("optimized"):
        (found,) = grad(ours.cumprod(dim)[(slice(None),) * dim + (slice(1, 2),)].sum(), [ours])
    np.testing.assert_allclose(found.numpy().ravel(), [1e-30, 1e-30, 0.0, 0.0], 1e-6)


def test_a_long_row_in_steps_of_all(monkeypatch, rng):
    g, x = (rng.standard_normal((2, 37)) for _ in range(2))
    wanted = reference.cumprod_backward(g, x, dim=1)
    monkeypatch.setattr(reference_reductions, "MOST_STEPS", 8)
    np.testing.assert_allclose(reference.cumprod_backward(g, x, dim=1), wanted, 1e-9, 1e-15)


def test_second_order_and_layouts(rng):
    x = tinytorch.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    for backend in ("optimized", "numpy"):
        with tinytorch.using_backend(backend):
            assert gradgradcheck(lambda t: t.mT.cumprod(1), [x])
            assert gradgradcheck(lambda t: t[::2, :].cumprod(1), [x])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single(shape):
    x = tinytorch.ones(*shape, requires_grad=True)
    for backend in ("optimized", "numpy", "naive"):
        with tinytorch.using_backend(backend):
            (found,) = grad(x.cumprod(1).sum(), [x])
        np.testing.assert_array_equal(found.numpy(), np.ones(shape))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_threads_share_rows(dim, monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    g, x = (rng.standard_normal((5, 4, 6)) for _ in range(2))
    wanted = reference.cumprod_backward(g, x, dim=dim)
    np.testing.assert_allclose(scans.cumprod_backward(g, x, dim=dim), wanted, 1e-12)


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_and_without_a_zero_at_one_call_after_the_other(dim, dtype, rng):
    # without one the gradient divides, by a program; with one it does not, by another
    for i in range(120):
        x = rng.standard_normal((5, 3)).astype(dtype)
        x[2, 1] = (1.0, 0.0, np.finfo(dtype).tiny)[i % 3]
        args = () if dim is None else (dim,)
        theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        weights = torch.arange(1.0, 1 + theirs.prod(*args).numel(), dtype=torch.float64)
        product = theirs.prod(*args)
        (wanted,) = torch.autograd.grad(product, theirs, weights.reshape(product.shape))
        with tinytorch.using_backend("optimized"):
            ours = tinytorch.tensor(x, requires_grad=True)
            out = ours.prod(*args)
            g = tinytorch.tensor(weights.numpy().astype(dtype)).reshape(out.shape)
            (found,) = grad(out, [ours], g)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-5, 1e-30)


def test_infinity_and_nan_go_where_they_belong():
    for backend in ("optimized", "numpy"):
        x = tinytorch.tensor([2.0, np.inf, 3.0], requires_grad=True)
        y = tinytorch.tensor([2.0, np.nan, 3.0], requires_grad=True)
        with tinytorch.using_backend(backend):
            (found,) = grad(x.cumprod(0)[:2].sum(), [x])
            (undefined,) = grad(y.cumprod(0).sum(), [y])
        assert found.tolist()[:2] == [np.inf, 2.0]  # 1 + x[1], and x[0]
        assert np.isnan(undefined.numpy()).tolist() == [True, False, True]
