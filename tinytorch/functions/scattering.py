"""Functions that put values at positions of a tensor, as new tensors: the adjoints of indexing.

Of several values for one place the last one wins, except where they are added. Only what wins has a
gradient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import SCALAR_TYPES, apply, is_tensor, wrap
from tinytorch.dtypes import DType, Shape, bfloat16, bool_, meta_of_array, number_of, uint8
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions import movement, reductions, subscripts
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.indexing import check_range, from_front
from tinytorch.functions.publish import publish
from tinytorch.functions.value_checks import factor_of
from tinytorch.replay import keep, replayed
from tinytorch.shapes import gathered
from tinytorch.state import STATE

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

FEW = 2**13  # elements of a mask: the ranks of more take longer than an index of those chosen


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x, with each src[i][j][k] added at [index[i][j][k]][j][k] (for dim 0).

    The adjoint of `gather`: positions named several times add up. x itself is not changed.

    Raises:
        ShapeError: as `gather`; or `src` is smaller than `index`.
        IndexError: as `gather`.

    >>> from tinytorch import tensor, zeros
    >>> scatter_add(zeros(3), 0, tensor([0, 2, 0]), tensor([1.0, 2.0, 3.0]))
    tensor([4., 0., 2.])
    """
    return _scatter("scatter_add", x, dim, index, src, "add")


def scatter(
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """x, with each src[i][j][k] put at [index[i][j][k]][j][k] (for dim 0).

    Args:
        src: a tensor as large as `index` or larger, or a number (also as `value`).
        reduce: "add" to add instead.

    Raises:
        ShapeError, IndexError: as `scatter_add`.
        ValueError: `reduce` is something else.
        TypeError: there is no `src`, or a `value` as well.

    >>> from tinytorch import tensor, zeros
    >>> scatter(zeros(2, 3), 1, tensor([[2], [0]]), 1.0)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if (src is None) == (value is None):
        raise TypeError("scatter takes what it puts as src or as value")
    src = value if src is None else src
    if type(src) in SCALAR_TYPES or isinstance(src, np.generic):
        src = apply(
            ops.full, shape=index.shape, value=number_of("scatter", src, x.dtype), dtype=x.dtype
        )
    if reduce == "add":
        return scatter_add(x, dim, index, src)
    if reduce is not None:
        raise ValueError(f"scatter: reduce is None or 'add', not {reduce!r}")
    return _scatter("scatter", x, dim, index, src, "none")


def _scatter(name: str, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Tensor:
    dim = normalize_dim(dim, x.ndim)
    if not x.ndim:
        flat = [movement.reshape(t, (-1,)) for t in (x, index, src)]
        return movement.reshape(_scatter(name, flat[0], 0, flat[1], flat[2], reduce), ())
    if not index.ndim and x.ndim == 1:
        index, src = movement.reshape(index, (1,)), movement.reshape(src, (-1,))
    gathered(name, [x.shape, index.shape], {"dim": dim})
    if src.ndim != index.ndim or any(s < n for s, n in zip(src.shape, index.shape, strict=True)):
        raise ShapeError(f"{name}: source {src.shape} is smaller than the index {index.shape}")
    if src.shape != index.shape:
        src = src[tuple(slice(0, n) for n in index.shape)]
    check_range(index, x.shape[dim])
    return apply(ops.scatter, x, index, src.to(x.dtype), dim=dim, reduce=reduce)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """x, with alpha * source[i] added to the slice index[i] along `dim`.

    Args:
        index: 1-d (or 0-d) integers, as many as `source` has slices along `dim`.

    Raises:
        ShapeError: `source` has another shape than x in another dimension, or too few slices.
        IndexError: an index is out of range. (Not checked in a trace.)

    >>> from tinytorch import tensor, zeros
    >>> index_add(zeros(3), 0, tensor([0, 0, 2]), tensor([1.0, 2.0, 3.0]))
    tensor([3., 0., 3.])
    """
    alpha = factor_of("index_add: alpha", alpha, source.dtype)
    if not x.ndim:
        return x + reductions.sum(source, dtype=source.dtype) * alpha
    dim = normalize_dim(dim, x.ndim)
    check_range(index, x.shape[dim])
    index = _flat("index_add", index)
    source = _slices("index_add", x, dim, index, source)
    if dim or source.numel() < x.numel():  # along rows as they are in memory; or few rows
        return _at_slices(x, dim, index, source if alpha == 1 else source * alpha, "add")
    added = apply(ops.scatter_add, source, index, length=x.shape[0])
    return x + (added if alpha == 1 else added * alpha)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x, with source[i] in place of the slice index[i] along `dim`; errors as of `index_add`."""
    if not x.ndim:
        return movement.reshape(source, ())
    dim = normalize_dim(dim, x.ndim)
    check_range(index, x.shape[dim])
    index = _flat("index_copy", index)
    if source.ndim != x.ndim and source.ndim:
        raise ShapeError(f"index_copy: source {source.shape} has other dimensions than {x.shape}")
    source = _slices("index_copy", x, dim, index, source)
    return _at_slices(x, dim, index, source, "none")


def _at_slices(x: Tensor, dim: int, index: Tensor, values: Tensor, reduce: str) -> Tensor:
    """x, with the slices of `values` put or added at the slices `index` along `dim`."""
    line = movement.reshape(index, (-1, *(1,) * (x.ndim - dim - 1)))
    places = movement.expand(line, values.shape)
    return apply(ops.scatter, x, places, values, dim=dim, reduce=reduce)


def _flat(name: str, index: Tensor) -> Tensor:
    """An index in one dimension; one that has it already is not reshaped."""
    if index.ndim > 1:
        raise IndexError(f"{name}: the index must be 1-d, not of shape {index.shape}")
    return movement.in_shape(index, (index.numel(),))


def _slices(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A slice of x along `dim` for each index; of one, it may be without that dimension."""
    if source.ndim == x.ndim - 1:
        source = movement.unsqueeze(source, dim)
    return _part(name, x, source, (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :]))


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """x, with `value`, a number or a 0-d tensor, in the slices `index` along `dim`.

    >>> from tinytorch import tensor, zeros
    >>> index_fill(zeros(3), 0, tensor([1]), 5.0)
    tensor([0., 5., 0.])
    """
    if not x.ndim:
        return movement.reshape(index_fill(movement.reshape(x, (1,)), dim, index, value), ())
    dim = normalize_dim(dim, x.ndim)
    index = from_front(_flat("index_fill", index), x.shape[dim], dim)
    value = _of_dtype("index_fill", value, x.dtype)
    if not is_tensor(value):
        value = apply(ops.full, shape=(), value=value, dtype=x.dtype)
    shape = (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
    return _at_slices(x, dim, index, movement.expand(value, shape), "none")


def index_put(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """x, with x[indices] replaced by `values`, or with them added to it.

    Args:
        indices: a tuple of integer or bool tensors.
    """
    return put(x, tuple(indices), values, accumulate)


def put(x: Tensor, index: Any, value: Any, accumulate: bool = False) -> Tensor:
    """x, with `value`, which broadcasts, in place of x[index], or added to it.

    Args:
        index: all that `x[index]` takes.
        accumulate: add; positions named several times add up.

    Raises:
        IndexError, TypeError: as `x[index]`.
        ShapeError: the value does not broadcast to the shape of `x[index]`.
    """
    value, reduce = as_value(x, value), "add" if accumulate else "none"
    taken = None if accumulate else subscripts.part_taken(x, index)
    if taken is not None:
        bounds, shape = taken
        return _replaced(x, bounds, as_part(value, shape, bounds))
    dim = _only_array(x, index)
    if dim is not None:
        places = from_front(index[dim] if isinstance(index, tuple) else index, x.shape[dim], dim)
        shape = (*x.shape[:dim], places.numel(), *x.shape[dim + 1 :])
        return _at_slices(x, dim, places, _spread(value, shape), reduce)
    numbers = np.arange(math.prod(x.shape)).reshape(x.shape)
    positions = subscripts.getitem(wrap(numbers, meta_of_array(numbers)), index)
    values = movement.reshape(_spread(value, positions.shape), (-1,))
    flat, positions = movement.reshape(x, (-1,)), movement.reshape(positions, (-1,))
    put = apply(ops.scatter, flat, positions, values, dim=0, reduce=reduce)
    return movement.reshape(put, x.shape)


def as_part(value: Any, shape: Shape, bounds: Any) -> Tensor:
    """What takes the place of a part of this shape, in the dimensions of the whole.

    Raises:
        ShapeError: the value does not broadcast to the shape.
    """
    return movement.in_shape(_spread(value, shape), tuple([end - start for start, end in bounds]))


def _replaced(x: Tensor, bounds: Any, part: Tensor) -> Tensor:
    """x with a part within bounds replaced; where it is a part along several dimensions, that along
    one of them is replaced within its slice along another."""
    dims = [d for d, n in enumerate(x.shape) if part.shape[d] != n]
    dim = dims[0] if dims else 0
    start, end = bounds[dim]
    if len(dims) > 1:
        whole = tuple([(0, n, 1) for n in x.shape])
        line = apply(ops.slice_, x, bounds=(*whole[:dim], (start, end, 1), *whole[dim + 1 :]))
        part = _replaced(line, (*bounds[:dim], (0, end - start), *bounds[dim + 1 :]), part)
    return _update(x, part, dim, start)


def _only_array(x: Tensor, index: Any) -> int | None:
    """The dimension that a 1-d integer tensor indexes, if the index is that and whole slices."""
    *before, last = index if isinstance(index, tuple) and index else (index,)
    whole = all(isinstance(entry, slice) and entry == slice(None) for entry in before)
    if not whole or len(before) >= x.ndim or not is_tensor(last):
        return None
    is_places = last.ndim == 1 and last.dtype not in (bool_, uint8) and not last.is_floating_point()
    return len(before) if is_places else None


def _spread(value: Tensor, shape: Shape) -> Tensor:
    """A value broadcast to the shape of what it takes the place of; leading ones may be more."""
    if value.ndim > len(shape):  # as in PyTorch
        extra = value.ndim - len(shape)
        if any(n != 1 for n in value.shape[:extra]):
            raise ShapeError(
                f"a value of shape {value.shape} does not broadcast to {shape}, the shape of "
                f"x[index]"
            )
        value = movement.reshape(value, value.shape[extra:])
    return value if value.shape == shape else movement.expand(value, shape)


def as_value(x: Tensor, value: Any) -> Tensor:
    if hasattr(value, "meta"):
        return value.to(x.dtype)  # type: ignore[no-any-return]
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{type(value).__name__} cannot be stored in a tensor")
    if array.dtype.kind == "f" and not x.dtype.is_floating_point and x.dtype is not bool_:
        array = np.trunc(array)
    stored = np.float32 if x.dtype is bfloat16 else x.dtype.dtype
    array = np.asarray(array, stored)
    return wrap(array, meta_of_array(array)).to(x.dtype)


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """x, with `value` where the mask, which broadcasts, is true. The dtype stays x's.

    Args:
        value: a number or a 0-d tensor; it is converted to x's dtype.

    Raises:
        DTypeError: the mask is not bool, or x's dtype does not have the number.
        ShapeError: the value is not 0-d.

    >>> from tinytorch import tensor
    >>> masked_fill(tensor([1.0, 2.0]), tensor([True, False]), -math.inf)
    tensor([-inf,   2.])
    """
    _check_mask("masked_fill", mask)
    return apply(ops.where, mask, _of_dtype("masked_fill", value, x.dtype), x)


def _of_dtype(name: str, value: Any, dtype: DType) -> Any:
    """A number as one of a tensor's dtype, which stays; 0-d tensors are converted."""
    if is_tensor(value):
        if value.ndim:
            raise ShapeError(f"{name}: the value must be 0-d, not of shape {value.shape}")
        return value.to(dtype)
    return number_of(name, value, dtype)


def _check_mask(name: str, mask: Any) -> None:
    """Raise DTypeError for a mask that is not bool."""
    dtype = mask.dtype if is_tensor(mask) else np.asarray(mask).dtype
    if dtype.name != "bool":
        raise DTypeError(f"{name}: the mask must be bool, not {dtype.name}; write mask != 0")


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, 1-d; x and mask broadcast. Cannot be traced.

    Raises:
        DTypeError: the mask is not bool.
    """
    _check_mask("masked_select", mask)
    shape = _broadcast(x.shape, mask.shape)
    x, mask = _expanded(x, shape), _expanded(mask, shape)
    if STATE.get().mode is None:
        return subscripts.where_true(x, mask)
    return movement.reshape(x, (-1,))[movement.reshape(mask, (-1,))]


def _broadcast(a: Shape, b: Shape) -> Shape:
    """The common shape; for two that are equal, NumPy's function would take as long as a kernel."""
    return a if a == b else np.broadcast_shapes(a, b)


def _expanded(x: Tensor, shape: Shape) -> Tensor:
    """A tensor that broadcasts to a shape; a trace knows none of its elements."""
    is_seen = x.shape != shape or STATE.get().mode is not None
    return movement.expand(x, shape) if is_seen else x


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x, with the first elements of `source`, in order, where the mask is true.

    Raises:
        ShapeError: the mask has more true elements than `source` elements. (A trace raises
            IndexError when it is run.)
        DTypeError: the mask is not bool.
    """
    _check_mask("masked_scatter", mask)
    if not source.numel() or not _is_plain(x, mask, source):
        return _scattered(x, mask, source)
    values = source.to(x.dtype).contiguous()._data.reshape(-1)
    wanted = mask.contiguous()._data
    _check_count(int(np.count_nonzero(wanted)) if values.size < wanted.size else 0, source)
    out = np.array(x.contiguous()._data)
    np.place(out, wanted, values)
    return wrap(out, x.meta)


def _is_plain(x: Tensor, mask: Tensor, source: Tensor) -> bool:
    """Whether nothing is recorded, and the mask has x's shape."""
    state = STATE.get()
    needs = state.grad and (x.requires_grad or source.requires_grad)
    return state.mode is None and not needs and mask.dtype is bool_ and mask.shape == x.shape


def _check_count(count: int, source: Tensor) -> None:
    if count > source.numel():
        raise ShapeError(f"masked_scatter: {count} positions, but {source.numel()} values")


def _scattered(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` by ops."""
    shape = _broadcast(x.shape, mask.shape)
    mask, x = _expanded(mask, shape), _expanded(x, shape)
    if isinstance(mask._data, np.ndarray):
        _check_count(int(np.count_nonzero(mask._data)), source)
        if not source.numel():
            return apply(ops.copy, x)
    if not isinstance(mask._data, np.ndarray) or mask.meta.size <= FEW:
        return _by_rank(x, mask, source)  # type: ignore[no-any-return]
    places = np.flatnonzero(mask._data)
    index = wrap(places, meta_of_array(places))
    values = movement.narrow(movement.reshape(source, (-1,)), 0, 0, len(places))
    kept = movement.reshape(x, (-1,))
    given = apply(ops.scatter, kept, index, values.to(x.dtype), dim=0, reduce="none")
    return movement.reshape(given, shape)


@replayed
def _by_rank(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` for a mask of x's shape: of a true element the rank among these is the place
    in `source`. The shapes are those of the arguments, whichever elements are true."""
    flat, kept, given = (movement.reshape(t, (-1,)) for t in (mask, x, source))
    order = flat.long()
    if source.numel():
        order = keep(apply(ops.where, flat, apply(ops.cumsum, order, dim=0) - 1, 0))
    else:  # the mask must be false everywhere: 1 is beyond the end
        given = kept[:1]
    # the graph looks for indices beyond the end: more places than values
    values = apply(ops.take, given.to(x.dtype), order)
    return movement.reshape(apply(ops.where, flat, values, kept), x.shape)


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """x, with `src` in place of the slice `index` along `dim`.

    Raises:
        IndexError: there is no such slice.
        ShapeError: `src` has another shape than it.
    """
    dim = normalize_dim(dim, x.ndim)
    extent = x.shape[dim] if x.ndim else 0
    if not -extent <= index < extent:
        raise IndexError(f"select_scatter: {index} is not in {-extent} to {extent - 1}")
    part = _part("select_scatter", x, src, (*x.shape[:dim], *x.shape[dim + 1 :]))
    return _update(x, movement.unsqueeze(part, dim), dim, index % extent)


def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """x, with `src` in place of the slices start to end (not included) along `dim`.

    Raises:
        ShapeError: `src` has another shape than these.
    """
    dim = normalize_dim(dim, x.ndim)
    if not x.ndim:
        raise IndexError("slice_scatter: a 0-d tensor has no dimension to take a slice of")
    first, last, _ = slice(start, end, step).indices(x.shape[dim])
    count = len(range(first, last, step))
    part = _part("slice_scatter", x, src, (*x.shape[:dim], count, *x.shape[dim + 1 :]))
    if step != 1:
        return put(x, (slice(None),) * dim + (slice(start, end, step),), part)
    return _update(x, part, dim, min(first, x.shape[dim] - count))


def _part(name: str, x: Tensor, src: Tensor, shape: Shape) -> Tensor:
    """What takes the place of a part of x, which has that shape."""
    if src.shape != shape:
        raise ShapeError(f"{name}: source {src.shape} must have the shape {shape}")
    return src.to(x.dtype)


def _update(x: Tensor, part: Tensor, dim: int, start: int) -> Tensor:
    first = np.array(start)
    return apply(ops.dynamic_update_slice, x, part, wrap(first, meta_of_array(first)), dim=dim)


publish(
    globals(),
    replayed="scatter_add scatter index_add index_copy index_fill index_put select_scatter "
    "slice_scatter",
    hidden="put as_part as_value",
)
