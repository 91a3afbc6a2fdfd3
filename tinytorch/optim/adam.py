"""Adam, and AdamW: steps scaled by running moments of the gradient."""

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
    decay_decoupled,
    learning_rate,
    penalized,
    scalar_of,
)
from tinytorch.optim.steps import adam_step
from tinytorch.tensor import Tensor


class Adam(Optimizer):
    """p <- p - lr m^ / (sqrt(v^) + eps)  with the running means m of g and v of g^2

        m <- beta1 m + (1 - beta1) g      m^ = m / (1 - beta1^t)
        v <- beta2 v + (1 - beta2) g^2    v^ = v / (1 - beta2^t)

    m and v start at 0; dividing by 1 - beta^t at step t takes that bias away. Weight decay adds
    weight_decay p to g, as the penalty weight_decay / 2 |p|^2 would.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        betas: (beta1, beta2), how much of the running means remains.
        eps: added to the denominator.
        weight_decay: strength of the penalty.
        amsgrad: divide by the largest v so far instead of v.
        maximize: go up instead of down.
        decoupled_weight_decay: decay as AdamW does.
        hints: PyTorch's `foreach`, `fused`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Adam([p], lr=0.5).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: D. Kingma, J. Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1;
    amsgrad: S. Reddi et al., "On the convergence of Adam and beyond", 2018.
    """

    required_state = ("step", "exp_avg", "exp_avg_sq")
    optional_state = ("max_exp_avg_sq",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
            hints,
        )

    def update_group(self, params: list[Tensor], group: Group) -> None:
        if group["amsgrad"]:
            super().update_group(params, group)
            return
        rows = [_row(p, p.grad, self.state[p], group) for p in params]  # type: ignore[arg-type]
        adam_step.each(rows, **_numbers(params[0], group))

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        if not group["amsgrad"]:
            adam_step(*_row(p, g, state, group), **_numbers(p, group))
            return
        beta1, beta2 = group["betas"]
        t = count_step(state)
        m, v = buffer_of(state, "exp_avg", p), buffer_of(state, "exp_avg_sq", p)
        g = adam_gradient(p, g, group)
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).add_(g * g, alpha=1 - beta2)
        largest = buffer_of(state, "max_exp_avg_sq", p)
        largest.copy_(maximum(largest, v))
        denominator = largest.sqrt() * (1 - beta2**t).rsqrt().to(p.dtype) + group["eps"]
        p.sub_(m / denominator * (learning_rate(group, p) / (1 - beta1**t).to(p.dtype)))


def _row(p: Tensor, g: Tensor, state: State, group: Group) -> tuple[Tensor, ...]:
    """The tensors of `adam_step`."""
    m, v = buffer_of(state, "exp_avg", p), buffer_of(state, "exp_avg_sq", p)
    return p, -g if group["maximize"] else g, m, v, scalar_of(state, "step")


def _numbers(p: Tensor, group: Group) -> dict[str, Any]:
    """The numbers of `adam_step`, for parameters of p's dtype."""
    beta1, beta2 = group["betas"]
    return {
        "lr": learning_rate(group, p), "beta1": beta1, "beta2": beta2, "eps": group["eps"],
        "weight_decay": group["weight_decay"], "decoupled": group["decoupled_weight_decay"],
    }  # fmt: skip


def adam_gradient(p: Tensor, g: Tensor, group: Group) -> Tensor:
    """The gradient that enters the moments; a weight decay that is decoupled shrinks p instead."""
    if not group["decoupled_weight_decay"]:
        return penalized(p, g, group)
    decay_decoupled(p, group)
    return -g if group["maximize"] else g


class AdamW(Adam):
    """Adam whose weight decay is p <- (1 - lr weight_decay) p, before the step

    So the decay is the same for all parameters, and not divided by sqrt(v). The arguments are
    Adam's; `weight_decay` is 0.01 unless given.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (0 * p).sum().backward()
    >>> _ = AdamW([p], lr=0.5, weight_decay=0.5).step()
    >>> p
    tensor([ 0.75, -1.5 ], requires_grad=True)

    Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", 2019, algorithm 2.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad,
            maximize=maximize, decoupled_weight_decay=True, **hints,
        )  # fmt: skip
