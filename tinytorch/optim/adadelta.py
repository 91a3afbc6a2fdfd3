"""Adadelta: steps in the units of the parameter, without a learning rate to choose."""

from __future__ import annotations

from typing import Any

from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    learning_rate,
    penalized,
    scalar_of,
)
from tinytorch.tensor import Tensor


class Adadelta(Optimizer):
    """p <- p - lr d  with  d = sqrt(u + eps) / sqrt(v + eps) g

    v <- rho v + (1 - rho) g^2 is the running mean of the squared gradient, and, after d is known,
    u <- rho u + (1 - rho) d^2 that of the squared step.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: multiplies the step.
        rho: how much of the running means remains.
        eps: keeps the first steps from being 0.
        weight_decay: adds weight_decay p to g.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Adadelta([p], rho=0.75, eps=1.0, lr=2.0).step()
    >>> round(p.item(), 4) == round(1 - 2 * 2 / 2**0.5, 4)
    True

    Source: M. Zeiler, "ADADELTA: an adaptive learning rate method", 2012, algorithm 1.
    """

    required_state = ("step", "square_avg", "acc_delta")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            hints,
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if not 0 <= group["rho"] <= 1:
            raise ValueError(f"rho must be in [0, 1], got {group['rho']}")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        scalar_of(state, "step").add_(1)
        rho, eps = group["rho"], group["eps"]
        g = penalized(p, g, group)
        v = buffer_of(state, "square_avg", p).mul_(rho).add_(g * g, alpha=1 - rho)
        u = buffer_of(state, "acc_delta", p)
        delta = (u + eps).sqrt() / (v + eps).sqrt() * g
        u.mul_(rho).add_(delta * delta, alpha=1 - rho)
        p.sub_(delta * learning_rate(group, p))
