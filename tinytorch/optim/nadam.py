"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinytorch.optim.adam import adam_gradient
from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    count_step,
    learning_rate,
    scalar_of,
)
from tinytorch.tensor import Tensor


class NAdam(Optimizer):
    """p <- p - lr (a g + b m) / (sqrt(v^) + eps), with m, v and v^ as in Adam

        mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2)     M(t) = mu(1) ... mu(t)
        a = (1 - mu(t)) / (1 - M(t))                        b = mu(t + 1) / (1 - M(t + 1))

    The momentum mu rises to beta1; b m is where it leads, seen one step ahead.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        betas: (beta1, beta2), how much of the running means remains.
        eps: added to the denominator.
        weight_decay: strength of the penalty.
        momentum_decay: how fast the momentum rises.
        decoupled_weight_decay: decay as AdamW does.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0], requires_grad=True)
    >>> p.sum().backward()
    >>> NAdam([p], lr=0.5).step()
    >>> 0 < p.item() < 1
    True

    Source: T. Dozat, "Incorporating Nesterov momentum into Adam", 2016, in the form of PyTorch.
    """

    required_state = ("step", "mu_product", "exp_avg", "exp_avg_sq")
    scalar_state = ("step", "mu_product")
    not_negative = ("lr", "weight_decay", "eps", "momentum_decay")

    def __init__(
        self,
        params: Parameters,
        lr: float = 2e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
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
                "momentum_decay": momentum_decay,
                "maximize": maximize,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
            hints,
        )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        t = count_step(state)
        product = scalar_of(state, "mu_product", 1.0)
        rate = math.log(0.96) * group["momentum_decay"]
        now, after = (beta1 * (1 - 0.5 * (k * rate).exp()) for k in (t, t + 1))
        product.copy_(product * now)
        of_g = ((1 - now) / (1 - product.double())).to(p.dtype)
        of_m = (after / (1 - product.double() * after)).to(p.dtype)
        g = adam_gradient(p, g, group)
        m = buffer_of(state, "exp_avg", p).mul_(beta1).add_(g, alpha=1 - beta1)
        v = buffer_of(state, "exp_avg_sq", p).mul_(beta2).add_(g * g, alpha=1 - beta2)
        denominator = (v / (1 - beta2**t).to(p.dtype)).sqrt() + group["eps"]
        p.sub_((g * of_g + m * of_m) / denominator * learning_rate(group, p))
