"""ASGD: stochastic gradient descent that also keeps the average of its path."""

from __future__ import annotations

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
    scalar_of,
)
from tinytorch.tensor import Tensor


class ASGD(Optimizer):
    """p <- (1 - lambd eta) p - eta g  with  eta = lr / (1 + lambd lr t)^alpha

    The average ax <- ax + mu (p - ax), with mu = 1 / max(1, t - t0), is in the state; eta and mu
    are those of the step before.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        lambd: decay of the parameters.
        alpha: how fast eta falls.
        t0: the step at which averaging starts.
        weight_decay: adds weight_decay p to g.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> ASGD([p], lr=0.25, lambd=0.0).step()
    >>> p
    tensor([ 0.5, -1. ], requires_grad=True)

    Source: B. Polyak, A. Juditsky, "Acceleration of stochastic approximation by averaging", 1992,
    in the form of PyTorch.
    """

    required_state = ("step", "eta", "mu", "ax")
    scalar_state = ("step", "eta", "mu")

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
            hints,
        )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        t = count_step(state)
        lr, lambd = learning_rate(group, p), group["lambd"]
        eta, mu = scalar_of(state, "eta", float(group["lr"])), scalar_of(state, "mu", 1.0)
        g = penalized(p, g, group)
        rate = eta.double()
        p.mul_((1 - lambd * rate).to(p.dtype))
        p.sub_(g * rate.to(p.dtype))
        average = buffer_of(state, "ax", p)
        average.add_((p - average) * mu.to(p.dtype))
        eta.copy_(lr / (1 + lambd * lr * t) ** group["alpha"])
        mu.copy_(1 / maximum(t - group["t0"], 1.0))
