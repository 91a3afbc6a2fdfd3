"""Losses that are negative log likelihoods of numbers: normal and Poisson distributions, CTC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.creation import arange, as_tensor, from_numpy, full
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, int64
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.elementwise import clip, exp, log, lt, where
from tinytorch.functions.movement import reshape, unsqueeze
from tinytorch.functions.scans import cumsum
from tinytorch.functions.value_checks import check_not_negative
from tinytorch.nn.functional.reduction import check_reduction, check_same_shape, reduce_loss
from tinytorch.replay import holds, must_run
from tinytorch.tensor import Tensor


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)^2 / var) / 2, with var at least eps (no gradient there).

    Args:
        var: of the shape of input, or without its last dimension, or with size 1 there.
        full: add the constant log(2 pi) / 2.

    Raises:
        ShapeError: var has another shape.
        ValueError: one of var is negative. (Not of what a trace computes.)

    Source: D. Nix, A. Weigend, "Estimating the mean and variance of the target probability
    distribution", 1994.
    """
    variance = as_tensor(var) if not isinstance(var, Tensor) else var
    if variance.ndim == input.ndim - 1 and variance.shape == input.shape[:-1]:
        variance = unsqueeze(variance, -1)
    elif variance.ndim and variance.shape not in (input.shape, (*input.shape[:-1], 1)):
        raise ShapeError(f"gaussian_nll_loss: var {variance.shape} for input {input.shape}")
    check_not_negative("gaussian_nll_loss: var", variance)
    raised = clip(variance.detach(), min=eps)
    variance = variance + (raised - variance.detach())  # constant for the gradient
    difference = input - target
    loss = 0.5 * (log(variance) + difference * difference / variance)
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input; or, with log_input=False, input - target * log(input + eps).

    Args:
        full: add Stirling's approximation of log(target!), where the target is above 1.
    """
    check_same_shape("poisson_nll_loss", input, target)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        many = where(target > 1, target, 2.0)
        stirling = many * log(many) - many + 0.5 * log(2 * math.pi * many)
        loss = loss + where(target > 1, stirling, 0.0)
    return reduce_loss(loss, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of a label sequence, over all its alignments with the input.

    Args:
        log_probs: log probabilities (time, n, classes) or (time, classes).
        targets: labels (n, longest) or, one after the other, (sum of lengths,).
        input_lengths, target_lengths: how much of each sequence counts: tensors of integers (n,),
            or tuples or lists.
        blank: the class that stands for no label.
        reduction: "mean" divides each loss by its target's length first; "sum" or "none".
        zero_infinity: 0, without gradient, for a target that is too long for its input.

    Raises:
        DTypeError: the log probabilities are not floating-point, or the others no integers.
        ShapeError: their shapes do not fit; the message gives them.
        IndexError: a length or a label is out of range; the message gives it.

    Source: A. Graves et al., "Connectionist temporal classification", 2006, equations 5 to 8.

    >>> import tinytorch
    >>> certain = tinytorch.tensor([[0.0, -9.0], [-9.0, 0.0], [0.0, -9.0]])
    >>> ctc_loss(certain, tinytorch.tensor([1]), 3, 1).round(decimals=2)
    tensor(-0.)
    """
    check_reduction(reduction)
    if not log_probs.dtype.is_floating_point:
        raise DTypeError(f"ctc_loss takes floating-point scores, not {log_probs.dtype.name}")
    spans, sizes = _lengths(input_lengths), _lengths(target_lengths)
    is_batch = log_probs.ndim != 2
    if not is_batch:
        log_probs = unsqueeze(log_probs, 1)
        targets = unsqueeze(targets, 0) if targets.ndim == 1 else targets
    elif targets.ndim == 1:
        targets = _in_rows(targets, sizes)
    losses = apply(
        ops.ctc_loss, log_probs, targets, spans, sizes, blank=blank, zero_infinity=zero_infinity
    )
    if reduction == "mean":
        losses = losses / clip(sizes, min=1).to(losses.dtype)
    return reduce_loss(losses, reduction) if is_batch else losses[0]


def _lengths(given: Any) -> Tensor:
    """Lengths as a tensor (n,)."""
    if not isinstance(given, Tensor):
        return from_numpy(np.atleast_1d(np.asarray(given)))
    return reshape(given, (1,)) if given.ndim == 0 else given


def _in_rows(targets: Tensor, sizes: Tensor) -> Tensor:
    """Targets that lie one after the other, as (n, longest), with 0 after each.

    Where sizes may be others at the next call, there is room in each row for all of them.
    """
    n, total = sizes.shape[0], targets.shape[0]
    if not total or not n:
        return full((n, 0), 0, dtype=int64)
    longest = total
    if holds(sizes, _is_any, traced=False):
        must_run("the longest target is read")
        lengths = sizes.tolist()
        if sum(lengths) > total:
            raise ShapeError(f"ctc_loss: targets {targets.shape} hold fewer labels than {lengths}")
        longest = max(lengths)
    inside = lt(arange(longest), unsqueeze(sizes, 1))
    starts = unsqueeze(cumsum(sizes, 0) - sizes, 1)
    return apply(ops.take, targets, where(inside, starts + arange(longest), 0))


def _is_any(array: Array) -> bool:
    return True
