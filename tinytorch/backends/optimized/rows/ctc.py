"""Connectionist temporal classification: target by target, all states at a time as vector code.

    alpha_t(s) = log(exp alpha_t-1(s) + exp alpha_t-1(s - 1) + [exp alpha_t-1(s - 2)]) + x_t(l(s))

The recursion over time cannot be vectorised; the states of one time can, once their labels' log
probabilities lie in a row. Sums of logarithms are in float64: an error of alpha, which grows with
the length of the input, is a relative error of every gradient.

The gradient computes alpha once more: to keep it would take as much memory as the log probabilities
of twice as many classes as the target has labels.

Source: A. Graves et al., "Connectionist temporal classification", 2006, section 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.logarithms import log
from tinytorch.backends.optimized.elementwise.math import EXACT, exp_of_negative
from tinytorch.backends.reference_ctc import check
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

STEPS = 30  # a state of one time costs about as much as this many additions
NOTHING = -np.inf


@kernel(force_inline=True, fastmath=EXACT)
def _sum_of(stay: Any, step: Any, jump: Any) -> Any:
    """log(exp(stay) + exp(step) + exp(jump)): -inf for three of them, NaN if one is."""
    top = step if step > stay else stay
    top = jump if jump > top else top
    shift = 0.0 if top == NOTHING else top
    total = exp_of_negative(stay - shift) + exp_of_negative(step - shift)
    return log(total + exp_of_negative(jump - shift)) + shift


@kernel(fastmath=EXACT)
def _label_states(
    target: Array, size: int, blank: int, classes: int, labels: Array, jumps: Array
) -> bool:
    """The label of each state, and whether it may be jumped to.

    Returns:
        Whether there are so many labels, and all are classes.
    """
    fits = 0 <= size <= target.size
    size = size if fits else 0
    for s in range(0, 2 * size + 1, 2):
        labels[s], jumps[s] = blank, False
    for k in range(size):
        label = target[k]
        fits = fits and 0 <= label < classes
        labels[2 * k + 1] = label
        jumps[2 * k + 1] = k > 0 and label != target[k - 1]
    return fits


@kernel(fastmath=EXACT)
def _forward(
    x: Array, i: int, span: int, labels: Array, jumps: Array, alphas: Array, emission: Array
) -> float:
    """Fill `alphas`: a row for each time after that for none, or only two rows, in turn.

    Args:
        x: (time, n, classes); i, the sample; span, how many times count.
        labels, jumps: (states,)
        alphas: (span + 1 or 2, at least states + 2), with two states in front from which nothing
            comes.
        emission: scratch, (at least states,)

    Returns:
        The logarithm of the probability of all alignments.
    """
    states, kept = labels.size, alphas.shape[0]
    alphas[0, :] = NOTHING
    alphas[0, 2] = 0.0
    for t in range(span):
        row, old, new = x[t, i], alphas[t % kept], alphas[(t + 1) % kept]
        for s in range(states):
            emission[s] = row[labels[s]]
        new[0], new[1] = NOTHING, NOTHING
        for s in range(states):
            jump = old[s] if jumps[s] else NOTHING
            new[s + 2] = _sum_of(old[s + 2], old[s + 1], jump) + emission[s]
    last = alphas[span % kept]
    return _sum_of(last[states + 1], last[states], NOTHING)


@kernel(fastmath=EXACT)
def _losses(
    samples: Array,
    x: Array,
    targets: Array,
    spans: Array,
    sizes: Array,
    blank: int,
    losses: Array,
    problem: Array,
) -> None:
    """The loss of each of the samples; `problem` is set where a length or label is out of range."""
    times, classes, longest = x.shape[0], x.shape[2], targets.shape[1]
    width = 2 * longest + 1
    labels, jumps = np.empty(width, np.int64), np.empty(width, np.bool_)
    alphas, emission = np.empty((2, width + 2)), np.empty(width)
    for k in range(samples.size):
        span, states = spans[k], 2 * sizes[k] + 1
        fits = _label_states(targets[k], sizes[k], blank, classes, labels, jumps)
        if fits and 0 <= span <= times:
            own, may = labels[:states], jumps[:states]
            losses[k] = 0.0 - _forward(x, samples[k], span, own, may, alphas, emission)
        else:
            problem[0] = True


@kernel(fastmath=EXACT)
def _backward(
    x: Array,
    i: int,
    span: int,
    labels: Array,
    jumps: Array,
    alphas: Array,
    total: float,
    scale: float,
    later: Array,
    now: Array,
    out: Array,
) -> None:
    """Add scale times the probability to be in each state at each time to its label's gradient.

    Args:
        x, i, span, labels, jumps, alphas, total: as for `_forward`, and what it returns.
        later, now: scratch, (at least states + 2,)
        out: (time, n, classes)
    """
    states = labels.size
    now[:] = NOTHING
    later[states:] = NOTHING  # two states behind the last, to which nothing goes
    blank = labels[0]
    for t in range(span - 1, -1, -1):
        if t == span - 1:
            now[max(states - 2, 0) : states] = 0.0
        else:
            row = x[t + 1, i]
            for s in range(states):
                later[s] = now[s] + row[labels[s]]
            for s in range(states):
                # a jump from a label leads to the next one
                jump = later[s + 2] if jumps[min(s + 2, states - 1)] else NOTHING
                now[s] = _sum_of(later[s], later[s + 1], jump)
        alpha, shares, gradient = alphas[t + 1], later, out[t, i]
        for s in range(states):
            shares[s] = exp_of_negative(alpha[s + 2] + now[s] - total) * scale
        sum_of_blanks = 0.0
        for s in range(0, states, 2):
            sum_of_blanks += shares[s]
        gradient[blank] += sum_of_blanks
        for s in range(1, states, 2):
            gradient[labels[s]] += shares[s]


@kernel(fastmath=EXACT)
def _gradients(
    samples: Array,
    g: Array,
    x: Array,
    targets: Array,
    spans: Array,
    sizes: Array,
    blank: int,
    zero_infinity: bool,
    out: Array,
    problem: Array,
) -> None:
    """The gradients of each of the samples, in `out` (time, n, classes)."""
    times, classes, longest = x.shape[0], x.shape[2], targets.shape[1]
    width = 2 * longest + 1
    labels, jumps = np.empty(width, np.int64), np.empty(width, np.bool_)
    alphas = np.empty((times + 1, width + 2))
    scratch = np.empty((2, width + 2))
    for k in range(samples.size):
        i, span, states = samples[k], spans[k], 2 * sizes[k] + 1
        for t in range(times):
            out[t, i, :] = 0
        fits = _label_states(targets[k], sizes[k], blank, classes, labels, jumps)
        if not (fits and 0 <= span <= times):
            problem[0] = True
        else:
            own, may = labels[:states], jumps[:states]
            total = _forward(x, i, span, own, may, alphas, scratch[0])
            if total != NOTHING:
                _backward(x, i, span, own, may, alphas, total, -g[k], scratch[0], scratch[1], out)
            elif not zero_infinity:
                for t in range(span):
                    out[t, i, :] = np.nan


_run_losses = shared(
    _losses, "samples[:], x, targets[:], spans[:], sizes[:], blank, losses[:], problem"
)
_run_gradients = shared(
    _gradients,
    "samples[:], g[:], x, targets[:], spans[:], sizes[:], blank, zero_infinity, out, problem",
)


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
    x, *of_samples = map(contiguous, (log_probs, targets, input_lengths, target_lengths))
    losses, problem = np.empty(x.shape[1], x.dtype), np.zeros(1, np.bool_)
    _run_losses(_steps(x, targets), np.arange(x.shape[1]), x, *of_samples, blank, losses, problem)
    if problem[0]:
        check(log_probs, targets, input_lengths, target_lengths)
    if zero_infinity:
        losses[losses == np.inf] = 0
    return losses


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
    x, *of_samples = map(contiguous, (log_probs, targets, input_lengths, target_lengths))
    out, problem = buffers.empty(x.shape, x.dtype), np.zeros(1, np.bool_)
    _run_gradients(
        2 * _steps(x, targets) + x.size, np.arange(x.shape[1]), contiguous(g), x, *of_samples,
        blank, zero_infinity, out, problem,
    )  # fmt: skip
    if problem[0]:
        check(log_probs, targets, input_lengths, target_lengths)
    return out


def _steps(x: Array, targets: Array) -> int:
    return x.shape[0] * STEPS * (2 * targets.size + x.shape[1])
