"""Functions that move values without changing them. Where they can, results are views.

A dimension counts from the end if negative; one that x does not have raises IndexError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import Shape, as_dtype, number_of, promote
from tinytorch.errors import ShapeError
from tinytorch.functions.copies import order_of, permuted, permuted_back
from tinytorch.functions.dims import (
    infer_size,
    named_or_not,
    normalize_dim,
    normalize_dims,
)
from tinytorch.functions.publish import publish

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def reshape(x: Tensor, *given: Any, shape: Any = None) -> Tensor:
    """The same elements, in row-major order, in another shape; one size may be -1.

    Raises:
        ShapeError: the numbers of elements differ.

    >>> from tinytorch import arange
    >>> reshape(arange(6), 2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    sizes = named_or_not(given, shape)
    return apply(ops.reshape, x, shape=infer_size(sizes, x.meta.size))


def in_shape(x: Tensor, shape: Shape) -> Tensor:
    """`reshape` for inner use: x itself if it has the shape."""
    return x if x.meta.shape == shape else apply(ops.reshape, x, shape=shape)


def alias(x: Tensor) -> Tensor:
    """Another tensor with x's memory, for a view of all of it: what happens to it is not x's."""
    return apply(ops.reshape, x, shape=x.meta.shape)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the shape of `other`, sharing memory.

    Raises:
        ShapeError: the elements would have to be copied.
    """
    out: Tensor = x.view(other.shape)
    return out


def permute(x: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """The dimensions in the order given: out.shape[i] = x.shape[dims[i]].

    Raises:
        ShapeError: a dimension is missing or named twice.

    >>> from tinytorch import zeros
    >>> permute(zeros(2, 3, 4), 2, 0, 1).shape
    (4, 2, 3)
    """
    order = tuple(normalize_dim(d, x.ndim) for d in named_or_not(given, dims))
    return apply(ops.permute, x, dims=order)


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged; the result is a view. A 0-d x is returned as it is.

    >>> from tinytorch import zeros
    >>> transpose(zeros(2, 3, 4), 0, -1).shape
    (4, 3, 2)
    """
    if x.ndim == 0:
        return x
    dim0, dim1 = normalize_dim(dim0, x.ndim), normalize_dim(dim1, x.ndim)
    order = list(range(x.ndim))
    order[dim0], order[dim1] = dim1, dim0
    return apply(ops.permute, x, dims=tuple(order))


def t(x: Tensor) -> Tensor:
    """Transpose of a matrix; of a vector, a view of it.

    Raises:
        ShapeError: there are more than two dimensions.
    """
    if x.ndim > 2:
        raise ShapeError(f"t() is for at most 2 dimensions, not {x.shape}; use transpose or .mT")
    return alias(x) if x.ndim < 2 else transpose(x, 0, 1)


def expand(x: Tensor, *given: Any, size: Any = None) -> Tensor:
    """Broadcast to a shape without copying; -1 keeps a size.

    Raises:
        ShapeError: a size differs and is not 1, or -1 stands for a new dimension.

    >>> from tinytorch import tensor
    >>> expand(tensor([[1], [2]]), -1, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    sizes = named_or_not(given, size)
    new = len(sizes) - x.ndim
    if any(s == -1 for s in sizes[: max(new, 0)]):
        raise ShapeError(f"expand: -1 cannot stand for a new dimension, as in {sizes}")
    sizes = tuple(x.shape[i - new] if s == -1 else s for i, s in enumerate(sizes))
    return apply(ops.expand, x, shape=sizes)


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of `other`, as by `expand`."""
    return expand(x, other.shape)


def broadcast_to(x: Tensor, size: Shape) -> Tensor:
    """Broadcast to a shape without copying: `expand`."""
    return expand(x, size)


def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without the dimensions of size 1: all of them, or those of `dim` that are.

    >>> from tinytorch import zeros
    >>> squeeze(zeros(1, 3, 1)).shape, squeeze(zeros(1, 3, 1), (0, 1)).shape
    ((3,), (3, 1))
    """
    dims = () if dim == () else normalize_dims(dim, x.ndim)  # as PyTorch: () is none of them here
    drop = [d for d in dims if x.shape[d] == 1]
    return reshape(x, tuple(s for i, s in enumerate(x.shape) if i not in drop))


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """The tensor with a new dimension of size 1, which is dimension `dim` of the result."""
    dim = normalize_dim(dim, x.ndim + 1)
    return apply(ops.reshape, x, shape=(*x.shape[:dim], 1, *x.shape[dim:]))


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from `start_dim` to `end_dim` (included) made into one; 0-d becomes (1,).

    Raises:
        ShapeError: `start_dim` is after `end_dim`.

    >>> from tinytorch import zeros
    >>> flatten(zeros(2, 3, 4), 1).shape
    (2, 12)
    """
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = normalize_dim(start_dim, x.ndim), normalize_dim(end_dim, x.ndim)
    if start == end:
        return x
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} is after end_dim {end_dim}")
    merged = math.prod(x.shape[start : end + 1])
    return reshape(x, (*x.shape[:start], merged, *x.shape[end + 1 :]))


def rows(x: Tensor) -> Tensor:
    """(..., n) as a matrix (m, n): all dimensions but the last made into one."""
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into several; one size may be -1. The inverse of `flatten`.

    Raises:
        ShapeError: the product of the sizes is not that of the dimension.

    >>> from tinytorch import zeros
    >>> unflatten(zeros(2, 12), 1, (3, -1)).shape
    (2, 3, 4)
    """
    dim = normalize_dim(dim, x.ndim)
    split = infer_size(tuple(sizes), x.shape[dim])
    return reshape(x, (*x.shape[:dim], *split, *x.shape[dim + 1 :]))


def flip(x: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """A copy reversed along the dimensions given; along none if none is given."""
    given = named_or_not(given, dims)
    reverse = normalize_dims(given, x.ndim) if given else ()
    order = order_of(x)
    if order is None:
        return _reversed(x, reverse)
    return permuted_back(_reversed(permuted(x, order), [*map(order.index, reverse)]), order)


def _reversed(x: Tensor, dims: Sequence[int]) -> Tensor:
    bounds = tuple((n - 1, -1, -1) if i in dims else (0, n, 1) for i, n in enumerate(x.shape))
    return apply(ops.copy, apply(ops.slice_, x, bounds=bounds))


def unslice(g: Tensor, a_shape: Shape, bounds: tuple[tuple[int, int, int], ...]) -> Tensor:
    """Zeros with g where the slice was; g turned back, where all was reversed. In new memory:
    the gradients of other slices may be added to it."""
    reverse = [d for d, (_, _, step) in enumerate(bounds) if step < 0]
    if reverse and g.shape == a_shape:
        return flip(g, *reverse)
    return apply(ops.unslice, g, shape=a_shape, bounds=bounds)


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements from `start` on, along `dim`.

    Raises:
        IndexError: x does not have all of them.
    """
    dim = normalize_dim(dim, x.ndim)
    if not (start >= 0 and length >= 0 and start + length <= x.shape[dim]):
        raise IndexError(
            f"narrow: {length} elements from {start} are not within size {x.shape[dim]}"
        )
    bounds = tuple(
        (start, start + length, 1) if i == dim else (0, n, 1) for i, n in enumerate(x.shape)
    )
    return apply(ops.slice_, x, bounds=bounds)


def split(
    x: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces of one size along `dim` (the last may be smaller), or of the sizes listed.

    Raises:
        ValueError: the sizes listed do not add up, or the one size is not positive.

    >>> from tinytorch import arange
    >>> split(arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    dim, size = normalize_dim(dim, x.ndim), split_size_or_sections
    extent = x.shape[dim]
    if isinstance(size, int):
        if size < 1:
            raise ValueError(f"split: size must be at least 1, not {size}")
        sizes = [min(size, extent - i) for i in range(0, extent, size)] or [0]
    else:
        sizes = list(size)
        if sum(sizes) != extent:
            raise ValueError(f"split: sizes {sizes} add up to {sum(sizes)}, not to {extent}")
    whole = [(0, n, 1) for n in x.shape]
    before, after, end, pieces = tuple(whole[:dim]), tuple(whole[dim + 1 :]), 0, []
    for n in sizes:
        start, end = end, end + n
        pieces.append(apply(ops.slice_, x, bounds=(*before, (start, end, 1), *after)))
    return tuple(pieces)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along `dim`, the last perhaps smaller.

    Raises:
        ValueError: `chunks` is not positive.

    >>> from tinytorch import arange
    >>> chunk(arange(5), 4)  # pieces of 1 would be five
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if chunks < 1:
        raise ValueError(f"chunk: chunks must be at least 1, not {chunks}")
    extent = x.shape[normalize_dim(dim, x.ndim)]
    if extent == 0:
        return split(x, [0] * chunks, dim)
    return split(x, max(1, -(-extent // chunks)), dim)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, each without it."""
    dim = normalize_dim(dim, x.ndim)
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    pieces = split(x, 1, dim) if x.shape[dim] else ()
    return tuple([apply(ops.reshape, piece, shape=shape) for piece in pieces])


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along an existing dimension, in the common dtype.

    Raises:
        ShapeError: another dimension differs.
        ValueError: there is no tensor.
        TypeError: it is another iterable than a list or a tuple.

    >>> from tinytorch import zeros
    >>> cat([zeros(2, 3), zeros(1, 3)]).shape
    (3, 3)
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"cat takes a list or a tuple of tensors, not {type(tensors).__name__}")
    if not tensors:
        raise ValueError("cat needs at least one tensor")
    if any([t.meta.shape == (0,) for t in tensors]) and len({t.ndim for t in tensors}) > 1:
        dtype = promote(*[t.meta for t in tensors])  # PyTorch's legacy: they count as nothing else
        tensors = [t.to(dtype) for t in tensors if t.shape != (0,)]
    return apply(ops.cat, *tensors, dim=normalize_dim(dim, tensors[0].ndim))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along a new dimension, which is dimension `dim` of the result.

    Raises:
        ShapeError: the shapes differ.
        ValueError: there is no tensor.

    >>> from tinytorch import zeros
    >>> stack([zeros(3), zeros(3)], -1).shape
    (3, 2)
    """
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def repeat(x: Tensor, *given: Any, repeats: Any = None) -> Tensor:
    """Copied `repeats` times along each dimension; more repeats than dimensions add new ones.

    Raises:
        ShapeError: there are fewer repeats than dimensions.

    >>> from tinytorch import tensor
    >>> repeat(tensor([1, 2]), 2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    counts = named_or_not(given, repeats)
    new = len(counts) - x.ndim
    if new < 0:
        raise ShapeError(f"repeat: {counts} has fewer entries than shape {x.shape}")
    shape = (1,) * new + x.shape
    spread = tuple(extent for pair in zip(counts, shape, strict=True) for extent in pair)
    doubled = tuple(extent for s in shape for extent in (1, s))
    merged = tuple(c * s for c, s in zip(counts, shape, strict=True))
    wide = expand(reshape(x, doubled), spread)
    return reshape(apply(ops.copy, wide), merged)  # without the copy it might be a view of x


def pad(x: Tensor, padding: Sequence[int], value: float = 0) -> Tensor:
    """A border of `value`. As in PyTorch, `padding` is (before, after) of the last dimension, then
    of the one before it, and so on.

    Raises:
        ValueError: padding is negative, has an odd length or is longer than the dimensions.

    >>> from tinytorch import tensor
    >>> pad(tensor([[1, 2]]), (1, 0, 0, 1), value=9)
    tensor([[9, 1, 2],
            [9, 9, 9]])
    """
    if len(padding) % 2 or len(padding) > 2 * x.ndim or min(padding, default=0) < 0:
        raise ValueError(f"pad: {tuple(padding)} is not (before, after) pairs for shape {x.shape}")
    pairs = [(0, 0)] * (x.ndim - len(padding) // 2)
    pairs += [(padding[i], padding[i + 1]) for i in range(len(padding) - 2, -1, -2)]
    shape = tuple(a + n + b for (a, b), n in zip(pairs, x.shape, strict=True))
    bounds = tuple((a, a + n, 1) for (a, _), n in zip(pairs, x.shape, strict=True))
    padded = apply(ops.unslice, x, shape=shape, bounds=bounds)
    if value == 0:
        return padded
    value = number_of("pad", value, x.dtype)
    inside = apply(ops.full, shape=x.shape, value=True, dtype=as_dtype(bool))
    return apply(ops.where, apply(ops.unslice, inside, shape=shape, bounds=bounds), padded, value)


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` every `step` along a dimension, as a view; a window is a new last
    dimension.

    The dimension, of n elements, becomes (n - size) // step + 1 windows.

    Raises:
        ShapeError: `size` is larger than n.

    >>> from tinytorch import arange
    >>> unfold(arange(5), 0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    if not x.ndim:
        x = reshape(x, (1,))
        return unfold(x, 0, size, step)[0]
    dim = normalize_dim(dimension, x.ndim)
    if dim == x.ndim - 1:
        return apply(ops.unfold, x, size=size, step=step)
    moved = apply(ops.unfold, transpose(x, dim, -1), size=size, step=step)
    return transpose(moved, dim, -2)


def swapaxes(x: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, as NumPy calls it."""
    return transpose(x, axis0, axis1)


def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Shifted along one dimension or several; what leaves at the end comes back at the front.

    Args:
        shifts: by how much; one number for each dimension.
        dims: the dimensions; None for the flattened tensor.

    Raises:
        ValueError: there are not as many shifts as dimensions.

    >>> from tinytorch import arange
    >>> roll(arange(5), 2, 0)
    tensor([3, 4, 0, 1, 2])
    """
    if dims is None or not x.ndim:
        return reshape(roll(reshape(x, (-1,)), shifts, 0), x.shape)
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    along = [dims] if isinstance(dims, int) else list(dims)
    if len(by) != len(along):
        raise ValueError(f"roll: {len(by)} shifts for {len(along)} dimensions")
    for shift, dim in zip(by, along, strict=True):
        extent = x.shape[normalize_dim(dim, x.ndim)]
        cut = (-shift) % extent if extent else 0
        x = cat([narrow(x, dim, cut, extent - cut), narrow(x, dim, 0, cut)], dim)
    return x


publish(
    globals(),
    replayed="reshape permute transpose swapaxes t expand expand_as broadcast_to squeeze "
    "unsqueeze flatten view_as unflatten flip narrow split chunk unbind repeat pad unfold roll "
    "cat stack",
    functions="cat stack pad",
    methods="expand expand_as view_as",
    hidden="rows in_shape alias unslice",
    aliases={
        "concat": "cat", "concatenate": "cat", "swapdims": "transpose",
    },
)  # fmt: skip
