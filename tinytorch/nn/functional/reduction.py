"""What all losses share: how the losses of the elements become one number."""

from __future__ import annotations

from tinytorch.errors import ShapeError
from tinytorch.functions.movement import expand
from tinytorch.functions.reductions import mean, sum
from tinytorch.tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str, known: tuple[str, ...] = REDUCTIONS) -> str:
    """The reduction itself; raises ValueError, with those there are, if it is none."""
    if reduction not in known:
        raise ValueError(f"reduction must be one of {', '.join(known)}, not {reduction!r}")
    return reduction


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """The losses themselves, their mean or their sum. The mean over no elements is NaN."""
    check_reduction(reduction)
    if reduction == "none":
        return loss
    return mean(loss) if reduction == "mean" else sum(loss)


def reduce_weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """`reduce_loss` of losses that count by `weight`, which broadcasts and divides in the mean."""
    if weight is None:
        return reduce_loss(loss, reduction)
    weight = expand(weight, loss.shape)
    if reduction == "mean":
        return sum(loss * weight) / sum(weight)
    return reduce_loss(loss * weight, reduction)


def check_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless the shapes are equal."""
    if input.shape != target.shape:
        raise ShapeError(
            f"{name}: input {input.shape} and target {target.shape} must have the same shape; "
            f"broadcasting would compare elements that do not belong together"
        )
