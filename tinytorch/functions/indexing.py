"""Indexing: everything that `x[...]`, `gather` and `take` mean.

An index is read in three steps. Ints, slices, None and Ellipsis become one `slice` and one
`reshape`. Boolean arrays become the positions of their true elements. Integer arrays become one
`take` of rows, after the dimensions that they index have been moved to the front and merged.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.backends.reference import is_within
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import Array, Shape, bool_, int64, meta_of_array, tensor_meta
from tinytorch.errors import DTypeError
from tinytorch.functions import movement
from tinytorch.functions.copies import LARGE
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.replay import holds, keep, must_run, replayed
from tinytorch.state import STATE, current_backend

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


_WHOLE = slice(None)
_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index] along the first dimension, for an integer tensor of any shape.

    The result has the shape (*index.shape, *x.shape[1:]). Indices do not count from the end.

    Raises:
        IndexError: an index is out of range; the message gives it. (Not checked in a trace.)
    """
    check_range(index, x.shape[0] if x.ndim else 0)
    return apply(ops.take, x, index)


def check_range(index: Tensor, extent: int, what: str = "index") -> None:
    """Raise IndexError unless all of `index` is in [0, extent). (Not checked in a trace.)"""
    if not holds(index, is_within, extent, traced=True):
        raise out_of_range(index._data, extent, what)


def out_of_range(index: Array, extent: int, what: str = "index") -> IndexError:
    """The error for an array of indices that are not all in [0, extent)."""
    low, high = index.min(), index.max()
    return IndexError(f"{what} {int(low if low < 0 else high)} is out of range: there are {extent}")


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices along `dim` at the positions of a 1-d integer tensor.

    Raises:
        IndexError: an index is negative or out of range. (Not checked in a trace.)

    >>> from tinytorch import tensor
    >>> index_select(tensor([[1, 2], [3, 4]]), 1, tensor([1, 1, 0]))
    tensor([[2, 2, 1],
            [4, 4, 3]])
    """
    dim = normalize_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_select: the index must be 1-d, not of shape {index.shape}")
    check_range(index, x.shape[dim] if x.ndim else 1)
    if not x.ndim:
        return apply(ops.copy, x)
    if dim == 0:
        return apply(ops.take, x, movement.in_shape(index, (index.numel(),)))
    shape = tuple(index.numel() if d == dim else n for d, n in enumerate(x.shape))
    line = movement.reshape(index, tuple(-1 if d == dim else 1 for d in range(x.ndim)))
    return apply(ops.gather, x, movement.expand(line, shape), dim=dim)


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j][k] = x[index[i][j][k]][j][k] (for dim 0): one element per element of `index`.

    Raises:
        ShapeError: `index` has other dimensions, or is larger than x in one other than `dim`.
        IndexError: an index is negative or out of range. (Not checked in a trace.)

    >>> from tinytorch import tensor
    >>> gather(tensor([[1, 2], [3, 4]]), 1, tensor([[1], [0]]))  # one of each row
    tensor([[2],
            [3]])
    """
    dim = normalize_dim(dim, x.ndim)
    if not x.ndim or (x.ndim == 1 and not index.ndim):  # of a 0-d tensor and by a 0-d index, too
        check_range(index, x.numel())
        return apply(ops.take, x.reshape(-1), index)
    check_range(index, x.shape[dim])
    return apply(ops.gather, x, index, dim=dim)


def flat_index(shape: Shape, dim: int, index: Tensor) -> Tensor:
    """Positions in the flattened tensor: the index along `dim`, its own place along the others."""
    stride = int(np.prod(shape[dim + 1 :], dtype=np.int64))
    positions = np.zeros(index.shape, np.int64)
    for i, extent in enumerate(index.shape):
        if i != dim:
            step = int(np.prod(shape[i + 1 :], dtype=np.int64))
            positions += (np.arange(extent) * step).reshape(-1, *(1,) * (index.ndim - i - 1))
    flat = index * stride + wrap(positions, meta_of_array(positions))
    return still_outside(flat, index, shape[dim])


def looked_at(index: Tensor, extent: int) -> Tensor:
    """An index without values yet, as int64: where the graph is run, `take` refuses what is not in
    [0, extent). It takes from floats, of which machine code has rows."""
    numbers = np.arange(extent, dtype=np.float64)
    return apply(ops.take, wrap(numbers, meta_of_array(numbers)), index).long()


def still_outside(flat: Tensor, index: Tensor, size: int) -> Tensor:
    """Positions among all, of which an index says one part: -1 where it is not in [0, size).

    Without that it would be the position of something else. An index whose values are known has
    been looked at: its positions are as they were.
    """
    if holds(index, are_known, traced=False):
        return flat
    outside = apply(ops.logical_or, index < 0, index >= size)
    return apply(ops.where, outside, -1, flat)


def are_known(data: Array) -> bool:
    """True of any values, if there are some."""
    return True


# -- x[...] ----------------------------------------------------------------------------------------


def getitem(x: Tensor, index: Any) -> Tensor:
    """x[index], as in NumPy and PyTorch: a view for ints, slices, None and Ellipsis.

    Raises:
        IndexError: too many indices, one out of range, or a mask of another shape.
        TypeError: something that is not an index.
        ValueError: a slice's step is not positive.

    >>> from tinytorch import tensor
    >>> x = tensor([[1, 2], [3, 4]])
    >>> x[:, -1], x[[1, 0]].tolist(), x[x > 2]
    (tensor([2, 4]), [[3, 4], [1, 2]], tensor([3, 4]))
    """
    entries = index if type(index) is tuple else (index,)
    if _BASIC.issuperset(map(type, entries)):
        view = _view(x, entries)
        if view is not None:
            return view
        part, arrays = _basic(x, _spread(x, [*entries]))
    elif len(entries) <= x.ndim and all([is_tensor(e) and e.dtype is int64 for e in entries]):
        found: Tensor = _at(x, entries)
        return found
    else:
        is_mask = is_tensor(index) and index.dtype is bool_ and index.shape == x.shape != ()
        if is_mask and STATE.get().mode is None:
            return where_true(x, index)
        part, arrays = _basic(x, _read(x, index))
    if arrays:
        return _advanced(part, arrays)
    return movement.alias(x) if part is x else part


def _view(x: Tensor, entries: tuple[Any, ...]) -> Tensor | None:
    """x[entries] by NumPy alone, where nobody would see the ops; None where somebody would, or
    there is an error to explain."""
    state = STATE.get()
    if state.mode is not None or (x._requires_grad and state.grad):
        return None
    if (state.backend or current_backend()).programs is None:
        return None  # a backend of a user may have its own kernels
    if any([type(e) is slice and e.step is not None and e.step < 1 for e in entries]):
        return None
    try:
        part = x._data[entries if Ellipsis in entries else (*entries, Ellipsis)]
    except (IndexError, TypeError):
        return None
    return wrap(part, tensor_meta(part.shape, x.meta.dtype))


def where_true(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask of the same shape is true, 1-d. In no mode."""
    places = mask._data.reshape(-1).nonzero()[0]  # NumPy's `flatnonzero` is Python
    return apply(ops.take, movement.reshape(x, (-1,)), wrap(places, meta_of_array(places)))


def in_two_steps(index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The index for NumPy, as `array[first][second]` with tensors as arrays.

    `first` has the ints, slices, None and Ellipsis and gives a view; `second` has the arrays. In
    one step NumPy would count an int among the arrays and order the dimensions differently.
    """
    first: list[Any] = []
    second: list[Any] = []
    for entry in index if isinstance(index, tuple) else (index,):
        if _is_basic(entry):
            first.append(entry)
            if not isinstance(entry, (int, np.integer)):
                second.append(entry if entry is Ellipsis else slice(None))
            continue
        values = _array_of(entry)
        if values.ndim:
            first += [slice(None)] * (values.ndim if values.dtype == np.bool_ else 1)
            second.append(values)
        else:
            first.append(operator.index(values.item()))
    if not any(entry is Ellipsis for entry in first):
        first.append(Ellipsis)
    return tuple(first), tuple(second)


def _is_basic(entry: Any) -> bool:
    return (
        entry is None
        or entry is Ellipsis
        or (isinstance(entry, (slice, int, np.integer)) and not isinstance(entry, bool))
    )


def _read(x: Tensor, index: Any) -> list[Any]:
    """One entry per dimension of x (plus the Nones): ints, slices and integer tensors."""
    entries: list[Any] = []
    if isinstance(index, list):
        _refuse_nested(index)
    index = index if isinstance(index, tuple) else (index,)
    index = tuple(
        _array_of(entry) if isinstance(entry, (list, range)) else entry for entry in index
    )
    for entry in index:
        entries += [entry] if _is_basic(entry) else _positions(x, entry)
    entries = _spread(x, entries)
    check_masks(x, index)
    return entries


def _spread(x: Tensor, entries: list[Any]) -> list[Any]:
    """Entries with a slice for each dimension that Ellipsis stands for, or that none names."""
    left, places = len(x.meta.shape), []
    for place, entry in enumerate(entries):
        if entry is Ellipsis:
            places.append(place)
        elif entry is not None:
            left -= 1
    if len(places) > 1:
        raise IndexError("an index can have only one Ellipsis")
    if left < 0:
        raise IndexError(f"{x.ndim - left} indices are too many for shape {x.shape}")
    at = places[0] if places else len(entries)
    entries[at : at + 1] = [_WHOLE] * left
    return entries


def _positions(x: Tensor, entry: Any) -> list[Tensor]:
    """An array used as index: itself if it has integers, the positions of True if it has bools."""
    if isinstance(entry, (list, bool, np.bool_, np.ndarray)):
        entry = _array_of(entry)
        entry = wrap(entry, meta_of_array(entry))
    if not is_tensor(entry):
        raise TypeError(
            f"{type(entry).__name__} is not an index; use ints, slices, None, ..., or integer or "
            f"boolean tensors"
        )
    if entry.dtype is bool_:
        _refuse_bare_bool(entry.ndim)
        return [wrap(p, meta_of_array(p)) for p in np.nonzero(entry.numpy())]
    if entry.dtype.is_floating_point:
        raise IndexError(f"an index must be of integers or bool, not {entry.dtype.name}")
    _refuse_uint8(entry.dtype.dtype)
    return [entry]


def _array_of(entry: Any) -> Array:
    array = np.asarray(entry)
    if array.dtype == np.bool_:
        _refuse_bare_bool(array.ndim)
    _refuse_uint8(array.dtype)
    return array.astype(np.int64) if isinstance(entry, (list, range)) and not entry else array


def _refuse_nested(index: list[Any]) -> None:
    """PyTorch reads a short list of lists as a tuple of them, NumPy as positions."""
    if len(index) < 32 and any(
        e is None or e is Ellipsis or is_tensor(e) or isinstance(e, (slice, Sequence, np.ndarray))
        for e in index
    ):
        raise IndexError(
            "a list of lists, tensors or slices is one index for each dimension, or positions: "
            "index with tuple(index), or with a tensor of the positions"
        )


def _refuse_bare_bool(ndim: int) -> None:
    if ndim == 0:
        raise TypeError("a single bool is not an index; use None for a new dimension, or where()")


def _refuse_uint8(dtype: np.dtype[Any]) -> None:
    """PyTorch takes it for a mask, NumPy for positions: to take it for either is wrong."""
    if dtype == np.uint8:
        raise IndexError("uint8 may be positions or a mask: index with t.long() or with t.bool()")


def check_masks(x: Tensor, index: Any) -> None:
    """Raise IndexError unless a boolean mask has the sizes of the dimensions that it stands for.

    The same for a list that can be read in two ways.
    """
    dim = 0
    if isinstance(index, list):
        _refuse_nested(index)
    entries = index if isinstance(index, tuple) else (index,)
    entries = tuple(_array_of(entry) if isinstance(entry, list) else entry for entry in entries)
    for place, entry in enumerate(entries):
        if entry is Ellipsis:
            rest = [e for e in entries[place + 1 :] if e is not None]
            dim = x.ndim - sum(max(1, np.ndim(e)) if _mask(e) else 1 for e in rest)
        elif _mask(entry):
            shape = tuple(np.shape(entry))
            if shape != x.shape[dim : dim + len(shape)]:
                raise IndexError(
                    f"a mask of shape {shape} does not fit dimensions {dim} to "
                    f"{dim + len(shape) - 1} of shape {x.shape}"
                )
            dim += len(shape)
        elif entry is not None:
            dim += 1


def _mask(entry: Any) -> bool:
    dtype = getattr(entry, "dtype", None)
    return dtype is bool_ or dtype == np.bool_ or isinstance(entry, bool)


def _basic(x: Tensor, entries: list[Any]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """Apply ints, slices and None; return what is left, with the integer tensors and their dims."""
    bounds: list[tuple[int, int, int]] = []
    shape: list[int] = []
    arrays: list[tuple[int, Tensor]] = []
    given = x.meta.shape
    is_whole = True
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        extent = given[len(bounds)]
        if entry is _WHOLE:
            bounds.append((0, extent, 1))
            shape.append(extent)
            continue
        if isinstance(entry, slice):
            bound = _slice_bound(entry, extent)
            shape.append(len(range(*bound)))
        elif isinstance(entry, (int, np.integer)):
            at = operator.index(entry)
            if not -extent <= at < extent:
                raise IndexError(
                    f"index {at} is out of range for dimension {len(bounds)} of size {extent}"
                )
            at %= extent
            bound = (at, at + 1, 1)
        else:
            bound = (0, extent, 1)
            arrays.append((len(shape), entry))
            shape.append(extent)
        is_whole = is_whole and bound == (0, extent, 1)
        bounds.append(bound)
    if not is_whole:
        x = apply(ops.slice_, x, bounds=tuple(bounds))
    return movement.in_shape(x, tuple(shape)), arrays


def _slice_bound(entry: slice, extent: int) -> tuple[int, int, int]:
    if entry.step is not None and operator.index(entry.step) < 1:
        raise ValueError(f"a slice's step must be positive, not {entry.step}; use flip")
    return entry.indices(extent)


@replayed
def _at(x: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """x[indices] for integer tensors alone, of which a program asks whether they are in range."""
    return _advanced(x, list(enumerate(indices)))


def _advanced(x: Tensor, arrays: list[tuple[int, Tensor]]) -> Tensor:
    """Apply integer tensors, which broadcast against each other.

    The result's index dimensions are where the arrays were if those were adjacent, and in front
    otherwise. As in PyTorch, a 0-d array counts as an int and has no place.
    """
    dims = [dim for dim, _ in arrays]
    rest = [d for d in range(x.ndim) if d not in dims]
    rows = x.permute(*dims, *rest) if dims != list(range(len(dims))) else x
    sizes = rows.shape[: len(dims)]
    flat: Tensor | None = None
    parts: list[tuple[Tensor, int]] = []
    for (dim, given), size in zip(arrays, sizes, strict=True):
        index = from_front(given, size, dim)
        flat = index if flat is None else flat * size + index
        if index is not given:
            parts.append((index, size))
    assert flat is not None
    if len(dims) > 1:
        for index, size in parts:
            flat = still_outside(flat, index, size)
        rows = rows.reshape(int(np.prod(sizes, dtype=np.int64)), *rows.shape[len(dims) :])
    result = take_rows(rows, keep(flat))
    single = [dim for dim, index in arrays if index.ndim == 0]
    placed = [dim - sum(s < dim for s in single) for dim in dims if dim not in single]
    if not placed or placed != list(range(placed[0], placed[0] + len(placed))):
        return result
    before = placed[0]
    if before == 0:
        return result
    order = [flat.ndim + i for i in range(before)]
    order += list(range(flat.ndim))
    order += [flat.ndim + i for i in range(before, len(rest))]
    return result.permute(*order)


def from_front(index: Tensor, size: int, dim: int) -> Tensor:
    """Indices into dimension `dim` of `size` elements, without negative ones: they count from the
    end.

    Raises:
        IndexError: one is out of range. (Not checked in a trace.)
    """
    if holds(index, is_within, size, traced=False):
        return index
    data = index._data
    if isinstance(data, np.ndarray):
        low, high = data.min(), data.max()
        if low < -size or high >= size:
            raise IndexError(
                f"index {int(low if low < -size else high)} is out of range for dimension {dim} of "
                f"size {size}"
            )
    return apply(ops.where, index < 0, index + size, index)


def one_hot(labels: Tensor, num_classes: int = -1) -> Tensor:
    """int64 tensor with a last dimension of `num_classes`: 1 at the label, 0 elsewhere.

    Raises:
        IndexError: a label is not in [0, num_classes).
        DTypeError: the labels are no integers.

    >>> from tinytorch import tensor
    >>> one_hot(tensor([2, 0]), 3)
    tensor([[0, 0, 1],
            [1, 0, 0]])
    """
    if labels.dtype.is_floating_point or labels.dtype is bool_:
        raise DTypeError(f"one_hot takes labels that are integers, not {labels.dtype.name}")
    if num_classes == -1:  # as many as there are
        num_classes = int(labels._concrete("one_hot").max(initial=-1)) + 1
    check_range(labels, num_classes, "class")
    if not holds(labels, are_known, traced=False):
        labels = looked_at(labels, num_classes)
    data = labels._data
    if STATE.get().mode is None and labels.dtype.dtype.kind == "i":
        rows = data.reshape(-1)
        ones = np.zeros((rows.size, num_classes), np.int64)
        ones[np.arange(rows.size), rows] = 1
        ones = ones.reshape(*data.shape, num_classes)
        return wrap(ones, meta_of_array(ones))
    if labels.meta.size * num_classes * int64.itemsize > LARGE:
        must_run("zeros with ones written into them are there sooner")
    classes = np.arange(num_classes)
    hit = apply(ops.eq, labels.unsqueeze(-1), wrap(classes, meta_of_array(classes)))
    return hit.long()


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where x and indices broadcast in the other dimensions; flattened without `dim`."""
    if dim is None:
        return gather(movement.reshape(x, (-1,)), 0, movement.reshape(indices, (-1,)))
    dim = normalize_dim(dim, x.ndim)
    shape = [max(a, b) if min(a, b) else 0 for a, b in zip(x.shape, indices.shape, strict=True)]
    wide = [x.shape[d] if d == dim else n for d, n in enumerate(shape)]
    long = [indices.shape[d] if d == dim else n for d, n in enumerate(shape)]
    index = from_front(movement.expand(indices, long), x.shape[dim], dim)
    return gather(movement.expand(x, wide), dim, index)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor, in the index's shape; negative ones count from the end."""
    flat = movement.reshape(x, (-1,))
    return apply(ops.take, flat, from_front(index, x.numel(), 0))


publish(
    globals(),
    replayed="index_select gather take_along_dim take",
    hidden="take_rows check_range out_of_range flat_index looked_at still_outside getitem "
    "where_true in_two_steps check_masks from_front one_hot are_known",
)
