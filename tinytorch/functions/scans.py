"""Scans: running sums, products and extrema along one dimension.

Sums are an op. The others combine ever longer stretches, each with the one before it, in
ceil(log2(n)) steps, so they are made of ops and have gradients of any order.

Source: W. Hillis, G. Steele, "Data parallel algorithms", 1986.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import bool_, int64, meta_of_array
from tinytorch.errors import ShapeError
from tinytorch.functions import elementwise, mathematics, movement, reductions
from tinytorch.functions.conversion import converted
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.functions.reductions import ValuesAndIndices, at_index
from tinytorch.functions.value_checks import check_not_negative
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """out[i] = x[0] + ... + x[i] along `dim`, in x's shape; int64 of integers without `dtype`.

    >>> from tinytorch import tensor
    >>> cumsum(tensor([1, 2, 3]), 0)
    tensor([1, 3, 6])
    """
    dim = normalize_dim(dim, x.ndim)
    x = converted(x, dtype)
    out = apply(ops.cumsum, x, dim=dim) if x.ndim else reductions.sum(x)
    return converted(out, dtype)


def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """out[i] = x[0] * ... * x[i] along `dim`, in x's shape; int64 of integers without `dtype`.

    Gradients are right where elements are 0.

    >>> from tinytorch import tensor
    >>> cumprod(tensor([1, 2, 3]), 0)
    tensor([1, 2, 6])
    """
    dim = normalize_dim(dim, x.ndim)
    if dtype is not None or not x.dtype.is_floating_point:
        x = converted(x, int64 if dtype is None else dtype)
    out = apply(ops.cumprod, x, dim=dim) if x.ndim else apply(ops.copy, x)
    return converted(out, dtype)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) along `dim`, without overflow."""
    return scanned((x,), normalize_dim(dim, x.ndim), _log_added)[0]


def _log_added(before: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor]:
    return (mathematics.logaddexp(before[0], now[0]),)


def cummax(x: Tensor, dim: int) -> ValuesAndIndices:
    """The largest element up to each along `dim`, with its index: of equal ones the last.

    NaN counts as the largest. The gradient goes to the index.

    >>> from tinytorch import tensor
    >>> cummax(tensor([1, 3, 2]), 0)
    ValuesAndIndices(values=tensor([1, 3, 3]), indices=tensor([0, 1, 1]))
    """
    return _running(ops.running_argmax, x, dim)


def cummin(x: Tensor, dim: int) -> ValuesAndIndices:
    """The smallest element up to each along `dim`, with its index: of equal ones the last.

    NaN counts as the smallest. The gradient goes to the index.
    """
    return _running(ops.running_argmin, x, dim)


def _running(op: Op, x: Tensor, dim: int) -> ValuesAndIndices:
    dim = normalize_dim(dim, x.ndim)
    index = apply(op, x.detach(), dim=dim) if x.ndim else reductions.argmax(x)
    return at_index(x, index, dim, keepdim=True)


def running_index(x: Tensor, dim: int, better: Callable[..., Tensor]) -> Tensor:
    """The index of the best element up to each along `dim`: of equal ones, and of NaN, the last.

    Args:
        better: whether elements are as good as others, for example `elementwise.ge`.
    """
    positions = np.arange(x.shape[dim]).reshape(-1, *(1,) * (x.ndim - dim - 1))
    index = movement.expand(wrap(positions, meta_of_array(positions)), x.shape)
    values = x.long() if x.dtype is bool_ else x

    def last_best(before: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        chosen = elementwise.logical_or(better(now[0], before[0]), elementwise.isnan(now[0]))
        return tuple(elementwise.where(chosen, n, b) for n, b in zip(now, before, strict=True))

    return scanned((values, index), dim, last_best)[1]


def scanned(
    values: tuple[Tensor, ...], dim: int, combine: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """The running combination of elements along a dimension.

    Args:
        values: tensors of one shape; what is combined is one element of each.
        combine: associative; takes the elements of earlier positions, then those of later ones.
    """
    if not values[0].ndim or values[0].shape[dim] < 2:
        return tuple(apply(ops.copy, v) for v in values)
    extent, reach = values[0].shape[dim], 1
    while reach < extent:
        done = [movement.narrow(v, dim, 0, reach) for v in values]
        before = tuple(movement.narrow(v, dim, 0, extent - reach) for v in values)
        now = tuple(movement.narrow(v, dim, reach, extent - reach) for v in values)
        pairs = zip(done, combine(before, now), strict=True)
        values = tuple(movement.cat([d, c], dim) for d, c in pairs)
        reach *= 2
    return values


def diff(
    x: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Each element minus the one before it along `dim`, n times over.

    Args:
        prepend, append: joined to x along `dim` before that.

    >>> from tinytorch import tensor
    >>> diff(tensor([1, 4, 9]))
    tensor([3, 5])
    """
    check_not_negative("diff: n", n)
    if not x.ndim:
        raise ShapeError("diff needs at least one dimension, not a 0-d tensor")
    parts = [part for part in (prepend, x, append) if part is not None]
    x = movement.cat(parts, dim) if len(parts) > 1 else x
    x = x if n else apply(ops.copy, x)
    for _ in range(n):
        extent = x.shape[normalize_dim(dim, x.ndim)]
        late = movement.narrow(x, dim, min(1, extent), max(0, extent - 1))
        early = movement.narrow(x, dim, 0, max(0, extent - 1))
        x = apply(ops.ne, late, early) if x.dtype is bool_ else late - early
    return x


publish(
    globals(),
    replayed="cumsum cumprod logcumsumexp cummax cummin diff",
    hidden="scanned running_index",
)
