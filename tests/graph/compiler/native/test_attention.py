"""Attention in machine code gives what the backend's kernel gives.

Both are compiled from the same functions, but each for itself: LLVM may add up the weights of a row
in another order, which moves the last bit of some rows.
"""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import Tensor


@pytest.fixture(autouse=True)
def _optimized():
    with tinytorch.using_backend("optimized"):
        yield


def check(function, *arrays):
    results = []
    compiled = tinytorch.compile(function)
    for run in (function, compiled):
        tinytorch.manual_seed(0)
        leaves = [Tensor(x.copy()).requires_grad_(x.dtype.kind == "f") for x in arrays]
        out = run(*leaves)
        (out * out).sum().backward()
        results.append([out.detach().numpy(), *(x.grad.numpy() for x in leaves if x.requires_grad)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6 * np.abs(b).max())
    text = str(compiled.explain())
    assert (
        "scaled_dot_product_attention_f" in text
        and "scaled_dot_product_attention_backward_f" in text
    )


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("lead", [(), (3,), (2, 1, 3)])
def test_any_number_of_dimensions(rng, lead):
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        normal(rng, *lead, 7, 4), normal(rng, *lead, 9, 4), normal(rng, *lead, 9, 5),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((1, 1), "bool"), ((7, 1), "float"), ((3, 1, 9), "bool"), ((2, 1, 7, 9), "float")],
)
def test_masks(rng, shape, kind):
    keep = rng.random(shape) < 0.7
    mask = Tensor(keep if kind == "bool" else np.where(keep, 0.5, -np.inf).astype(np.float32))
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        normal(rng, 2, 3, 7, 4), normal(rng, 2, 3, 9, 4), normal(rng, 2, 3, 9, 5),
    )  # fmt: skip


@pytest.mark.parametrize("mask", [None, np.tri(70, 80, dtype=bool)])
def test_dropout_and_shared_heads(rng, mask):
    given = None if mask is None else Tensor(mask)
    check(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, given, dropout_p=0.3, enable_gqa=True
        ),
        normal(rng, 2, 6, 70, 8), normal(rng, 2, 2, 80, 8), normal(rng, 2, 2, 80, 8),
    )  # fmt: skip


def test_a_step_with_dropout_without_a_mask_is_machine_code(rng):
    """What has the place of the mask is no tensor."""
    x, w = Tensor(normal(rng, 2, 7, 12)), Tensor(normal(rng, 12, 36)).requires_grad_()
    u = Tensor(normal(rng, 12, 6)).requires_grad_()

    @tinytorch.compile(mode="native")
    def step(x):
        q, k, v = (t.reshape(2, 7, 3, 4).transpose(1, 2) for t in (x @ w).split(12, -1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.3)
        loss = ((heads.transpose(1, 2).reshape(2, 7, 12) @ u) ** 2).sum()
        loss.backward()
        return loss

    results = []
    for run in (step, step.function):
        tinytorch.manual_seed(0)
        w.grad = u.grad = None
        results.append([run(x).detach().numpy(), w.grad.numpy(), u.grad.numpy()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6 * np.abs(b).max())


def test_heads_that_are_parts_of_one_product(rng):
    def attend(x, w):
        parts = (x @ w).split(12, -1)
        q, k, v = (t.reshape(2, 9, 3, 4).transpose(1, 2) for t in parts)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    check(attend, normal(rng, 2, 9, 5), normal(rng, 5, 36))
