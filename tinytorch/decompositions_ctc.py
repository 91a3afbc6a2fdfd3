"""What connectionist temporal classification and its gradient mean, in terms of the other ops.

A target of L labels, with a blank before, between and after them, is a chain of 2 L + 1 states. An
alignment is in one state at each time; from one time to the next it stays, goes on to the next
state, or jumps over a blank between two labels that differ. The loss is -log of the sum of the
probabilities of all alignments that end in the last label or the blank after it.

Importing this module attaches them to the op table by name, as `decompositions.py` does.

Source: A. Graves et al., "Connectionist temporal classification", 2006, section 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tinytorch import ops
from tinytorch.decompositions import decomposition
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_INT, bool_
from tinytorch.functions.elementwise import (
    clip,
    exp,
    le,
    logical_and,
    logical_not,
    lt,
    ne,
    where,
)
from tinytorch.functions.indexing import gather, looked_at
from tinytorch.functions.movement import cat, expand, in_shape, narrow, stack, unsqueeze
from tinytorch.functions.reductions import logsumexp

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

IMPOSSIBLE = -1e30  # the logarithm of a probability of 0 that sums and gradients can bear


class _Chain(NamedTuple):
    """The states of each target.

    Attributes:
        labels: (n, states), the class of each state.
        may_jump: (n, states), whether the state is reached from the one before the last.
        ends: (n, states), whether an alignment may end there.
        input_lengths: (n, 1).
    """

    labels: Tensor
    may_jump: Tensor
    ends: Tensor
    input_lengths: Tensor


@decomposition
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """-log of the probability of each label sequence, over all its alignments with the input.

        alpha_t(s) = log(exp alpha_t-1(s) + exp alpha_t-1(s - 1) + [exp alpha_t-1(s - 2)])
                     + log_probs_t(label(s))

    Args:
        log_probs: (time, n, classes).
        targets: (n, longest); what is beyond a target's length may be anything.
        input_lengths: (n,), 0 to time.
        target_lengths: (n,), 0 to longest.
        blank: the class that stands for no label.
        zero_infinity: a sequence without alignments costs 0, and not infinity.

    Returns:
        (n,)

    Raises:
        IndexError: a length or a label is out of range.

    Source: equations 5 to 8.
    """
    chain = _chain_of(log_probs, targets, input_lengths, target_lengths, blank)
    alpha = _beginning(log_probs, chain)
    for t in range(log_probs.shape[0]):
        alpha = _forward(alpha, _emissions(log_probs, chain, t), chain, t)
    total = _total(alpha, chain)
    return where(total < IMPOSSIBLE / 2, 0.0 if zero_infinity else math.inf, 0.0 - total)


@decomposition
def ctc_loss_backward(
    g: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The gradient of `ctc_loss` for the log probabilities.

        beta_t(s) = the same sum as alpha, from the end, without the probability at t itself
        gradient_t(k) = -g sum over s with label(s) = k of exp(alpha_t(s) + beta_t(s) + loss)

    Args:
        g: (n,), the gradient of the losses.
        log_probs, targets, input_lengths, target_lengths, blank, zero_infinity: as there.

    Returns:
        Of the shape of log_probs; 0 from a sequence's end on. NaN before, where the loss is
        infinite.

    Source: equations 9 to 15.
    """
    times, n, classes = log_probs.shape
    if not times:
        return apply(ops.copy, log_probs)
    chain = _chain_of(log_probs, targets, input_lengths, target_lengths, blank)
    emissions = [_emissions(log_probs, chain, t) for t in range(times)]
    alphas = [_beginning(log_probs, chain)]
    for t in range(times):
        alphas.append(_forward(alphas[-1], emissions[t], chain, t))
    total = unsqueeze(_total(alphas[-1], chain), 1)
    lost = total < IMPOSSIBLE / 2
    beta = last = where(chain.ends, _all(0.0, log_probs, chain), IMPOSSIBLE)
    nothing = apply(ops.full, shape=(n, classes), value=0.0, dtype=log_probs.dtype)
    gradients = []
    for t in reversed(range(times)):
        if t + 1 < times:
            goes_on = lt(t + 1, chain.input_lengths)
            beta = where(goes_on, _backward(beta + emissions[t + 1], chain), last)
        counts = logical_and(lt(t, chain.input_lengths), logical_not(lost))
        shares = exp(where(counts, alphas[t + 1] + beta - total, IMPOSSIBLE)) * unsqueeze(g, 1)
        given = apply(ops.scatter, nothing, chain.labels, 0.0 - shares, dim=1, reduce="add")
        if not zero_infinity:
            given = where(logical_and(lt(t, chain.input_lengths), lost), math.nan, given)
        gradients.append(given)
    return stack(gradients[::-1])


def _chain_of(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> _Chain:
    n, longest = targets.shape
    input_lengths = unsqueeze(looked_at(input_lengths, log_probs.shape[0] + 1), 1)
    target_lengths = unsqueeze(looked_at(target_lengths, longest + 1), 1)
    label = where(lt(_counted(longest), target_lengths), targets, blank)
    blanks = apply(ops.full, shape=(n, 1), value=blank, dtype=DEFAULT_INT)
    pairs = stack([expand(blanks, (n, longest)), label], 2)
    labels = cat([in_shape(pairs, (n, 2 * longest)), blanks], 1)
    before = narrow(cat([expand(blanks, (n, 2)), labels], 1), 1, 0, 2 * longest + 1)
    # a blank comes two before a blank; the first label is not reached from further away
    may_jump = logical_and(ne(labels, before), lt(1, _counted(2 * longest + 1)))
    states, last = _counted(2 * longest + 1), 2 * target_lengths
    ends = logical_and(le(states, last), lt(last - 2, states))
    return _Chain(labels, may_jump, ends, input_lengths)


def _counted(stop: int) -> Tensor:
    return apply(ops.arange, start=0, stop=stop, step=1, dtype=DEFAULT_INT)


def _all(value: float, log_probs: Tensor, chain: _Chain, width: int = 0) -> Tensor:
    """(n, states), or (n, width), of one value."""
    n, states = chain.labels.shape
    return apply(ops.full, shape=(n, width or states), value=value, dtype=log_probs.dtype)


def _beginning(log_probs: Tensor, chain: _Chain) -> Tensor:
    """alpha before the first time: an alignment comes from the first blank, and from there only."""
    is_first = le(_counted(chain.labels.shape[1]), 0)
    return where(is_first, _all(0.0, log_probs, chain), IMPOSSIBLE)


def _emissions(log_probs: Tensor, chain: _Chain, t: int) -> Tensor:
    """(n, states): what each state's label costs at time t."""
    return gather(in_shape(narrow(log_probs, 0, t, 1), log_probs.shape[1:]), 1, chain.labels)


def _forward(alpha: Tensor, emission: Tensor, chain: _Chain, t: int) -> Tensor:
    """alpha at time t from that before; as it was, where the input has ended."""
    states = alpha.shape[1]
    padded = cat([_all(IMPOSSIBLE, alpha, chain, 2), alpha], 1)
    jump, step, stay = (narrow(padded, 1, start, states) for start in range(3))
    ways = stack([stay, step, where(chain.may_jump, jump, IMPOSSIBLE)])
    new = clip(logsumexp(ways, 0) + emission, min=IMPOSSIBLE)
    return where(lt(t, chain.input_lengths), new, alpha)


def _backward(beta: Tensor, chain: _Chain) -> Tensor:
    """The sum over the states that come next of what `beta` says of each."""
    n, states = beta.shape
    padded = cat([beta, _all(IMPOSSIBLE, beta, chain, 2)], 1)
    no = apply(ops.full, shape=(n, 2), value=False, dtype=bool_)
    may_jump = narrow(cat([chain.may_jump, no], 1), 1, 2, states)
    stay, step, jump = (narrow(padded, 1, start, states) for start in range(3))
    ways = stack([stay, step, where(may_jump, jump, IMPOSSIBLE)])
    return clip(logsumexp(ways, 0), min=IMPOSSIBLE)


def _total(alpha: Tensor, chain: _Chain) -> Tensor:
    """(n,): the logarithm of the probability of all alignments."""
    return logsumexp(where(chain.ends, alpha, IMPOSSIBLE), 1)
