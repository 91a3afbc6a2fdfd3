"""Steps that are one call: the three gradients of a layer norm, and what the first is added to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.compiler.native.running import draw, run_native
from tinytorch import nn
from tinytorch.graph.compiler import native
from tinytorch.tensor import Tensor

WIDTH, EPS = 24, 1e-3
CALL = "layer_norm_gradients_f32("


def run(function: Callable[..., Any], *inputs: Tensor, threads: int = 1) -> str:
    """The generated code."""
    return str(run_native(function, *inputs, threads=threads).source)


def gradients_of(function: Callable[..., Any], *inputs: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    function(*leaves).backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def norm(x: Tensor, w: Tensor, b: Tensor, eps: float = EPS) -> Tensor:
    return nn.functional.layer_norm(x, (x.shape[-1],), w, b, eps)


def plain(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    return gradients_of(lambda x, w, b: (norm(x * 2.0, w, b) * g).sum(), x, w, b)


def residual(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    """The gradient for x is added to that of the path around the norm."""
    return gradients_of(
        lambda x, w, b: ((norm(x * 2.0, w, b).tanh() + x * 2.0) * g).tanh().sum(), x, w, b
    )


@pytest.mark.parametrize("shape", [(7, WIDTH), (3, 5, WIDTH), (2, 150, WIDTH), (1, WIDTH)])
@pytest.mark.parametrize("function", [plain, residual])
def test_the_gradients_are_one_call(function, shape, rng):
    inputs = draw(rng, *shape), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, *shape)
    assert run(function, *inputs).count(CALL) == 1


@pytest.mark.slow
def test_threads_divide_the_rows_of_the_gradient_for_x(rng):
    shape = (16, 300, WIDTH)
    inputs = draw(rng, *shape), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, *shape) * 0.1
    assert CALL in run(plain, *inputs)
    assert CALL not in run(plain, *inputs, threads=2)


def two_blocks(
    x: Tensor, w: Tensor, b: Tensor, g: Tensor, change: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    def loss(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        start = x * 0.5
        first = start + norm(start, w, b) @ g
        second = first + norm(first, change(b), w) @ g
        return (second * second).sum()

    return gradients_of(loss, x, w, b)


def test_a_gradient_that_is_added_to_in_place_is_written_once(rng):
    inputs = draw(rng, 4, 6, WIDTH), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, WIDTH, WIDTH)
    source = run(lambda *given: two_blocks(*given, lambda b: b), *inputs)
    calls = [line.split(CALL)[1].split(", ") for line in source.splitlines() if CALL in line]
    # behind the other a multiplication is fused with the addition
    assert [call[2] for call in calls] == ["1", "0"]


def test_no_gradient_is_written_where_the_weight_was(rng):
    """A weight that is computed is not needed once the gradient for x is made, if that is done
    before the others."""
    inputs = draw(rng, 4, 6, WIDTH), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, WIDTH, WIDTH)
    source = run(lambda *given: two_blocks(*given, lambda b: b * 3.0), *inputs)
    assert source.count(CALL) == 1


def other_sum(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    """What is summed over its rows is not what comes into the norm."""
    found = gradients_of(lambda x, w: (norm(x * 2.0, w, b) * g).sum(), x, w)
    return [*found, (g * 2.0).sum(dim=tuple(range(g.ndim - 1)))]


def no_bias(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    return gradients_of(lambda x, w: (norm(x * 2.0, w, b) * g).sum(), x, w)


def two_norms_of_one(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    """Two norms with other weights, and the same gradient."""
    return gradients_of(
        lambda x, w, b: ((norm(x * 2.0, w, b) + norm(x * 2.0, w * 3.0, b, 0.5)) * g).sum(), x, w, b
    )


def read_elsewhere(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
    """The gradient for the norm's input is read beside the sum that it is added to."""
    inside = (x * 2.0).requires_grad_()
    w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
    (norm(inside, w, b) * g).sum().backward()
    assert inside.grad is not None and w.grad is not None and b.grad is not None
    dx = inside.grad
    return [g.exp() + dx, dx * 3.0, w.grad, b.grad]


@pytest.mark.parametrize("function", [other_sum, no_bias, two_norms_of_one, read_elsewhere])
def test_what_is_not_the_three_gradients_alone_is_right_too(function, rng):
    shape = (3, 5, WIDTH)
    inputs = draw(rng, *shape), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, *shape)
    source = run(function, *inputs)
    if function in (other_sum, no_bias):
        assert CALL not in source


def test_nothing_is_moved_before_what_it_is_made_of(rng):
    """An update that comes before the gradient for x keeps the gradients where they are."""
    shape = (3, 5, WIDTH)

    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        upper = g * 0.5
        db = upper.sum(dim=(0, 1))
        scaled = x * db
        inside, w = scaled.detach().requires_grad_(), w.detach().requires_grad_()
        norm(inside, w, b).backward(upper)
        assert inside.grad is not None and w.grad is not None
        return [inside.grad, w.grad, db]

    inputs = draw(rng, *shape), draw(rng, WIDTH), draw(rng, WIDTH), draw(rng, *shape)
    assert CALL not in run(step, *inputs)


def test_training_is_that_of_eager_code(rng):
    def losses(compiled: bool) -> list[float]:
        tinytorch.manual_seed(3)
        model = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH),
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5),
        )  # fmt: skip
        optimizer = tinytorch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = tinytorch.compile(step, mode="native", keep_grads=False) if compiled else step
        found = [run(x, y).item() for _ in range(6)]
        if compiled:
            assert run.traces[-1].code.program.source.count(CALL) == 2
        return [*found, *(float(p.sum().item()) for p in model.parameters())]

    x, y = draw(rng, 40, WIDTH), draw(rng, 40, 5)
    with tinytorch.using_backend("optimized"):
        np.testing.assert_allclose(losses(True), losses(False), rtol=2e-4, atol=1e-5)


def test_the_pass_is_the_last():
    """Updates are placed behind the gradients first, or they would part what is one call."""
    assert native.PASSES[-1] == "native-norm-gradients"
