"""Subscripts: everything that `x[...]` means.

An index is read in three steps. Ints, slices, None and Ellipsis become one `slice` and one
`reshape`. Boolean arrays become the positions of their true elements. Integer arrays become one
`take` of rows, after the dimensions that they index have been moved to the front and merged, or
one `gather` along these where they are neighbours.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import Array, Shape, TensorMeta, bool_, int64, meta_of_array, tensor_meta
from tinytorch.functions import movement
from tinytorch.functions.indexing import are_known, from_front, still_outside
from tinytorch.history import Record
from tinytorch.op import Op, Params
from tinytorch.replay import holds, replayed
from tinytorch.replay.fusion import LARGEST
from tinytorch.state import STATE, current_backend, ops_are_unseen

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


_WHOLE = slice(None)
BASIC = frozenset((int, slice, type(None), type(Ellipsis)))
_BOUNDS = frozenset((int, type(None)))


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
    if BASIC.issuperset(map(type, entries)):
        view = _view(x, entries)
        if view is not None:
            return view
        part, arrays = _basic(x, _spread(x.meta.shape, [*entries]))
    elif len(entries) <= x.meta.ndim and all(map(_is_whole_or_at, entries)):
        found: Tensor
        if slice not in map(type, entries):
            elements = _elements(x, entries) if len(entries) == x.meta.ndim > 1 else None
            found = _at_first(x, *entries) if elements is None else elements
        else:
            dims = tuple([dim for dim, entry in enumerate(entries) if type(entry) is not slice])
            found = _at(x, dims, [entries[dim] for dim in dims])
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
    if not ops_are_unseen(state):
        return None
    try:
        if x._requires_grad and state.grad:
            return _recorded_view(x, _read_basic(x.meta, tuple(map(_hashable, entries))))
        if slice in map(type, entries) and any(map(steps_back, entries)):
            return None
        part = x._data[entries if Ellipsis in entries else (*entries, Ellipsis)]
    except (IndexError, TypeError, ValueError):
        return None
    return wrap(part, tensor_meta(part.shape, x.meta.dtype))


def _elements(x: Tensor, indices: Sequence[Tensor]) -> Tensor | None:
    """x[i, j], one index for each dimension, by NumPy alone, where nobody would see the ops; None
    where somebody would, or there is an error to explain."""
    state = STATE.get()
    if (x._requires_grad and state.grad) or not ops_are_unseen(state):
        return None
    if indices[0].meta.nbytes > LARGEST:
        return None
    try:
        picked = x._data[tuple([index._data for index in indices])]
    except IndexError:
        return None
    return wrap(np.asarray(picked, order="C"), tensor_meta(picked.shape, x.meta.dtype))


def steps_back(entry: Any) -> bool:
    """Whether it is a slice that is refused."""
    return type(entry) is slice and entry.step is not None and entry.step < 1


class _Subscript(NamedTuple):
    """What ints, slices, None and Ellipsis mean for tensors of one shape.

    Attributes:
        entries: for NumPy.
        steps: the ops that they stand for, with their parameters and what they result in.
        bounds: None where all is taken.
        shape: of the result.
    """

    entries: tuple[Any, ...]
    steps: tuple[tuple[Op, Params, TensorMeta], ...]
    bounds: tuple[tuple[int, int, int], ...] | None
    shape: Shape


def _hashable(entry: Any) -> Any:
    """An entry as part of a key, from which `_read_basic` has it back: slices have no hash."""
    if type(entry) is not slice:
        return entry
    bounds = entry.start, entry.stop, entry.step
    if not _BOUNDS.issuperset(map(type, bounds)):
        raise TypeError("bounds that are equal to others of another type, or that may change")
    return bounds


@lru_cache(4096)
def _read_basic(x: TensorMeta, key: tuple[Any, ...]) -> _Subscript:
    entries = [slice(*entry) if type(entry) is tuple else entry for entry in key]
    whole = tuple(entries) if Ellipsis in entries else (*entries, Ellipsis)
    bounds, shape, _ = _bounds(x.shape, _spread(x.shape, entries))
    steps: list[tuple[Op, Params, TensorMeta]] = []
    if bounds is not None:
        sliced = {"bounds": bounds}
        steps.append((ops.slice_, sliced, ops.slice_.plan((x,), sliced).meta))
    if not steps or steps[-1][-1].shape != shape:
        steps.append((ops.reshape, {"shape": shape}, tensor_meta(shape, x.dtype)))
    return _Subscript(whole, tuple(steps), bounds, shape)


def _recorded_view(x: Tensor, subscript: _Subscript) -> Tensor:
    """The view, and of each op a record."""
    data, meta, source = x._data[subscript.entries], x.meta, x.history or x
    for op, params, result in subscript.steps:
        source = Record(op, params, (source,), (), (meta,), result)
        meta = result
    out = wrap(data, meta)
    out._requires_grad = True
    out.history = source
    return out


def where_true(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask of the same shape is true, 1-d. In no mode."""
    state = STATE.get()
    if ops_are_unseen(state) and not (x._requires_grad and state.grad):
        take = current_backend().replacement_of(reference.compressed)
        found = take(x._data.reshape(-1), mask._data.reshape(-1))
        return wrap(found, tensor_meta(found.shape, x.meta.dtype))
    places = mask._data.reshape(-1).nonzero()[0]  # NumPy's `flatnonzero` is Python
    return apply(ops.take, movement.reshape(x, (-1,)), wrap(places, meta_of_array(places)))


def in_two_steps(index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The index for NumPy, as `array[first][second]` with tensors as arrays.

    `first` has the ints, slices, None and Ellipsis and gives a view; `second` has the arrays. In
    one step NumPy would count an int among the arrays and order the dimensions differently.

    Raises:
        ValueError: a slice's step is not positive.
    """
    first: list[Any] = []
    second: list[Any] = []
    for entry in index if isinstance(index, tuple) else (index,):
        if _is_basic(entry):
            if isinstance(entry, slice):
                _check_step(entry)
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


def part_taken(x: Tensor, index: Any) -> tuple[Any, Shape] | None:
    """What an index of ints, slices, None and Ellipsis takes of x: (start, end) for each dimension,
    and the shape of the result. None for another index, other steps, and nothing.

    Raises:
        IndexError, ValueError: as `getitem`.
    """
    entries = index if type(index) is tuple else (index,)
    if not x.meta.shape or not all(map(_is_basic, entries)):
        return None
    try:
        if STATE.get().mode is not None:  # in which sizes may be symbols
            raise TypeError
        found = _read_basic(x.meta, tuple(map(_hashable, entries)))
        bounds, shape = found.bounds, found.shape
    except TypeError:
        bounds, shape, _ = _bounds(x.shape, _spread(x.shape, [*entries]))
    if bounds is None:
        return tuple([(0, n) for n in x.shape]), shape
    if any([step != 1 or end <= start for start, end, step in bounds]):
        return None
    return tuple([(start, end) for start, end, _ in bounds]), shape


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
    entries = _spread(x.meta.shape, entries)
    check_masks(x, index)
    return entries


def _spread(of: Shape, entries: list[Any]) -> list[Any]:
    """Entries with a slice for each dimension that Ellipsis stands for, or that none names."""
    left, places = len(of), []
    for place, entry in enumerate(entries):
        if entry is Ellipsis:
            places.append(place)
        elif entry is not None:
            left -= 1
    if len(places) > 1:
        raise IndexError("an index can have only one Ellipsis")
    if left < 0:
        raise IndexError(f"{len(of) - left} indices are too many for shape {of}")
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
        return [
            wrap(p, meta_of_array(p)) for p in np.nonzero(entry._concrete("a mask as an index"))
        ]
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
    bounds, shape, arrays = _bounds(x.meta.shape, entries)
    if bounds is not None:
        x = apply(ops.slice_, x, bounds=bounds)
    return movement.in_shape(x, shape), arrays


def _bounds(of: Shape, entries: list[Any]) -> tuple[Any, Shape, list[tuple[int, Tensor]]]:
    """The bounds of a slice (None: it is all), the shape that comes of it; tensors and their dims.

    Raises:
        IndexError, ValueError: as `getitem`.
    """
    bounds: list[tuple[int, int, int]] = []
    shape: list[int] = []
    arrays: list[tuple[int, Tensor]] = []
    is_whole = True
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        extent = of[len(bounds)]
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
    return None if is_whole else tuple(bounds), tuple(shape), arrays


def _slice_bound(entry: slice, extent: int) -> tuple[int, int, int]:
    _check_step(entry)
    return entry.indices(extent)


def _check_step(entry: slice) -> None:
    if entry.step is not None and operator.index(entry.step) < 1:
        raise ValueError(f"a slice's step must be positive, not {entry.step}; use flip")


def _is_whole_or_at(entry: Any) -> bool:
    if type(entry) is slice:
        return entry.start is entry.stop is entry.step is None
    return is_tensor(entry) and entry.meta.dtype is int64


@replayed
def _at_first(x: Tensor, *indices: Tensor) -> Tensor:
    """x[i, j], as `_at`."""
    return _advanced(x, [*enumerate(indices)])


@replayed
def _at(x: Tensor, dims: tuple[int, ...], indices: Sequence[Tensor]) -> Tensor:
    """x[:, i, :, j]; a program asks at each call whether all of the indices are in range."""
    return _advanced(x, list(zip(dims, indices, strict=True)))


def _advanced(x: Tensor, arrays: list[tuple[int, Tensor]]) -> Tensor:
    """Apply integer tensors, which broadcast against each other.

    The result's index dimensions are where the arrays were if those were adjacent, and in front
    otherwise. As in PyTorch, a 0-d array counts as an int and has no place.
    """
    dims = [dim for dim, _ in arrays]
    sizes = [x.shape[dim] for dim in dims]
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
    count = math.prod(sizes)
    single = [dim for dim, index in arrays if index.ndim == 0]
    first, end = dims[0], dims[-1] + 1
    if first and end - first == len(dims) and not single and holds(flat, are_known, traced=False):
        before, after = x.shape[:first], x.shape[end:]  # without a permuted copy, nor result
        picked = x.reshape(*before, count, *after).index_select(first, flat.reshape(-1))
        return picked.reshape(*before, *flat.shape, *after)
    rest = [d for d in range(x.ndim) if d not in dims]
    rows = x.permute(*dims, *rest) if dims != list(range(len(dims))) else x
    rows = rows.reshape(count, *rows.shape[len(dims) :]) if len(dims) > 1 else rows
    result = apply(ops.take, rows, flat)  # whose parts have been looked at
    placed = [dim - sum(s < dim for s in single) for dim in dims if dim not in single]
    if not placed or placed != list(range(placed[0], placed[0] + len(placed))):
        return result
    ahead = placed[0]
    if ahead == 0:
        return result
    order = [flat.ndim + i for i in range(ahead)]
    order += list(range(flat.ndim))
    order += [flat.ndim + i for i in range(ahead, len(rest))]
    return result.permute(*order)
