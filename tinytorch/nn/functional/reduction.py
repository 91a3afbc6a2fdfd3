"""What all losses share: how the losses of the elements become one number."""

from __future__ import annotations

from tinytorch.errors import ShapeError
from tinytorch.functions.movement import expand
from tinytorch.functions.reductions import mean, sum
from tinytorch.tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str, known: tuple[str, ...] = REDUCTIONS) -> str:
    """Return `reduction` if it is one of `known`.

    Raises:
        ValueError: it is not; the message gives it, and those that are known.

    >>> check_reduction("sum")
    'sum'
    """
    if reduction not in known:
        raise ValueError(f"reduction must be one of {', '.join(known)}, not {reduction!r}")
    return reduction


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """The losses themselves, their mean or their sum.

    Args:
        loss: the losses of the elements, of any shape.
        reduction: "none", "mean" or "sum".

    Returns:
        For "none" `loss`, else a 0-d tensor. The mean over no elements is NaN.

    Raises:
        ValueError: `check_reduction` does not know the reduction.
    """
    check_reduction(reduction)
    if reduction == "none":
        return loss
    return mean(loss) if reduction == "mean" else sum(loss)


def reduce_weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """`reduce_loss` of losses that count differently: sum(weight * loss) / sum(weight) is the mean.

    Args:
        loss: the losses of the elements, of any shape.
        weight: how much each of them counts, in a shape that broadcasts to that of `loss`; None if
            all count alike.
        reduction: "none" and "sum" are of weight * loss.

    Raises:
        ValueError: as `reduce_loss`.
    """
    if weight is None:
        return reduce_loss(loss, reduction)
    weight = expand(weight, loss.shape)
    if reduction == "mean":
        return sum(loss * weight) / sum(weight)
    return reduce_loss(loss * weight, reduction)


def check_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    """Refuse two tensors of different shapes, also where they would broadcast.

    Args:
        name: of the loss that asks, for the message.

    Raises:
        ShapeError: the shapes differ; the message gives the name and both shapes.
    """
    if input.shape != target.shape:
        raise ShapeError(
            f"{name}: input {input.shape} and target {target.shape} must have the same shape; "
            f"broadcasting would compare elements that do not belong together"
        )
