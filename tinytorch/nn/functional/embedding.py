"""Look-up of trained vectors."""

from __future__ import annotations

import operator

import numpy as np

from tinytorch import ops
from tinytorch.autograd import no_grad
from tinytorch.creation import from_numpy
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.indexing import check_range
from tinytorch.functions.movement import unsqueeze
from tinytorch.functions.reductions import norm
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
