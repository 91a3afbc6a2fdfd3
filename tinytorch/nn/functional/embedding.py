"""Look-up of trained vectors."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.indexing import check_range
from tinytorch.functions.movement import unsqueeze
from tinytorch.tensor import Tensor


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """weight[index]

    Args:
        index: integers (...).
        weight: (rows, width)
        padding_idx: a row that gets no gradient.

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
    check_range(index, weight.shape[0], "embedding: index")
    out = apply(ops.take, weight, index)
    padding = row_index(padding_idx, weight.shape[0], "padding_idx")
    if padding is None:
        return out
    return where(unsqueeze(index == padding, -1), out.detach(), out)


def row_index(row: int | None, rows: int, what: str) -> int | None:
    """A row counted from the front; a negative one counts from the end.

    Raises:
        ValueError: there is no such row.
    """
    if row is None:
        return None
    if not -rows <= row < rows:
        raise ValueError(f"{what} {row} is out of range: there are {rows} rows")
    return row % rows
