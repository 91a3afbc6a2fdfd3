"""gelu is computed again beside its gradient, and not kept from the forward to the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph.compiler.native.running import draw, run_native
from tinytorch import nn
from tinytorch.graph.compiler import native
from tinytorch.tensor import Tensor

F = nn.functional
AGAIN = "gelu_by_density"


def feed_forward(approximate: str) -> Callable[..., Any]:
    def gradients(x: Tensor, w: Tensor, b: Tensor, w2: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in (x, w, b, w2)]
        x, w, b, w2 = leaves
        loss = F.linear(F.gelu(F.linear(x, w, b), approximate=approximate), w2).tanh().sum()
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    return gradients


def of_feed_forward(rng: np.random.Generator, batch: int = 3) -> list[Tensor]:
    return [draw(rng, batch, 32, 16), draw(rng, 48, 16) * 0.3, draw(rng, 48), draw(rng, 16, 48)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_computed_again_beside_its_gradient(approximate, threads, rng):
    program = run_native(feed_forward(approximate), *of_feed_forward(rng), threads=threads)
    body = program.source[program.source.index("def step(") :]
    called = [line.split("(")[0].strip() for line in body.splitlines()]
    loops = [name for name in called if name.startswith("loop_") and "gelu" in name]
    assert [name.count("gelu") for name in loops] in ([1, 2], [1, 1, 2, 2], [1, 1, 2])
    assert ["backward" in name for name in loops] == [name.count("gelu") == 2 for name in loops]


def three_layers(x: Tensor, w: Tensor, b: Tensor, w2: Tensor) -> list[Tensor]:
    leaves = [t.detach().requires_grad_() for t in (x, w, b, w2)]
    x, w, b, w2 = leaves
    for _ in range(3):
        x = x + F.linear(F.gelu(F.linear(x, w, b)), w2 * 0.1)
    x.tanh().sum().backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def test_less_is_kept_from_the_forward_to_the_backward(rng, monkeypatch):
    inputs = of_feed_forward(rng)
    now = run_native(three_layers, *inputs)._code.schedule.arena_bytes
    monkeypatch.setattr(native, "PASSES", [p for p in native.PASSES if p != "native-gelu-again"])
    before = run_native(three_layers, *inputs)._code.schedule.arena_bytes
    assert now <= before - 3 * 32 * 48 * 4, "at least one layer's gelu"


def test_a_gelu_that_is_a_result_is_kept(rng):
    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        made = F.gelu(x * 2.0)
        F.linear(made, w).tanh().sum().backward()
        assert x.grad is not None and w.grad is not None
        return [made.detach(), x.grad, w.grad]

    source = run_native(function, draw(rng, 2, 16, 8), draw(rng, 4, 8)).source
    assert AGAIN not in source
