"""What the programs share: a small model, its data, and ways to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.distributed import (
    gather_objects,
    get_rank,
)
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

BATCH = 6  # of one rank


def raises(error: type[Exception], part: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except error as raised:
        assert part in str(raised), f"{part!r} is not in {raised}"
    else:
        raise AssertionError(f"no {error.__name__}")


def mlp(seed: int = 3) -> nn.Module:
    tinytorch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )


def batches(steps: int, ranks: int) -> list[tuple[Tensor, Tensor]]:
    rng = np.random.default_rng(5)
    shape = (steps, ranks * BATCH)
    x, y = rng.standard_normal((*shape, 5), np.float32), rng.integers(0, 3, shape)
    return [(tinytorch.tensor(a), tinytorch.tensor(b)) for a, b in zip(x, y, strict=True)]


def own(t: Tensor) -> Tensor:
    return t[get_rank() * BATCH : (get_rank() + 1) * BATCH]


def train(model: nn.Module, optimizer: optim.Optimizer, data: list[Any], part: Any) -> None:
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(part(x)), part(y)).backward()
        optimizer.step()


def weights(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def assert_near(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def assert_same_on_all_ranks(array: np.ndarray) -> None:
    for theirs in gather_objects(array.tobytes()):
        assert theirs == array.tobytes()


class Fails(tinytorch.autograd.Function):
    """The identity, whose backward raises an ArithmeticError."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ArithmeticError("on purpose")
