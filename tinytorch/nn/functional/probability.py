"""Losses that compare probabilities."""

from __future__ import annotations

from typing import Any

from tinytorch.absent import accepts_size_average
from tinytorch.autograd import Function
from tinytorch.functions.elementwise import clip, exp, log, log1p, where
from tinytorch.functions.reductions import sum
from tinytorch.functions.value_checks import check_probabilities
from tinytorch.nn.functional.activation import EXACT_THRESHOLD, softplus
from tinytorch.nn.functional.reduction import (
    REDUCTIONS,
    check_reduction,
    check_same_shape,
    reduce_loss,
)
from tinytorch.tensor import Tensor

LOG_LIMIT = -100.0  # where binary_cross_entropy cuts the logarithm of 0 off
SMALLEST_VARIANCE = 1e-12  # and the denominator of its gradient


@accepts_size_average
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input))

    Logarithms are cut off at -100 and the gradient's denominator input * (1 - input) at 1e-12, so
    that probabilities of exactly 0 and 1 give finite numbers. With logits at hand,
    `binary_cross_entropy_with_logits` is exact.

    Args:
        input: probabilities of any shape.
        target: of the same shape, from 0 to 1.
        weight: how much each element counts; it broadcasts.
        reduction: "mean", "sum", or "none" for the loss of every element.

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.
        ValueError: an input or a target is not from 0 to 1. (Not of what a trace computes.)
    """
    check_same_shape("binary_cross_entropy", input, target)
    logits = "; for logits use binary_cross_entropy_with_logits"
    check_probabilities("binary_cross_entropy: input", input, logits)
    check_probabilities("binary_cross_entropy: target", target)
    loss = _BinaryCrossEntropy.apply(input, target)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


class _BinaryCrossEntropy(Function):
    """Its own gradient: the formula's is 0 * infinity where a probability is 0 or 1."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(p, target)
        log_p, log_q = _logarithms(p)
        return -(target * log_p + (1.0 - target) * log_q)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        p, target = ctx.saved_tensors
        by_p, by_target = ctx.needs_input_grad
        variance = clip(p * (1.0 - p), min=SMALLEST_VARIANCE)
        log_p, log_q = _logarithms(p) if by_target else (p, p)
        return (
            g * (p - target) / variance if by_p else None,
            g * (log_q - log_p) if by_target else None,
        )


def _logarithms(p: Tensor) -> tuple[Tensor, Tensor]:
    return clip(log(p), min=LOG_LIMIT), clip(log1p(-p), min=LOG_LIMIT)


@accepts_size_average
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), exact for logits of any size.

    -log(sigmoid(x)) is softplus(-x) and -log(1 - sigmoid(x)) is softplus(x), so nothing is rounded
    to 0 or 1 on the way.

    Args:
        input: logits of any shape.
        target: of the same shape, from 0 to 1.
        weight: how much each element counts; it broadcasts.
        reduction: "mean", "sum", or "none" for the loss of every element.
        pos_weight: how much the target counts against 1 - target; it broadcasts.

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.
    """
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    positive = target * softplus(-input, threshold=EXACT_THRESHOLD)
    negative = (1.0 - target) * softplus(input, threshold=EXACT_THRESHOLD)
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    return reduce_loss(loss if weight is None else loss * weight, reduction)


@accepts_size_average
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input): the Kullback-Leibler divergence from log probabilities.

    Args:
        input: log probabilities.
        target: probabilities of the same shape, or with log_target their logarithms.
        reduction: "batchmean", which is the divergence by its definition (the sum over the size of
            the first dimension); "mean", "sum" or "none".

    Returns:
        A 0-d tensor; for "none", of the shape of input.

    Raises:
        ShapeError: the shapes differ.

    Source: S. Kullback, R. Leibler, "On information and sufficiency", 1951.
    """
    check_reduction(reduction, (*REDUCTIONS, "batchmean"))
    check_same_shape("kl_div", input, target)
    if log_target:
        loss = exp(target) * (target - input)
    else:
        # where the target is 0, target * log(target) is 0
        logarithm = log(where(target == 0, 1.0, target))
        loss = target * logarithm - target * input
    if reduction == "batchmean":
        return sum(loss) / (input.shape[0] if input.ndim else 1)
    return reduce_loss(loss, reduction)
