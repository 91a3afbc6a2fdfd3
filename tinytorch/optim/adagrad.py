"""Adagrad: steps that shrink with all the squared gradients seen so far."""

from __future__ import annotations

from typing import Any

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


class Adagrad(Optimizer):
    """p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)  with  s <- s + g^2

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        lr_decay: by how much the rate falls with the number t of the step.
        weight_decay: adds weight_decay p to g.
        initial_accumulator_value: what s starts from.
        eps: added to the denominator.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `fused`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Adagrad([p], lr=0.5).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and
    stochastic optimization", 2011.
    """

    required_state = ("step", "sum")
    not_negative = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
            hints,
        )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        t = count_step(state)
        g = penalized(p, g, group)
        total = buffer_of(state, "sum", p, group["initial_accumulator_value"]).add_(g * g)
        rate = learning_rate(group, p) / (1 + (t - 1) * group["lr_decay"]).to(p.dtype)
        p.sub_(g / (total.sqrt() + group["eps"]) * rate)
