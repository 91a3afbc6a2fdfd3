"""RAdam: Adam that begins with plain steps, until the mean square can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.functions.elementwise import where
from tinytorch.optim.adam import adam_gradient
from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    count_step,
    learning_rate,
)
from tinytorch.tensor import Tensor


class RAdam(Optimizer):
    """p <- p - lr m^ r / (sqrt(v) + eps) sqrt(1 - beta2^t) where rho > 5, else p <- p - lr m^

        rho = R - 2 t beta2^t / (1 - beta2^t)      R = 2 / (1 - beta2) - 1
        r^2 = (rho - 4) (rho - 2) R / ((R - 4) (R - 2) rho)

    m^ and v are Adam's; rho is over how many steps v is a mean.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        betas: (beta1, beta2), how much of the running means remains.
        eps: added to the denominator.
        weight_decay: strength of the penalty.
        decoupled_weight_decay: decay as AdamW does.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> RAdam([p], lr=0.25).step()
    >>> p
    tensor([ 0.5, -1. ], requires_grad=True)

    Source: L. Liu et al., "On the variance of the adaptive learning rate and beyond", 2020,
    algorithm 2; the bound of 5, where the paper has 4, is PyTorch's.
    """

    required_state = ("step", "exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
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
                "decoupled_weight_decay": decoupled_weight_decay,
            },
            hints,
        )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        t = count_step(state)
        g = adam_gradient(p, g, group)
        m = buffer_of(state, "exp_avg", p).mul_(beta1).add_(g, alpha=1 - beta1)
        v = buffer_of(state, "exp_avg_sq", p).mul_(beta2).add_(g * g, alpha=1 - beta2)
        unbiased = 1 - beta2**t
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * t * beta2**t / unbiased
        trusted = rho > 5.0
        safe = where(trusted, rho, 5.0)  # below 4 the square of r would be negative
        square = (safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)
        r = (square * unbiased).sqrt().to(p.dtype)
        scale = where(trusted, r / (v.sqrt() + group["eps"]), 1.0)
        p.sub_(m * scale * (learning_rate(group, p) / (1 - beta1**t).to(p.dtype)))
