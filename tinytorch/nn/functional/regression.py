"""Losses that compare numbers with numbers."""

from __future__ import annotations

from tinytorch.absent import accepts_size_average
from tinytorch.functions.elementwise import abs, clip
from tinytorch.functions.fusing import fuse
from tinytorch.nn.functional.reduction import check_same_shape, reduce_loss, reduce_weighted
from tinytorch.tensor import Tensor


@accepts_size_average
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """(input - target)^2

    Args:
        input, target: of the same shape.
        reduction: "mean", "sum", or "none" for the loss of every element.
        weight: how much each element counts; it broadcasts.

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.
    """
    check_same_shape("mse_loss", input, target)
    difference = input - target
    return reduce_weighted(difference * difference, weight, reduction)


@accepts_size_average
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """|input - target|; arguments, result and errors as for `mse_loss`."""
    check_same_shape("l1_loss", input, target)
    return reduce_weighted(abs(input - target), weight, reduction)


@accepts_size_average
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d^2 / 2 where |d| <= delta, delta * (|d| - delta / 2) elsewhere, for d = input - target.

    Args:
        input, target: of the same shape.
        reduction: "mean", "sum", or "none" for the loss of every element.
        delta: where the parabola goes over into a line.
        weight: how much each element counts; it broadcasts.

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.
        ValueError: delta is not positive.

    Source: P. Huber, "Robust estimation of a location parameter", 1964.
    """
    if not delta > 0:
        raise ValueError(f"huber_loss: delta must be positive, not {delta}")
    check_same_shape("huber_loss", input, target)
    loss = _huber(input, target, delta)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


@accepts_size_average
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """huber_loss / beta, and for beta = 0 l1_loss.

    Args:
        input, target: of the same shape.
        reduction: "mean", "sum", or "none" for the loss of every element.
        beta: where the parabola goes over into a line.

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.
        ValueError: beta is negative.

    Source: R. Girshick, "Fast R-CNN", 2015, equation 3.
    """
    if not beta >= 0:
        raise ValueError(f"smooth_l1_loss: beta cannot be negative: {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    check_same_shape("smooth_l1_loss", input, target)
    return reduce_loss(_huber(input, target, beta) / beta, reduction)


def _huber(input: Tensor, target: Tensor, delta: float) -> Tensor:
    """Both branches at once, with q = d limited to +-delta: q * (d - q / 2)."""
    d = input - target
    q = clip(d, -delta, delta)
    return q * (d - q * 0.5)


fuse(globals(), "_huber")
