"""RMSprop: steps scaled by the running mean of the squared gradient."""

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


class RMSprop(Optimizer):
    """p <- p - lr g / (sqrt(v) + eps)  with  v <- alpha v + (1 - alpha) g^2

    `centered` divides by the standard deviation sqrt(v - m^2) instead, where m is the running mean
    of g. With momentum, b <- momentum b + g / (sqrt(v) + eps) and p <- p - lr b.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        alpha: how much of the running means remains.
        eps: added to the denominator.
        weight_decay: adds weight_decay p to g.
        momentum: how much of the last direction remains.
        centered: divide by the standard deviation.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = RMSprop([p], lr=0.25, alpha=0.75).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: T. Tieleman, G. Hinton, "Neural networks for machine learning", lecture 6.5, 2012;
    centered: A. Graves, "Generating sequences with recurrent neural networks", 2013, equation 40.
    """

    required_state = ("step", "square_avg")
    optional_state = ("grad_avg", "momentum_buffer")

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
                "maximize": maximize,
            },
            hints,
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if not 0 <= group["alpha"] <= 1:
            raise ValueError(f"alpha must be in [0, 1], got {group['alpha']}")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        scalar_of(state, "step").add_(1)
        alpha = group["alpha"]
        g = penalized(p, g, group)
        v = buffer_of(state, "square_avg", p)
        v.mul_(alpha).add_(g * g, alpha=1 - alpha)
        variance = v
        if group["centered"]:
            mean = buffer_of(state, "grad_avg", p)
            mean.mul_(alpha).add_(g, alpha=1 - alpha)
            variance = v - mean * mean
        g = g / (variance.sqrt() + group["eps"])
        if group["momentum"]:
            g = buffer_of(state, "momentum_buffer", p).mul_(group["momentum"]).add_(g)
        p.sub_(g * learning_rate(group, p))
