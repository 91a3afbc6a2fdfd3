"""Losses that are negative log likelihoods of numbers: normal and Poisson distributions, CTC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.creation import as_tensor, from_numpy, full
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.elementwise import clip, exp, log, where
from tinytorch.functions.indexing import gather
from tinytorch.functions.movement import cat, narrow, stack, unsqueeze
from tinytorch.functions.reductions import logsumexp, mean, sum
from tinytorch.nn.functional.reduction import check_reduction, check_same_shape, reduce_loss
from tinytorch.tensor import Tensor

IMPOSSIBLE = -1e30  # the logarithm of a probability of 0 that sums and gradients can bear


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

    Source: D. Nix, A. Weigend, "Estimating the mean and variance of the target probability
    distribution", 1994.
    """
    variance = as_tensor(var) if not isinstance(var, Tensor) else var
    if variance.ndim == input.ndim - 1 and variance.shape == input.shape[:-1]:
        variance = unsqueeze(variance, -1)
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
        input_lengths, target_lengths: how much of each sequence counts.
        blank: the class that stands for no label.
        reduction: "mean" divides each loss by its target's length first; "sum" or "none".
        zero_infinity: 0, without gradient, for a target that is too long for its input.

    Raises:
        DTypeError: the log probabilities are not floating-point.
        ShapeError: the lengths do not fit them.

    Source: A. Graves et al., "Connectionist temporal classification", 2006, equations 5 to 8.
    """
    check_reduction(reduction)
    if not log_probs.dtype.is_floating_point:
        raise DTypeError(f"ctc_loss takes floating-point scores, not {log_probs.dtype.name}")
    if log_probs.ndim == 2:
        batch = unsqueeze(targets, 0) if targets.ndim == 1 else targets
        spans, sizes = (np.reshape(np.asarray(v), (1,)) for v in (input_lengths, target_lengths))
        loss = ctc_loss(unsqueeze(log_probs, 1), batch, spans, sizes, blank, "none", zero_infinity)
        if reduction == "mean":
            loss = loss / max(int(sizes[0]), 1)
        return loss[0]
    times, n, _ = log_probs.shape
    spans = np.asarray(input_lengths).astype(np.int64)
    sizes = np.asarray(target_lengths).astype(np.int64)
    if spans.shape != (n,) or sizes.shape != (n,) or spans.max(initial=0) > times:
        raise ShapeError(
            f"ctc_loss: log_probs {log_probs.shape} need {n} input_lengths of at most {times} and "
            f"{n} target_lengths, not {spans.tolist()} and {sizes.tolist()}"
        )
    labels = _labels(np.asarray(targets.detach()), sizes, blank)
    losses = _alignments(log_probs, labels, spans, sizes, blank)
    impossible = losses > -IMPOSSIBLE / 2
    losses = where(impossible, 0.0 if zero_infinity else math.inf, losses)
    if reduction == "mean":
        return mean(losses / from_numpy(np.maximum(sizes, 1).astype(losses.dtype.dtype)))
    return sum(losses) if reduction == "sum" else losses


def _labels(targets: Any, sizes: Any, blank: int) -> Any:
    """(n, 2 * longest + 1): each target with blanks between, before and after its labels."""
    longest = int(sizes.max(initial=0))
    spread = np.full((len(sizes), 2 * longest + 1), blank, np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for i, size in enumerate(sizes):
        row = targets[i, :size] if targets.ndim == 2 else targets[starts[i] : starts[i] + size]
        spread[i, 1 : 2 * size : 2] = row
    return spread


def _alignments(log_probs: Tensor, labels: Any, spans: Any, sizes: Any, blank: int) -> Tensor:
    """The losses (n,), by the forward recursion over time."""
    n, states = labels.shape
    index = from_numpy(labels)
    first = np.full((n, states), IMPOSSIBLE)
    first[:, :2] = 0  # an alignment starts with a blank or the first label
    jumps = np.zeros((n, states), bool)
    jumps[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    may_jump = from_numpy(jumps)
    alpha = from_numpy(first.astype(log_probs.dtype.dtype)) + gather(log_probs[0], 1, index)
    for t in range(1, log_probs.shape[0]):
        padded = cat([full((n, 2), IMPOSSIBLE, dtype=log_probs.dtype), alpha], 1)
        stay, step, jump = (narrow(padded, 1, 2 - back, states) for back in range(3))
        ways = stack([stay, step, where(may_jump, jump, IMPOSSIBLE)])
        new = clip(logsumexp(ways, 0), min=IMPOSSIBLE) + gather(log_probs[t], 1, index)
        alpha = where(from_numpy((t < spans)[:, None]), new, alpha)
    last = from_numpy(2 * sizes[:, None])
    ends = [gather(alpha, 1, last), gather(alpha, 1, clip(last - 1, min=0))]
    ends[1] = where(last > 0, ends[1], IMPOSSIBLE)
    return -logsumexp(cat(ends, 1), 1)
