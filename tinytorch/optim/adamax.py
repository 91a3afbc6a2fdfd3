"""Adamax: Adam with the largest gradient in place of the mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.functions.elementwise import maximum
from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    count_step,
    learning_rate,
    penalized,
)
from tinytorch.tensor import Tensor


class Adamax(Optimizer):
    """p <- p - lr / (1 - beta1^t) m / u

        m <- beta1 m + (1 - beta1) g      u <- max(beta2 u, |g| + eps)

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        betas: (beta1, beta2), how much of m and of u remains.
        eps: added to |g|.
        weight_decay: adds weight_decay p to g.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Adamax([p], lr=0.5).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: D. Kingma, J. Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.
    """

    required_state = ("step", "exp_avg", "exp_inf")

    def __init__(
        self,
        params: Parameters,
        lr: float = 2e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            hints,
        )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        t = count_step(state)
        g = penalized(p, g, group)
        m = buffer_of(state, "exp_avg", p).mul_(beta1).add_(g, alpha=1 - beta1)
        u = buffer_of(state, "exp_inf", p)
        u.copy_(maximum(u * beta2, g.abs() + group["eps"]))
        p.sub_(m / u * (learning_rate(group, p) / (1 - beta1**t).to(p.dtype)))
