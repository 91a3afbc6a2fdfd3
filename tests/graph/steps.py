"""A training step, as most programs write it."""

from __future__ import annotations

from collections.abc import Callable

from tinytorch.nn import Module, functional as F
from tinytorch.optim import Optimizer
from tinytorch.tensor import Tensor


def training_step(model: Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of a batch and its labels: forward, cross entropy, backward and update."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step
