"""Muon: momentum made orthogonal, for the matrices of hidden layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinytorch.errors import ShapeError
from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    decay_decoupled,
    learning_rate,
)
from tinytorch.tensor import Tensor

QUINTIC = (3.4445, -4.775, 2.0315)
ADJUSTMENTS = (None, "original", "match_rms_adamw")


def orthogonalize(
    g: Tensor, coefficients: Sequence[float] = QUINTIC, steps: int = 5, eps: float = 1e-7
) -> Tensor:
    """About U @ V.T where g = U @ diag(s) @ V.T: the singular values become about 1.

        x <- g / |g|
        x <- a x + (b x x^T + c (x x^T)^2) x        `steps` times

    Each step sends every singular value s to a s + b s^3 + c s^5. With the coefficients that are
    given, which rise steeply from 0, five steps take what is above 0.01 of the norm to 0.7 to 1.2.

    Args:
        g: (n, m), computed on in its own dtype (PyTorch's Muon computes in bfloat16).
        coefficients: a, b, c.
        steps: how many.
        eps: the least norm that is divided by.

    Returns:
        (n, m)

    >>> import tinytorch
    >>> orthogonalize(tinytorch.tensor([[0.0, -3.0], [2.0, 0.0]])).round(decimals=1)
    tensor([[ 0. , -1.1],
            [ 0.7,  0. ]])

    Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    """
    a, b, c = coefficients
    is_tall = g.shape[0] > g.shape[1]
    x = g.T if is_tall else g
    x = x / x.square().sum().sqrt().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return x.T if is_tall else x


class Muon(Optimizer):
    """p <- p - lr r O  with O the orthogonal matrix that is nearest to the momentum

        m <- momentum m + (1 - momentum) g
        O = orthogonalize(m), or with nesterov orthogonalize(momentum m + (1 - momentum) g)

    So every direction of a matrix is moved as far, also those in which gradients are small. It is
    for the matrices of hidden layers; embeddings, the output layer, biases and norms are left to
    another:

        hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "blocks" in name]
        rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "blocks" not in name]
        optimizers = Muon(hidden, lr=0.02), AdamW(rest, lr=1e-3)

    Args:
        params: tensors with two dimensions, or dicts of groups of them with options of their own.
        lr: learning rate.
        weight_decay: p <- (1 - lr weight_decay) p before the step, as AdamW does.
        momentum: how much of the running mean of the gradients remains.
        nesterov: look ahead along the momentum.
        ns_coefficients, eps, ns_steps: of `orthogonalize`.
        adjust_lr_fn: r; "original", and None: sqrt(max(1, n / m)) for p of shape (n, m);
            "match_rms_adamw": 0.2 sqrt(max(n, m)), with which AdamW's lr and weight_decay fit.

    Raises:
        ShapeError: a parameter is no matrix.
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([[3.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Muon([p], lr=0.5, weight_decay=0).step()
    >>> p.detach().round(decimals=1)
    tensor([[2.6, 0. ],
            [0. , 0.4]])

    Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024;
    "match_rms_adamw": J. Liu et al., "Muon is scalable for LLM training", 2025, equation 4.
    """

    required_state = ("momentum_buffer",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Sequence[float] = QUINTIC,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": tuple(ns_coefficients),
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(f"ns_coefficients must be three, got {group['ns_coefficients']}")
        if not 0 <= group["ns_steps"] < 100:
            raise ValueError(f"ns_steps must be in [0, 100), got {group['ns_steps']}")
        if group["adjust_lr_fn"] not in ADJUSTMENTS:
            raise ValueError(
                f"adjust_lr_fn must be one of {ADJUSTMENTS}, got {group['adjust_lr_fn']!r}"
            )
        for p in group["params"]:
            if isinstance(p, Tensor) and p.ndim != 2:
                raise ShapeError(
                    f"Muon is for matrices, got a parameter of shape {p.shape}; leave it to AdamW"
                )

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        rest = group["momentum"]
        m = buffer_of(state, "momentum_buffer", p)
        m.mul_(rest).add_(g, alpha=1 - rest)
        step = m * rest + g * (1 - rest) if group["nesterov"] else m
        step = orthogonalize(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        decay_decoupled(p, group)
        p.sub_(step * (learning_rate(group, p) * _adjustment(group["adjust_lr_fn"], p.shape)))


def _adjustment(kind: str | None, shape: tuple[int, ...]) -> float:
    n, m = shape
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(n, m))
    return math.sqrt(max(1.0, n / max(m, 1)))
