"""Functions that arrange tensors: joined, repeated, split, turned, as grids.

They are made of those of `movement`, and of `take`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import meta_of_array
from tinytorch.errors import ShapeError
from tinytorch.functions.conversion import contiguous
from tinytorch.functions.dims import named_or_not, normalize_dim
from tinytorch.functions.movement import (
    cat,
    expand,
    flip,
    narrow,
    permute,
    repeat,
    reshape,
    split,
    transpose,
    unsqueeze,
)
from tinytorch.functions.publish import publish
from tinytorch.replay import replayed

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions moved to other positions; the others keep their order.

    Raises:
        ValueError: there are not as many positions as dimensions, or one is named twice.

    >>> from tinytorch import zeros
    >>> movedim(zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    sources = [normalize_dim(d, x.ndim) for d in sources]
    targets = [normalize_dim(d, x.ndim) for d in targets]
    if len(sources) != len(targets) or len({*sources}) < len(sources) > len({*targets}):
        raise ValueError(f"movedim: {sources} and {targets} must be as many, each named once")
    rest = iter(d for d in range(x.ndim) if d not in sources)
    place = dict(zip(targets, sources, strict=True))
    return permute(x, *[place[d] if d in place else next(rest) for d in range(x.ndim)])


def ravel(x: Tensor) -> Tensor:
    """The elements in row-major order, 1-d; a copy where they are not so in memory."""
    return contiguous(x).flatten()


def tile(x: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """`repeat`, where fewer repeats than dimensions stand for the last ones."""
    counts = named_or_not(given, dims)
    return repeat(x, (1,) * (x.ndim - len(counts)) + counts)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, all expanded to their common shape."""
    shape = np.broadcast_shapes(*(t.shape for t in tensors))
    return tuple(expand(t, shape) for t in tensors)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of the points of a grid, from the coordinates along each axis.

    Args:
        tensors: n vectors (or 0-d), of sizes s1, ..., sn; also as one list.
        indexing: "ij" for results of shape (s1, s2, ...), "xy" for (s2, s1, ...).

    Raises:
        ShapeError: one has more than one dimension.
        ValueError: `indexing` is neither.

    >>> from tinytorch import arange
    >>> meshgrid(arange(2), arange(3))[1]
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing is 'ij' or 'xy', not {indexing!r}")
    if any(t.ndim > 1 for t in tensors):
        raise ShapeError(f"meshgrid takes vectors, not {[t.shape for t in tensors]}")
    vectors = [reshape(t, (-1,)) for t in tensors]
    shape = tuple(v.shape[0] for v in vectors)
    grids = [
        expand(reshape(v, (-1, *(1,) * (len(shape) - i - 1))), shape) for i, v in enumerate(vectors)
    ]
    if indexing == "xy" and len(grids) > 1:
        grids = [transpose(g, 0, 1) for g in grids]
    return tuple(grids)


def _at_least(x: Tensor, ndim: int) -> Tensor:
    return reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)) if x.ndim < ndim else x


def atleast_1d(*tensors: Any) -> Any:
    """A 0-d tensor as (1,); several as a tuple."""
    return _each(tensors, lambda x: _at_least(x, 1))


def atleast_2d(*tensors: Any) -> Any:
    """The tensor with leading dimensions of size 1 up to two; several as a tuple."""
    return _each(tensors, lambda x: _at_least(x, 2))


def atleast_3d(*tensors: Any) -> Any:
    """The tensor in 3 dimensions: (m, n) as (m, n, 1), (n,) as (1, n, 1); several as a tuple."""
    return _each(tensors, lambda x: unsqueeze(_at_least(x, 2), -1) if x.ndim < 3 else x)


def _each(tensors: tuple[Any, ...], function: Any) -> Any:
    if len(tensors) == 1:
        (given,) = tensors
        return tuple(map(function, given)) if isinstance(given, (list, tuple)) else function(given)
    return tuple(map(function, tensors))


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along the second dimension, vectors along the first.

    >>> from tinytorch import zeros
    >>> hstack([zeros(2), zeros(3)]).shape, hstack([zeros(2, 1), zeros(2, 3)]).shape
    ((5,), (2, 4))
    """
    parts = atleast_1d(list(tensors))
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along the first dimension; vectors become rows."""
    return cat(atleast_2d(list(tensors)), 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along the third dimension, after `atleast_3d`."""
    return cat(atleast_3d(list(tensors)), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along the second dimension; vectors become columns."""
    return cat([x if x.ndim > 1 else reshape(x, (-1, 1)) for x in tensors], 1)


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """The slice `index` along `dim`, without that dimension.

    Raises:
        IndexError: x does not have it, or is 0-d.
    """
    if not x.ndim:
        raise IndexError("select: a 0-d tensor has no dimension to select from")
    return x[(slice(None),) * normalize_dim(dim, x.ndim) + (operator.index(index),)]


def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0) -> Any:
    """Pieces along `dim`: so many, whose sizes differ by at most 1; or between the indices listed.

    Raises:
        ValueError: into fewer than one.

    >>> from tinytorch import arange
    >>> tensor_split(arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    extent = x.shape[normalize_dim(dim, x.ndim)]
    if is_tensor(indices_or_sections):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ValueError(f"tensor_split: into {indices_or_sections} pieces")
        small, larger = divmod(extent, indices_or_sections)
        sizes = [small + (i < larger) for i in range(indices_or_sections)]
        return split(x, sizes, dim)
    cuts = [slice(None, int(i)).indices(extent)[1] for i in indices_or_sections]
    ends = zip([0, *cuts], [*cuts, extent], strict=True)
    return tuple(narrow(x, dim, a, max(0, b - a)) for a, b in ends)


def repeat_interleave(
    x: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice along `dim`) repeated, next to itself.

    Args:
        repeats: how often; or integers, one for each slice (which cannot be traced).
        dim: None for the flattened tensor.
        output_size: how many slices there will be, if it is known.

    Raises:
        ShapeError: there are not as many repeats as slices, or not `output_size` slices.
        ValueError: a number is negative.

    >>> from tinytorch import tensor
    >>> repeat_interleave(tensor([1, 2]), 2), repeat_interleave(tensor([1, 2]), tensor([1, 2]))
    (tensor([1, 1, 2, 2]), tensor([1, 2, 2]))
    """
    if dim is None or not x.ndim:
        x, dim = reshape(x, (-1,)), 0
    dim = normalize_dim(dim, x.ndim)
    if isinstance(repeats, int):
        if repeats < 0:
            raise ValueError(f"repeat_interleave: {repeats} is negative")
        before, after = x.shape[: dim + 1], x.shape[dim + 1 :]
        _check_output_size(output_size, before[-1] * repeats)
        wide = expand(unsqueeze(x, dim + 1), (*before, repeats, *after))
        wide = apply(ops.copy, wide)  # of once, or of one element, the rest would be a view
        return reshape(wide, (*before[:-1], before[-1] * repeats, *after))
    counts = np.asarray(repeats._concrete("repeat_interleave")).reshape(-1)
    if len(counts) not in (1, x.shape[dim]):
        raise ShapeError(
            f"repeat_interleave: {len(counts)} repeats for {x.shape[dim]} slices along {dim}"
        )
    if (counts < 0).any():
        raise ValueError(f"repeat_interleave: {counts.min()} is negative")
    positions = np.repeat(np.arange(x.shape[dim]), counts if len(counts) else 0)
    _check_output_size(output_size, len(positions))
    rows = apply(ops.take, transpose(x, 0, dim), wrap(positions, meta_of_array(positions)))
    return transpose(rows, 0, dim)


def _check_output_size(said: int | None, size: int) -> None:
    if said not in (None, size):
        raise ShapeError(f"repeat_interleave: output_size is {said}, but there are {size} slices")


def fliplr(x: Tensor) -> Tensor:
    """The tensor reversed along the second dimension."""
    return flip(x, 1)


def flipud(x: Tensor) -> Tensor:
    """The tensor reversed along the first dimension."""
    return flip(x, 0)


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor turned by k times 90 degrees in the plane of two dimensions, from the first to the
    second."""
    first, second = dims
    turns = operator.index(k) % 4
    if turns == 2:
        return flip(x, first, second)
    if not turns:
        return apply(ops.copy, x)
    data = x._data  # what is reversed is to be read along memory
    by_columns = isinstance(data, np.ndarray) and not data.flags.c_contiguous
    reverse = first if (turns == 1) == by_columns else second
    out: Tensor = _quarter_turn(x, first, second, reverse, int(by_columns))
    return out


@replayed
def _quarter_turn(x: Tensor, first: int, second: int, reverse: int, turns_first: int) -> Tensor:
    if turns_first:
        return flip(transpose(x, first, second), reverse)
    return transpose(flip(x, reverse), first, second)


publish(
    globals(),
    replayed="movedim tile broadcast_tensors meshgrid tensor_split repeat_interleave select "
    "fliplr flipud hstack vstack dstack column_stack",
    functions="hstack vstack dstack column_stack meshgrid broadcast_tensors "
    "atleast_1d atleast_2d atleast_3d",
    aliases={"row_stack": "vstack", "moveaxis": "movedim"},
)
