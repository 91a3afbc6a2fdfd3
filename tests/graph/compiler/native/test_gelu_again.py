"""gelu is computed again beside its gradient, and not kept from the forward to the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.graph.compiler import native
from tinytorch.tensor import Tensor

F = nn.functional
AGAIN = "gelu_by_density"


def draw(rng: np.random.Generator, *shape: int) -> Tensor:
    return tinytorch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def run(function: Callable[..., Any], *inputs: Tensor, threads: int = 1) -> Any:
    """The program, after its results were compared with those of eager code."""
    count = tinytorch.get_num_threads()
    with tinytorch.using_backend("optimized"):
        try:
            tinytorch.set_num_threads(threads)
            compiled = tinytorch.compile(function, mode="native")
            for _ in range(2):  # the second time memory holds what the first left
                expected = [np.array(x.numpy()) for x in function(*inputs)]
                found = compiled(*inputs)
                for ours, theirs in zip(found, expected, strict=True):
                    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-4)
        finally:
            tinytorch.set_num_threads(count)
    (trace,) = compiled.traces
    return trace.code.program


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
    program = run(feed_forward(approximate), *of_feed_forward(rng), threads=threads)
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
    now = run(three_layers, *inputs)._code.schedule.arena_bytes
    monkeypatch.setattr(native, "PASSES", [p for p in native.PASSES if p != "native-gelu-again"])
    before = run(three_layers, *inputs)._code.schedule.arena_bytes
    assert now <= before - 3 * 32 * 48 * 4, "at least one layer's gelu"


def test_a_gelu_that_is_a_result_is_kept(rng):
    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        made = F.gelu(x * 2.0)
        F.linear(made, w).tanh().sum().backward()
        assert x.grad is not None and w.grad is not None
        return [made.detach(), x.grad, w.grad]

    source = run(function, draw(rng, 2, 16, 8), draw(rng, 4, 8)).source
    assert AGAIN not in source
