"""Functions that order, count or find elements.

`dim` counts from the end if negative. NaN counts as larger than every number, as in PyTorch.
Functions whose result's size depends on the values (`unique`, `nonzero`, `bincount`) cannot be
traced, and say so.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import Array, DType, bfloat16, float16, int32, int64, meta_of_array
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions import elementwise, indexing, movement, reductions
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.functions.reductions import ValuesAndIndices, at_index
from tinytorch.functions.value_checks import check_not_negative
from tinytorch.jit import buffers
from tinytorch.replay import holds
from tinytorch.state import STATE, current_backend

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class HistogramAndEdges(NamedTuple):
    """Result of `histogram`."""

    hist: Tensor
    bin_edges: Tensor


def sort(
    x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> ValuesAndIndices:
    """Elements in order along `dim`, with their indices; equal ones always keep their order.

    >>> from tinytorch import tensor
    >>> sort(tensor([3, 1, 2]))
    ValuesAndIndices(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))
    """
    return at_index(x, argsort(x, dim, descending), dim, keepdim=True)


def argsort(
    x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Tensor:
    """Indices that would sort along `dim`; equal elements always keep their order.

    >>> from tinytorch import tensor
    >>> argsort(tensor([10, 30, 20]), descending=True)
    tensor([1, 2, 0])
    """
    if x.ndim == 0:
        normalize_dim(dim, 0)
        return apply(ops.full, shape=(), value=0, dtype=int64)
    return apply(ops.argsort, x, dim=normalize_dim(dim, x.ndim), descending=descending)


def topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices:
    """The k largest (or smallest) elements along `dim`, always in order, with their indices.

    Raises:
        ShapeError: there are fewer than k elements along `dim`, or k is negative.

    >>> from tinytorch import tensor
    >>> topk(tensor([3, 1, 4, 1, 5]), 2)
    ValuesAndIndices(values=tensor([5, 4]), indices=tensor([4, 2]))
    """
    at = normalize_dim(dim, x.ndim)
    extent = x.shape[at] if x.ndim else 1
    k = operator.index(k)
    if not 0 <= k <= extent:
        raise ShapeError(f"topk: k={k} is not within 0 and {extent}, the size of dim {dim}")
    return at_index(x, _places(x, dim, largest, 0, k), dim, keepdim=True)


def _places(x: Tensor, dim: int, descending: bool, start: int, length: int) -> Tensor:
    """The indices at so many places in order along `dim`."""
    if x.ndim == 0:
        return argsort(x, dim)
    at = normalize_dim(dim, x.ndim)
    return apply(ops.partial_argsort, x, dim=at, descending=descending, start=start, length=length)


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The k-th smallest element along `dim` (k = 1 is the smallest), with its index.

    Raises:
        ShapeError: there are fewer than k elements along `dim`, or k is not positive.
        TypeError: k is no whole number.
    """
    extent = x.shape[normalize_dim(dim, x.ndim)] if x.ndim else 1
    k = operator.index(k)
    if not 1 <= k <= extent:
        raise ShapeError(f"kthvalue: k={k} is not within 1 and {extent}, the size of dim {dim}")
    return at_index(x, _places(x, dim, False, k - 1, 1), dim, keepdim)


def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesAndIndices:
    """The middle element in order, of an even number the lower one of the two; NaN if there is one.

    Over all elements, or along `dim` with its index. The gradient goes to that element.

    Raises:
        ShapeError: there are no elements.

    >>> from tinytorch import tensor
    >>> median(tensor([3, 1, 2, 10]))
    tensor(2)
    """
    if dim is None:
        over_all: ValuesAndIndices = median(movement.reshape(x, (-1,)), 0)  # type: ignore[assignment]
        return over_all.values
    if not x.ndim:
        return at_index(x, argsort(x, dim), dim, keepdim)
    extent = x.shape[normalize_dim(dim, x.ndim)]
    if not extent:
        raise ShapeError(f"median: shape {x.shape} has no elements along dim {dim}")
    index = _places(x, dim, False, (extent - 1) // 2, 1)
    if x.dtype.is_floating_point and not holds(x, _has_no_nan, traced=False):
        first = reductions.argmax(x, dim, keepdim=True)  # NaN, if there is one
        largest = apply(ops.gather, x, first, dim=normalize_dim(dim, x.ndim))
        index = elementwise.where(apply(ops.ne, largest, largest), first, index)
    return at_index(x, index, dim, keepdim)


def _has_no_nan(array: Array) -> bool:
    flat = array.ravel("K")  # as it is stored
    return not flat.size or not math.isnan(flat.item(flat.argmax()))  # argmax finds a NaN first


def isin(
    elements: Tensor, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is one of `test_elements`, which may be a tensor or a number.

    Args:
        assume_unique: without an effect here: there is one way for all elements.
        invert: whether it is none of them.
    """
    if not is_tensor(test_elements):
        return apply(ops.ne if invert else ops.eq, elements, test_elements)
    each = movement.reshape(test_elements, (-1, *(1,) * elements.ndim))
    found = reductions.any(apply(ops.eq, elements, each), 0)  # whole arrays are combined
    return elementwise.logical_not(found) if invert else found


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The positions at which each value of `input` would be inserted into the last dimension of a
    sequence in ascending order.

    Args:
        sorted_sequence: (n,), or (..., n) with the leading dimensions of `input`.
        input: NaN is the largest number, here and in the sequence, as for `sort`. (PyTorch goes
            on behind each NaN that it meets in a sequence, so that it finds no place before one.)
        right: behind elements that are equal.
        side: "right" says the same, "left" the opposite.
        out_int32: give int32 instead of int64.
        sorter: of the shape of `sorted_sequence`, which is in ascending order in the order of
            these indices: what `argsort` gives.

    Raises:
        ShapeError: the leading dimensions differ, there is no last one, or the sorter has
            another shape.
        ValueError: `side` is something else, or "left" where `right` is True.
    """
    if side is not None and side not in ("right", *(() if right else ("left",))):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r} with {right=}")
    if isinstance(input, elementwise.NUMBERS):
        input = apply(ops.full, shape=(), value=input, dtype=sorted_sequence.dtype)
    rows, wanted = sorted_sequence.meta, input.meta
    if not rows.ndim:
        raise ShapeError("searchsorted: a number is no sequence; give one of shape (1,)")
    if sorter is not None:
        if sorter.shape != rows.shape:
            raise ShapeError(f"searchsorted: a sorter {sorter.shape} for a sequence {rows.shape}")
        sorted_sequence = indexing.gather(sorted_sequence, -1, sorter)
    if rows.ndim > 1 and rows.shape[:-1] != wanted.shape[:-1]:
        raise ShapeError(
            f"searchsorted: {rows.shape} and {wanted.shape} must agree but in the last dimension"
        )
    is_right = right or side == "right"
    if STATE.get().mode is None and rows.dtype is wanted.dtype is not bfloat16:
        bisected: Any = reference.bisected
        if rows.ndim > 1:
            bisected = current_backend().replacement_of(bisected)
        count = _new(bisected(sorted_sequence._data, input._data, is_right))
    else:  # by ops, which a trace sees
        count = _counted_before(sorted_sequence, input, is_right)
    return count.to(int32) if out_int32 else count


def _counted_before(rows: Tensor, values: Tensor, is_right: bool) -> Tensor:
    each = movement.unsqueeze(values, -1)
    rows = movement.unsqueeze(rows, -2) if rows.ndim > 1 else rows
    before = (elementwise.le if is_right else elementwise.lt)(rows, each)
    if each.is_floating_point():  # NaN is the largest number
        is_nan = elementwise.isnan(each)
        before = elementwise.logical_or(
            before,
            is_nan if is_right else elementwise.logical_and(is_nan, apply(ops.eq, rows, rows)),
        )
    return reductions.sum(before, -1)


def bucketize(
    x: Tensor, boundaries: Tensor, *, right: bool = False, out_int32: bool = False
) -> Tensor:
    """The bucket of each element: how many boundaries (1-d, ascending) are below it."""
    return searchsorted(boundaries, x, right=right, out_int32=out_int32)


# -- results whose size depends on the values ------------------------------------------------------


def _new(array: Array) -> Tensor:
    return wrap(array, meta_of_array(array))


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not 0, as int64: (count, ndim), or a tuple of ndim vectors.

    >>> from tinytorch import tensor
    >>> nonzero(tensor([0, 5, 0, 7]))
    tensor([[1],
            [3]])
    """
    array = x._values("nonzero")
    if as_tuple:
        return tuple(_new(positions) for positions in np.nonzero(np.atleast_1d(array)))
    return _new(_positions(array))


def _positions(array: Array) -> Array:
    """`np.argwhere`, without a division for each position found: that of its row is known."""
    if array.ndim < 2 or not array.size:
        return np.argwhere(array).astype(np.int64)
    true = array if array.dtype == np.bool_ else array != 0
    rows = np.ascontiguousarray(true).reshape(-1, array.shape[-1])
    out = buffers.empty((int(np.count_nonzero(rows)), array.ndim), int64.dtype)
    current_backend().replacement_of(reference.write_positions)(array.shape, rows, out)
    return out


def argwhere(x: Tensor) -> Tensor:
    """`nonzero`, as (count, ndim)."""
    return nonzero(x)  # type: ignore[no-any-return]


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements in ascending order, or along `dim` the different slices.

    Args:
        return_inverse: give as well, for each element, where it is in the result.
        return_counts: give as well how often each occurs.

    Returns:
        The values, or a tuple of them and what is asked for. It has no gradient.

    >>> from tinytorch import tensor
    >>> unique(tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    # the bits of bfloat16 are not in the order of its numbers; and of float16, NumPy 2.4 with
    # AVX-512 does not always find the order
    if x.dtype in (bfloat16, float16):
        return _in_dtype(unique(x.float(), sorted, return_inverse, return_counts, dim), x.dtype)
    axis = None if dim is None else normalize_dim(dim, x.ndim)
    array = x._concrete("unique")
    if axis is not None:
        slices = np.moveaxis(array, axis, 0)
        rows = slices.reshape(len(slices), math.prod(slices.shape[1:]))
        first, inverse, counts = _different(rows)
        values = np.take(array, first, axis)  # along rows as they are stored
        return _chosen(values, inverse, counts, return_inverse, return_counts)
    asked: Any = {"return_inverse": return_inverse, "return_counts": return_counts}
    found = np.unique(array, **asked, equal_nan=False)
    if not isinstance(found, tuple):
        return _new(found)
    if return_inverse:
        found = (found[0], found[1].reshape(array.shape), *found[2:])
    return tuple(map(_new, found))


def _different(rows: Array) -> tuple[Array, Array, Array]:
    """The different rows of a matrix in ascending order, NaN last and equal to nothing.

    Rows are sorted by their first number, those that are equal in it by the second, and so on, so
    that most are looked at no further than where they differ.

    Returns:
        The index of one of each, for each row which it is, and how often each occurs.
    """
    count = len(rows)
    order, group = np.arange(count), np.zeros(count, np.int64)  # of the rows in order
    for column in rows.T:
        sizes = np.bincount(group)
        tied = np.flatnonzero(sizes[group] > 1) if count else order
        if not tied.size:
            break
        among = order[tied]
        order[tied] = among[np.lexsort((column[among], group[tied]))]
        values = column[order]
        is_new = np.ones(count, bool)
        is_new[1:] = (group[1:] != group[:-1]) | (values[1:] != values[:-1])
        group = np.cumsum(is_new) - 1
    inverse = np.empty(count, np.int64)
    inverse[order] = group
    counts = np.bincount(group)
    return order[np.cumsum(counts) - counts], inverse, counts


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Each run of equal elements of the flattened tensor once, or along `dim` of equal slices;
    results are as of `unique`.

    >>> from tinytorch import tensor
    >>> unique_consecutive(tensor([3, 3, 1, 3]), return_counts=True)
    (tensor([3, 1, 3]), tensor([2, 1, 1]))
    """
    if x.dtype is bfloat16:
        found = unique_consecutive(x.float(), return_inverse, return_counts, dim)
        return _in_dtype(found, bfloat16)
    array = x._concrete("unique_consecutive")
    if not array.flags.c_contiguous:  # neighbours are compared along memory
        array = x.detach().contiguous()._data
    rows, axis = array.reshape(-1), 0
    if dim is not None:
        rows, axis = np.atleast_1d(array), normalize_dim(dim, x.ndim)
    starts = np.ones(rows.shape[axis], bool)
    if rows.ndim == 1:
        np.not_equal(rows[1:], rows[:-1], starts[1:])
    else:
        others = tuple(d for d in range(rows.ndim) if d != axis)
        first = (slice(None),) * axis
        changes = rows[(*first, slice(1, None))] != rows[(*first, slice(-1))]
        starts[1:] = changes.any(others)
    inverse: Array = starts
    counts: Array = starts
    if return_inverse:
        inverse = (np.cumsum(starts) - 1).reshape(array.shape if dim is None else -1)
    if return_counts:
        counts = np.diff(np.append(np.flatnonzero(starts), starts.size))
    if rows.ndim == 1:
        values = current_backend().replacement_of(reference.compressed)(rows, starts)
    else:
        values = rows.compress(starts, axis)
    return _chosen(values, inverse, counts, return_inverse, return_counts)


def _in_dtype(found: Any, dtype: DType) -> Any:
    """The values in the dtype that they had; what else was asked for stays."""
    if isinstance(found, tuple):
        return found[0].to(dtype), *found[1:]
    return found.to(dtype)


def _chosen(values: Array, inverse: Array, counts: Array, *which: bool) -> Any:
    others = [a for a, wanted in zip((inverse, counts), which, strict=True) if wanted]
    found = tuple(_new(np.asarray(a, order="C")) for a in (values, *others))
    return found if others else found[0]


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The count of each number 0, 1, ... in a 1-d tensor, or the sum of its weights.

    Args:
        x: integers, none negative.
        weights: of x's shape.
        minlength: the least length of the result; it is at least the largest number plus 1.

    Raises:
        DTypeError, ShapeError, ValueError: x is not of integers, not 1-d, or has negative ones;
            or minlength is negative.

    >>> from tinytorch import tensor
    >>> bincount(tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    if x.dtype.is_floating_point or x.dtype.rank == 0:
        raise DTypeError(f"bincount takes integers, not {x.dtype.name}; use x.long()")
    if x.ndim != 1:
        raise ShapeError(f"bincount takes a 1-d tensor, not shape {x.shape}")
    check_not_negative("bincount: minlength", minlength)
    array = x._concrete("bincount")
    try:
        counts = current_backend().replacement_of(np.bincount)(array, minlength=minlength)
    except ValueError:
        raise ValueError(f"bincount: {array.min()} is negative") from None
    if weights is None:
        return _new(counts.astype(np.int64, copy=False))
    if not weights.dtype.is_floating_point:
        weights = weights.double()
    return apply(ops.scatter_add, weights, x, length=len(counts))


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` equal intervals from min to max, in x's dtype.

    Elements outside do not count. If min and max are equal, the smallest and largest element are
    taken.
    """
    array = x._concrete("histc")
    is_whole = min == max and array.dtype.kind == "f"  # integers may be rounded to beyond the edges
    if min == max and array.size:
        min, max = np.minimum.reduce(array, None), np.maximum.reduce(array, None)
    if min == max:
        min, max = min - 1, max + 1
    return _new(_counts_of_bins(array, bins, float(min), float(max), is_whole))


def _counts_of_bins(array: Array, bins: int, low: float, high: float, is_whole: bool) -> Array:
    """How many elements are in each of so many equal intervals, in the array's type.

    If `is_whole`, there are none outside.

    The interval of an element follows from one division in its own type, as in PyTorch; NumPy's
    `histogram` then compares it with the edges.
    """
    real = array.dtype.type if array.dtype.kind == "f" else np.float64
    with np.errstate(over="ignore"):
        left, right, count = real(low), real(high), real(bins)
        width = right - left
        is_plain = bins > 0 and width > 0 and np.isfinite(width * count)
    if not is_plain:  # the range is beyond the type, or an error is to be raised
        return np.histogram(array.astype(np.float64), bins, (low, high))[0].astype(array.dtype)
    inside = array.reshape(-1)
    if not is_whole and not (is_inside := (inside >= left) & (inside <= right)).all():
        inside = inside[is_inside]
    places = ((inside - left) * count / width).astype(np.intp)
    np.minimum(places, bins - 1, out=places)  # the last interval has its upper edge
    return np.bincount(places, minlength=bins).astype(array.dtype)


def histogram(
    x: Tensor,
    bins: int | Tensor = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramAndEdges:
    """The number of elements (or the weight) in each interval, and the intervals' edges.

    Args:
        bins: how many equal intervals; or their edges, ascending.
        range: the outer edges; by default the smallest and largest element.
        weight: of x's shape.
        density: divide, so that the integral is 1.
    """
    array = x._concrete("histogram")
    edges = bins if isinstance(bins, int) else bins._concrete("histogram")
    weights = None if weight is None else weight._concrete("histogram")
    counts, edges = np.histogram(array, edges, range, density=density, weights=weights)
    return HistogramAndEdges(_new(counts.astype(array.dtype)), _new(edges.astype(array.dtype)))


publish(globals(), replayed="sort argsort topk kthvalue median")
