"""Losses for one class out of several."""

from __future__ import annotations

import operator

from tinytorch import ops
from tinytorch.absent import accepts_size_average
from tinytorch.backends.reference import is_within
from tinytorch.dispatch import apply, assumed
from tinytorch.dtypes import Array, int32, int64
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.elementwise import ne, where
from tinytorch.functions.indexing import gather
from tinytorch.functions.movement import reshape, squeeze, unsqueeze
from tinytorch.functions.reductions import log_softmax, sum
from tinytorch.nn.functional.reduction import check_reduction, reduce_loss
from tinytorch.replay import holds
from tinytorch.tensor import Tensor

IGNORE = -100  # as in PyTorch: the label of what is not to count


@accepts_size_average
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = IGNORE,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(input)[target]), computed from the logarithm, so that nothing overflows.

    Args:
        input: logits (n, classes), (n, classes, ...) or (classes,).
        target: class indices: int64 of shape (n,), (n, ...) or (); or probabilities: floats of the
            shape of input.
        weight: (classes,): how much each class counts.
        ignore_index: indices of this value do not count, in the mean neither.
        reduction: "mean" (weighted, for class indices), "sum", or "none".
        label_smoothing: the part, from 0 to 1, of the target that is spread over all classes.

    Returns:
        A 0-d tensor; for "none", of the shape that class indices have.

    Raises:
        ShapeError, DTypeError: the target is neither; the message gives both shapes.
        IndexError: a class is out of range; the message gives it.
        ValueError: label_smoothing is not within 0 and 1.

    Source: C. Szegedy et al., "Rethinking the inception architecture for computer vision", 2015,
    section 7 (label smoothing).

    >>> import tinytorch
    >>> cross_entropy(tinytorch.zeros(1, 4), tinytorch.tensor([2]))
    tensor(1.3863)
    """
    usual = weight is None and reduction == "mean" and label_smoothing == 0
    if usual and _is_plain(input, target, ignore_index, guarded=True):
        return apply(ops.cross_entropy, input, target)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be from 0 to 1: {label_smoothing}")
    _check_input("cross_entropy", input, weight)
    dim = _class_dim(input)
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    logp = log_softmax(input, dim)
    losses, counts = _picked("cross_entropy", logp, target, weight, ignore_index)
    if label_smoothing:
        spread = -sum(logp if weight is None else logp * _along(weight, logp), dim)
        spread = where(ne(target, ignore_index), spread, 0.0)
        losses = losses * (1 - label_smoothing) + spread * (label_smoothing / input.shape[dim])
    return _weighted(losses, counts, reduction)


@accepts_size_average
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = IGNORE,
    reduction: str = "mean",
) -> Tensor:
    """-input[target]: the negative log likelihood, from log probabilities.

    Args:
        input: log probabilities (n, classes), (n, classes, ...) or (classes,).
        target, weight, ignore_index, reduction: as for `cross_entropy`, with class indices.

    Returns:
        A 0-d tensor; for "none", of the shape of target.

    Raises:
        ShapeError, DTypeError, IndexError: as `cross_entropy`.
    """
    _check_input("nll_loss", input, weight)
    if weight is None and _is_plain(input, target, ignore_index, guarded=False):
        picked = squeeze(apply(ops.gather, input, unsqueeze(target.long(), 1), dim=1), 1)
        return reduce_loss(0.0 - picked, reduction)
    losses, counts = _picked("nll_loss", input, target, weight, ignore_index)
    return _weighted(losses, counts, reduction)


def _picked(
    name: str, logp: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss of each target, and how much the target counts.

    Args:
        name: of the loss that asks, for the messages of `_check_labels`.
        logp: log probabilities (n, classes), (n, classes, ...) or (classes,).
        target: class indices (n,), (n, ...) or ().
        weight: (classes,), how much each class counts; None: 1 each.
        ignore_index: a target of this value counts 0, whatever its log probabilities are.

    Returns:
        -logp[target] times how much it counts, and how much it counts: two tensors of target's
        shape in logp's dtype. What is ignored is 0 in both.
    """
    _check_labels(name, logp, target, ignore_index)
    dim, counted = _class_dim(logp), ne(target, ignore_index)
    label = where(counted, target, 0)  # some class, where it does not count
    picked = squeeze(gather(logp, dim, unsqueeze(label, dim)), dim)
    if weight is None:
        counts = counted.to(logp.dtype)
    else:
        counts = where(counted, apply(ops.take, weight, label), 0.0)
    # a choice and not a product: what is ignored may be infinite
    return where(counted, 0.0 - picked * counts, 0.0), counts


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """-sum(target * log_softmax(input)) over the classes, for target probabilities.

    Args:
        input: logits (n, classes), (n, classes, ...) or (classes,).
        target: probabilities of the same shape.
        weight: (classes,), how much each class counts; None: 1 each.
        reduction: "none", "sum", or "mean" over the samples, weighted or not.
        smoothing: this part of each target is spread evenly over all classes.

    Raises:
        ShapeError: target has another shape than input; the message gives both.
    """
    if target.shape != input.shape:
        raise ShapeError(
            f"cross_entropy: a {target.dtype.name} target holds probabilities and must have the "
            f"shape {input.shape} of the input, not {target.shape}; class indices are int64"
        )
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)


def _is_plain(input: Tensor, target: Tensor, ignore_index: int, *, guarded: bool) -> bool:
    """Whether there are rows of logits, and a class from 0 on for each.

    Args:
        guarded: in a trace it is enough that the example has no label that is to be ignored, which
            each call then looks for: the graph looks for the range itself. Worth it for a fused op.
    """
    rows, shape = input.meta, input.meta.shape
    if len(shape) != 2 or target.meta.shape != shape[:1] or 0 in shape:
        return False
    if not rows.dtype.is_floating_point or 0 <= operator.index(ignore_index) < shape[1]:
        return False
    if target.meta.dtype not in (int32, int64):
        return False
    if holds(target, is_within, shape[1], traced=False):
        return True
    return guarded and bool(assumed(target, _none_is, ignore_index))


def _none_is(labels: Array, label: int) -> bool:
    """Whether no label is this one. Most often all are from 0 on, and it is negative."""
    if not labels.size or (label < 0 <= labels.item(labels.argmin())):
        return True
    return not (labels == label).any()


def _class_dim(input: Tensor) -> int:
    return 0 if input.ndim == 1 else 1


def _along(weight: Tensor, input: Tensor) -> Tensor:
    """Class weights in the shape in which they meet the input."""
    return reshape(weight, (-1, *(1,) * (input.ndim - _class_dim(input) - 1)))


def _check_input(name: str, input: Tensor, weight: Tensor | None) -> None:
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name}: input must be floating-point, not {input.dtype.name}")
    if input.ndim == 0 or input.shape[_class_dim(input)] == 0:
        raise ShapeError(f"{name}: input {input.shape} must be (n, classes, ...) or (classes,)")
    if weight is not None:
        check_class_weight(name, input, weight)


def check_class_weight(name: str, input: Tensor, weight: Tensor) -> None:
    """Raise ShapeError unless there is a number for each class of the input."""
    classes = input.shape[_class_dim(input)]
    if weight.shape != (classes,):
        raise ShapeError(
            f"{name}: weight {weight.shape} must be ({classes},), one number for each class of "
            f"input {input.shape}"
        )


def _check_labels(name: str, input: Tensor, target: Tensor, ignore_index: int) -> None:
    ignore_index = operator.index(ignore_index)
    dim = _class_dim(input)
    classes, expected = input.shape[dim], input.shape[:dim] + input.shape[dim + 1 :]
    if target.dtype not in (int32, int64):
        raise DTypeError(
            f"{name}: class indices must be int64, not {target.dtype.name}; use target.long()"
        )
    if target.shape != expected:
        raise ShapeError(
            f"{name}: for input {input.shape} class indices must have shape {expected}, not "
            f"{target.shape}"
        )
    if not holds(target, _are_classes, classes, ignore_index, traced=True):
        wrong = next(t for t in target._data.ravel() if t != ignore_index and not 0 <= t < classes)
        raise IndexError(
            f"{name}: class {int(wrong)} is out of range: input {input.shape} has classes 0 "
            f"to {classes - 1} (ignore_index is {ignore_index})"
        )


def _are_classes(labels: Array, classes: int, ignore_index: int) -> bool:
    """Whether each is in [0, classes), or to be ignored."""
    is_wrong = (labels != ignore_index) & ((labels < 0) | (labels >= classes))
    return bool(is_within(labels, classes)) or not is_wrong.any()


def _weighted(losses: Tensor, counts: Tensor, reduction: str) -> Tensor:
    """Losses that are weighted already, as they are or as one number.

    Args:
        losses: of the elements, multiplied by `counts`.
        counts: how much each element counts, of the same shape.
        reduction: "none", "sum", or "mean": the sum of the losses over the sum of the counts,
            which is NaN where nothing counts.

    Raises:
        ValueError: as `check_reduction`.
    """
    check_reduction(reduction)
    if reduction == "none":
        return losses
    total = sum(losses)
    return total / sum(counts) if reduction == "mean" else total
