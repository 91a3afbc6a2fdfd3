"""Connectionist temporal classification as NumPy functions: all targets of a batch at a time.

What they compute is said in `decompositions_ctc`, in ops. Logarithms of probabilities are summed in
float64, whatever the inputs' type is.
"""

from __future__ import annotations

import numpy as np

from tinytorch.dtypes import Array


def check(log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array) -> None:
    """Refuse lengths and labels that are out of range.

    Raises:
        IndexError: there is one; the message says which.
    """
    times, _, classes = log_probs.shape
    for name, lengths, most in (
        ("input_lengths", input_lengths, times),
        ("target_lengths", target_lengths, targets.shape[1]),
    ):
        if lengths.size and (lengths.min() < 0 or lengths.max() > most):
            raise IndexError(
                f"ctc_loss: log_probs {log_probs.shape} and targets {targets.shape} need {name} "
                f"of 0 to {most}, not {lengths.tolist()}"
            )
    counted = targets[np.arange(targets.shape[1]) < target_lengths[:, None]]
    wrong = counted[(counted < 0) | (counted >= classes)]
    if wrong.size:
        raise IndexError(
            f"ctc_loss: label {wrong[0]} is out of range: log_probs {log_probs.shape} have the "
            f"classes 0 to {classes - 1}"
        )


def _states(targets: Array, target_lengths: Array, blank: int) -> tuple[Array, Array, Array]:
    """The label of each state, whether it may be jumped to, and whether alignments end there."""
    n, longest = targets.shape
    labels = np.full((n, 2 * longest + 1), blank)
    labels[:, 1::2] = np.where(np.arange(longest) < target_lengths[:, None], targets, blank)
    may_jump = np.zeros(labels.shape, bool)
    may_jump[:, 2:] = labels[:, 2:] != labels[:, :-2]
    behind = 2 * target_lengths[:, None] - np.arange(2 * longest + 1)
    return labels, may_jump, (behind == 0) | (behind == 1)


def _summed(stay: Array, step: Array, jump: Array) -> Array:
    """log(exp(stay) + exp(step) + exp(jump)), -inf for three of them."""
    top = np.maximum(np.maximum(stay, step), jump)
    top = np.where(top == -np.inf, 0.0, top)
    total: Array = np.log(np.exp(stay - top) + np.exp(step - top) + np.exp(jump - top)) + top
    return total


def _emissions(log_probs: Array, labels: Array) -> Array:
    """(time, n, states): what each state's label costs at each time."""
    index = np.broadcast_to(labels, (len(log_probs), *labels.shape))
    return np.take_along_axis(log_probs, index, 2).astype(np.float64)


def _alphas(emissions: Array, may_jump: Array, input_lengths: Array) -> Array:
    """(time + 1, n, states), from before the first time on; constant after a sequence's end."""
    times, n, states = emissions.shape
    alphas = np.full((times + 1, n, states + 2), -np.inf)  # two states from which nothing comes
    alphas[0, :, 2] = 0
    for t in range(times):
        old = alphas[t]
        jump = np.where(may_jump, old[:, :-2], -np.inf)
        new = _summed(old[:, 2:], old[:, 1:-1], jump) + emissions[t]
        alphas[t + 1, :, 2:] = np.where((t < input_lengths)[:, None], new, old[:, 2:])
    return alphas[:, :, 2:]


def _total(alphas: Array, ends: Array) -> Array:
    """(n,): the logarithm of the probability of all alignments."""
    last = np.where(ends, alphas[-1], -np.inf)
    top = last.max(1, initial=-np.inf)
    top = np.where(top == -np.inf, 0.0, top)
    total: Array = np.log(np.exp(last - top[:, None]).sum(1)) + top
    return total


@np.errstate(all="ignore")
def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int,
    zero_infinity: bool,
) -> Array:
    """-log of the probability of each target, (n,)."""
    check(log_probs, targets, input_lengths, target_lengths)
    labels, may_jump, ends = _states(targets, target_lengths, blank)
    alphas = _alphas(_emissions(log_probs, labels), may_jump, input_lengths)
    losses = 0.0 - _total(alphas, ends)
    if zero_infinity:
        losses[losses == np.inf] = 0
    return losses.astype(log_probs.dtype)


@np.errstate(all="ignore")
def ctc_loss_backward(
    g: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int,
    zero_infinity: bool,
) -> Array:
    """The gradient of `ctc_loss` for the log probabilities."""
    check(log_probs, targets, input_lengths, target_lengths)
    labels, may_jump, ends = _states(targets, target_lengths, blank)
    emissions = _emissions(log_probs, labels)
    alphas = _alphas(emissions, may_jump, input_lengths)
    total = _total(alphas, ends)
    times, n, states = emissions.shape
    out = np.zeros(log_probs.shape, log_probs.dtype)
    beta = np.full((n, states + 2), -np.inf)
    leaves = np.zeros((n, states + 2), bool)  # a jump to the state after the next
    leaves[:, :states][:, : states - 2] = may_jump[:, 2:]
    for t in reversed(range(times)):
        if t + 1 < times:
            beta[:, :-2] += emissions[t + 1]
            jump = np.where(leaves[:, :-2], beta[:, 2:], -np.inf)
            beta[:, :-2] = _summed(beta[:, :-2], beta[:, 1:-1], jump)
        ended = (t + 1 >= input_lengths)[:, None]
        beta[:, :-2] = np.where(ended, np.where(ends, 0.0, -np.inf), beta[:, :-2])
        shares = np.exp(alphas[t + 1] + beta[:, :-2] - total[:, None]) * -g[:, None]
        rows = np.zeros(log_probs.shape[1:])
        np.add.at(rows, (np.arange(n)[:, None], labels), shares)
        rows[total == -np.inf] = 0 if zero_infinity else np.nan
        rows[t >= input_lengths] = 0
        out[t] = rows
    return out
