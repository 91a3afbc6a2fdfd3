"""Gradient clipping: by the norm of all gradients together, or element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tinytorch.autograd import no_grad
from tinytorch.creation import zeros
from tinytorch.functions.elementwise import clip
from tinytorch.functions.movement import stack
from tinytorch.functions.reductions import norm
from tinytorch.state import phase
from tinytorch.tensor import Tensor


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """g <- g min(1, max_norm / (|g| + 1e-6)), where g is all gradients as one vector

    Args:
        parameters: whose gradients to change, in place; those without one are passed over.
        max_norm: the largest norm allowed.
        norm_type: p of the p-norm; may be `math.inf`.
        error_if_nonfinite: raise instead of spreading NaN or infinity to all gradients.
        foreach: PyTorch's choice of how to compute: taken, without effect.

    Returns:
        The norm before clipping, 0-d.

    Raises:
        ValueError: the norm is not finite, and `error_if_nonfinite` is set; nothing was changed.

    Source: R. Pascanu et al., "On the difficulty of training recurrent neural networks", 2013,
    algorithm 1, in the form of PyTorch.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return zeros()
    with phase("optimizer"), no_grad():
        total = norm(stack([norm(g, norm_type) for g in gradients]), norm_type)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise ValueError(
                f"the {norm_type}-norm of the gradients is {total.item()}, so they cannot be "
                f"clipped; lower the learning rate, or look for the op that made it"
            )
        factor = clip(max_norm / (total + 1e-6), max=1.0)
        for g in gradients:
            g.mul_(factor)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """g <- min(max(g, -clip_value), clip_value), for each element of each gradient, in place

    `foreach` is PyTorch's, and without effect.
    """
    with phase("optimizer"), no_grad():
        for g in _gradients(parameters):
            g.clamp_(-clip_value, clip_value)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in given if p.grad is not None]
