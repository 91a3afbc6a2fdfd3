"""Listeners of a backward: when they are told of a gradient, and what they may change."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import nn
from tinytorch.autograd.engine import _topological_order
from tinytorch.autograd.listeners import leaves_when_ready, listeners
from tinytorch.history import Record
from tinytorch.tensor import Tensor


class _Listener:
    def __init__(self, factor: float = 1.0) -> None:
        self.order: list[Tensor] = []
        self.factor = factor

    def ready(self, leaf: Tensor, gradient: Tensor) -> None:
        self.order.append(leaf)

    def end(self, gradients: dict[Any, Tensor]) -> None:
        for leaf in gradients:
            gradients[leaf] = gradients[leaf] * self.factor

    def __enter__(self) -> _Listener:
        listeners.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        listeners.remove(self)


def test_the_last_layer_is_known_first() -> None:
    layers = [nn.Linear(4, 4) for _ in range(4)]
    x = tinytorch.ones(2, 4)
    for layer in layers:
        x = layer(x).tanh()
    with _Listener() as listener:
        x.sum().backward()
    expected = [id(p) for layer in reversed(layers) for p in (layer.bias, layer.weight)]
    assert [id(p) for p in listener.order] == expected


def test_the_end_may_exchange_gradients_and_grad_tells_nobody() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    with _Listener(10.0) as listener:
        tinytorch.autograd.grad((x * x).sum(), [x])
        assert not listener.order
        (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 40.0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25))
def test_the_order_is_topological_and_gradients_are_the_same(pairs: list[tuple[int, int]]) -> None:
    def run() -> tuple[list[Tensor], Tensor]:
        leaves = [tinytorch.tensor([float(i + 1)], requires_grad=True) for i in range(3)]
        values = list(leaves)
        for i, j in pairs:
            values.append(values[i % len(values)] * 0.5 + values[j % len(values)])
        return leaves, values[-1]

    leaves, last = run()
    found = leaves_when_ready(_topological_order([last.history]))
    position = {source: i for i, source in enumerate(found)}
    assert len(position) == len(found)
    for source in found:
        for edge in source.edges if type(source) is Record else ():
            assert edge is None or position[edge] < position[source]
    with _Listener():
        last.sum().backward()
    others, alone = run()
    alone.sum().backward()
    for a, b in zip(leaves, others, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None and b.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5)
