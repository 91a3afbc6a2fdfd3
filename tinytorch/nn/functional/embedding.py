"""Look-up of trained vectors."""

from __future__ import annotations

import math
import operator

import numpy as np

from tinytorch import ops
from tinytorch.autograd import no_grad
from tinytorch.creation import arange, from_numpy, full, zeros
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.indexing import check_range
from tinytorch.functions.movement import unsqueeze
from tinytorch.functions.ordering import searchsorted
from tinytorch.functions.reductions import norm
from tinytorch.state import no_mode_active
from tinytorch.tensor import Tensor


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """weight[index]

    Args:
        input: the indices, integers (...).
        weight: (rows, width)
        padding_idx: a row that gets no gradient.
        max_norm: rows that are looked up are first made at most so long, in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up.
        sparse: changes nothing: all gradients are dense.

    Returns:
        (..., width)

    Raises:
        IndexError: an index is out of range; the message gives it. (Not checked in a trace.)
        DTypeError: the index is not of integers.
        ShapeError: the weight is not a matrix.
        ValueError: padding_idx is not a row.
    """
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the weight must be (rows, width), not {weight.shape}")
    check_range(input, weight.shape[0], "embedding: index")
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    out = apply(ops.take, weight, input)
    if scale_grad_by_freq:
        counts = np.bincount(input._concrete("embedding").ravel(), minlength=weight.shape[0])
        share = 1.0 / unsqueeze(from_numpy(counts.astype(weight.dtype.dtype))[input], -1)
        out = (out * (1.0 - share)).detach() + out * share
    padding = row_index(padding_idx, weight.shape[0], "padding_idx")
    if padding is None:
        return out
    return where(unsqueeze(input == padding, -1), out.detach(), out)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of `weight` in each bag of indices; 0 for an empty bag.

    Args:
        input: the indices, integers: (bags, length); or (n,), all bags one after the other.
        weight: (rows, width)
        offsets: (bags,), where each bag begins in an input (n,): from 0 on, ascending.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for `embedding`.
        mode: "sum", "mean" or "max".
        per_sample_weights: of the input's shape; each row is multiplied by its own. For sums.
        include_last_offset: the last offset is the input's length, and begins no bag.
        padding_idx: a row that is in no bag, wherever it is in the input; it gets no gradient.

    Returns:
        (bags, width)

    Raises:
        As `embedding`, and
        ShapeError: input, offsets or weights of samples have another shape.
        ValueError: there is no such mode; weights of samples for another one than "sum"; offsets
            that do not begin at 0, descend, or are beyond the input. (Not checked in a trace.)

    >>> from tinytorch import arange, tensor
    >>> table = arange(8.0).reshape(4, 2)
    >>> embedding_bag(tensor([1, 2, 3]), table, tensor([0, 2]), mode="sum")
    tensor([[6., 8.],
            [6., 7.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode is 'sum', 'mean' or 'max', not {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ValueError(f"embedding_bag: per_sample_weights are for mode='sum', not {mode!r}")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ShapeError(
            f"embedding_bag: per_sample_weights {per_sample_weights.shape} for input {input.shape}"
        )
    begins = _begins_of_bags(input, offsets, include_last_offset)
    rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * unsqueeze(per_sample_weights, -1)
    padding = row_index(padding_idx, weight.shape[0], "padding_idx")
    kept = full(input.shape, True) if padding is None else input != padding
    if begins is None:
        return _pooled(rows, kept, mode)
    if mode == "max" and input.shape[0]:
        return _pooled(*_one_bag_a_row(rows, kept, begins), mode)
    bags = searchsorted(begins, arange(input.shape[0]), right=True) - 1
    rows = where(unsqueeze(kept, -1), rows, 0.0)
    total = zeros(begins.shape[0], rows.shape[-1], dtype=rows.dtype).index_add(0, bags, rows)
    if mode != "mean":
        return total
    counts = zeros(begins.shape[0], dtype=rows.dtype).index_add(0, bags, kept.to(rows.dtype))
    return total / unsqueeze(counts.clip(min=1.0), -1)


def _begins_of_bags(input: Tensor, offsets: Tensor | None, includes_last: bool) -> Tensor | None:
    """Where each bag of an input (n,) begins; None for an input whose rows are bags."""
    if input.ndim == 2 and offsets is None:
        return None
    if input.ndim != 1 or offsets is None or offsets.ndim != 1:
        given = "no offsets" if offsets is None else f"offsets {offsets.shape}"
        raise ShapeError(
            "embedding_bag takes an input (bags, length), or (n,) with offsets (bags,), not "
            f"{input.shape} with {given}"
        )
    if no_mode_active():
        first, length = offsets.tolist(), input.shape[0]
        most = "" if includes_last else "at most "
        is_far = first[-1:] != [length] if includes_last else first[-1:] > [length]
        if first[:1] != [0] or first != sorted(first) or is_far:
            raise ValueError(
                f"embedding_bag: offsets ascend from 0 to {most}{length}, the length of the "
                f"input, not {first[:10]}"
            )
    return offsets[:-1] if includes_last else offsets


def _one_bag_a_row(rows: Tensor, kept: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, width) as (bags, length of the longest, width), and which of these there are."""
    first = begins._concrete("embedding_bag with offsets and mode='max'")
    lengths = np.diff(first, append=rows.shape[0])
    steps = np.arange(max(int(lengths.max(initial=0)), 1))
    places = from_numpy(np.minimum(first[:, None] + steps, rows.shape[0] - 1))
    return rows[places], kept[places] & from_numpy(steps < lengths[:, None])


def _pooled(rows: Tensor, kept: Tensor, mode: str) -> Tensor:
    """The sum, mean or maximum over the bags (bags, length, width) of what is kept."""
    if mode != "max":
        total = where(unsqueeze(kept, -1), rows, 0.0).sum(1)
        return total if mode == "sum" else total / kept.sum(1, keepdim=True).clip(min=1)
    if not rows.shape[1]:
        return zeros(rows.shape[0], rows.shape[2], dtype=rows.dtype)
    largest, _ = where(unsqueeze(kept, -1), rows, -math.inf).max(1)
    return where(unsqueeze(kept.any(1), -1), largest, 0.0)


def _shorten(index: Tensor, weight: Tensor, max_norm: float, p: float) -> None:
    """Make the rows that are looked up at most `max_norm` long, in place."""
    with no_grad():
        rows = from_numpy(np.unique(index._concrete("embedding with max_norm")))
        found = apply(ops.take, weight.detach(), rows)
        lengths = norm(found, p, -1, keepdim=True)
        weight[rows] = found * where(lengths > max_norm, max_norm / (lengths + 1e-7), 1.0)


def row_index(row: int | None, rows: int, what: str) -> int | None:
    """A row counted from the front; a negative one counts from the end.

    Raises:
        ValueError: there is no such row.
    """
    if row is None:
        return None
    if not -rows <= operator.index(row) < rows:
        raise ValueError(f"{what} {row} is out of range: there are {rows} rows")
    return row % rows
