"""Connectionist temporal classification, target by target, as loops over times and states."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.backends.naive.cost import warn_if_slow
from tinytorch.backends.naive.lists import to_array
from tinytorch.backends.reference_ctc import check
from tinytorch.dtypes import Array

Rows = list[list[float]]


def log_sum(*terms: float) -> float:
    """log(exp(a) + exp(b) + ...), by the largest, so that nothing overflows."""
    top = max(terms)
    if top == -math.inf or any(x != x for x in terms):
        return sum(terms)
    return top + math.log(sum(math.exp(x - top) for x in terms))


def chain(target: list[int], blank: int) -> list[int]:
    """The labels of the states: a blank before, between and after the target's."""
    labels = [blank]
    for label in target:
        labels += [label, blank]
    return labels


def forward(rows: Rows, labels: list[int]) -> Rows:
    """alpha at each time: the logarithm of the probability of what leads to each state.

    The first row is that before the first time, where an alignment comes from the first blank.
    """
    alphas = [[0.0] + [-math.inf] * (len(labels) - 1)]
    for row in rows:
        old, new = alphas[-1], []
        for s, label in enumerate(labels):
            ways = [old[s]]
            if s >= 1:
                ways.append(old[s - 1])
            if s >= 2 and label != labels[s - 2]:  # over a blank between labels that differ
                ways.append(old[s - 2])
            new.append(log_sum(*ways) + row[label])
        alphas.append(new)
    return alphas


def backward(rows: Rows, labels: list[int]) -> Rows:
    """beta at each time: the logarithm of the probability of what comes after each state."""
    last = len(labels) - 1
    betas = [[0.0 if s >= last - 1 else -math.inf for s in range(last + 1)]]
    for row in reversed(rows[1:]):
        later, new = betas[-1], []
        for s, label in enumerate(labels):
            following = [s, *range(s + 1, last + 1)[:1]]
            if s + 2 <= last and label != labels[s + 2]:
                following.append(s + 2)
            new.append(log_sum(*(later[k] + row[labels[k]] for k in following)))
        betas.append(new)
    return betas[::-1]


def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int,
    zero_infinity: bool,
) -> Array:
    """-log of the probability of each target; see `decompositions_ctc`."""
    check(log_probs, targets, input_lengths, target_lengths)
    _warn("ctc_loss", log_probs, targets)
    losses = []
    for i, (span, size) in enumerate(zip(input_lengths, target_lengths, strict=True)):
        labels = chain(targets[i, :size].tolist(), blank)
        alpha = forward(log_probs[:span, i].tolist(), labels)[-1]
        loss = 0.0 - log_sum(*alpha[-2:])
        losses.append(0.0 if zero_infinity and loss == math.inf else loss)
    return to_array(losses, (len(losses),), log_probs.dtype)


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
    """The gradient of `ctc_loss`: the probability to be in each state, added up by its label."""
    check(log_probs, targets, input_lengths, target_lengths)
    _warn("ctc_loss_backward", log_probs, targets)
    times, n, classes = log_probs.shape
    out: list[list[Any]] = [[[0.0] * classes for _ in range(n)] for _ in range(times)]
    for i, (span, size) in enumerate(zip(input_lengths.tolist(), target_lengths, strict=True)):
        labels, rows = chain(targets[i, :size].tolist(), blank), log_probs[:span, i].tolist()
        alphas, betas = forward(rows, labels), backward(rows, labels)
        total = log_sum(*alphas[-1][-2:])
        for t in range(span):
            if total == -math.inf:  # no alignment
                out[t][i] = [0.0 if zero_infinity else math.nan] * classes
                continue
            for s, label in enumerate(labels):
                share = math.exp(alphas[t + 1][s] + betas[t][s] - total)
                out[t][i][label] -= float(g[i]) * share
    return to_array(out, log_probs.shape, log_probs.dtype)


def _warn(name: str, log_probs: Array, targets: Array) -> None:
    states = 2 * targets.shape[1] + 1
    shape = (*log_probs.shape[:2], states)
    warn_if_slow(name, "elements", log_probs.shape[0] * log_probs.shape[1] * states, shape)
