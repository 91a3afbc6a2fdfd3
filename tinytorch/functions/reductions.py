"""Reductions: over all dimensions, over one or over several.

`dim` counts from the end if negative. The result has x's shape without the dimensions reduced, or
with size 1 there if `keepdim`. A dimension that x does not have raises IndexError, one named twice
ValueError. Functions that compute raise DTypeError for float16, which is for storage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import Shape, bool_, float32, float64, int64, uint8
from tinytorch.errors import DTypeError
from tinytorch.functions import elementwise, movement
from tinytorch.functions.conversion import converted as _converted
from tinytorch.functions.copies import order_of, permuted, with_zero_gradient
from tinytorch.functions.dims import normalize_dim, normalize_dims
from tinytorch.functions.publish import publish
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Dim = int | Sequence[int] | None

#: Of how many elements at most the true ones are counted in floats. float32 has all whole numbers
#: up to there, so ones may be added in any order; a sum of more float64 than that takes longer.
_COUNTING = {float32: 2**24, float64: 2**13}


class ValuesAndIndices(NamedTuple):
    """Result of `max` and `min` along a dimension, `sort` and its like."""

    values: Tensor
    indices: Tensor


class MinAndMax(NamedTuple):
    """Result of `aminmax`."""

    min: Tensor
    max: Tensor


def sum(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum of elements; integers and bool give int64.

    Args:
        dim: the dimension or dimensions to sum over; None for all.
        keepdim: whether they stay, with size 1.
        dtype: to convert to before summing, and that of the result, of integers too.

    >>> from tinytorch import tensor
    >>> x = tensor([[1, 2, 3], [4, 5, 6]])
    >>> sum(x), sum(x, 0), sum(x, 1, keepdim=True).shape
    (tensor(21), tensor([5, 7, 9]), (2, 1))
    """
    x = _converted(x, dtype)
    dims = normalize_dims(dim, x.ndim)
    return _converted(apply(ops.sum, x, dims=dims, keepdim=keepdim), dtype)


def mean(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Arithmetic mean: the sum, divided by the number of elements; NaN over none.

    Args:
        dim: the dimension or dimensions to average over; None for all.
        keepdim: whether they stay, with size 1.
        dtype: to convert to first.

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> mean(tensor([[1.0, 2.0], [3.0, 6.0]]), 1)
    tensor([1.5, 4.5])
    """
    x = _converted(x, dtype)
    _only_floating("mean", x)
    dims = normalize_dims(dim, x.ndim)
    total = apply(ops.sum, x, dims=dims, keepdim=keepdim)
    return apply(ops.div, total, math.prod(x.shape[d] for d in dims))


def amax(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Largest element, NaN if there is one. Equal largest elements share the gradient.

    Raises:
        ShapeError: there are no elements.
    """
    return apply(ops.amax, x, dims=normalize_dims(dim, x.ndim), keepdim=keepdim)


def amin(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Smallest element, NaN if there is one. Equal smallest elements share the gradient.

    Raises:
        ShapeError: there are no elements.
    """
    return apply(ops.amin, x, dims=normalize_dims(dim, x.ndim), keepdim=keepdim)


def max(
    x: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
) -> Tensor | ValuesAndIndices:
    """Largest element; along `dim` with its index; or with another tensor, `maximum`.

    Over all elements the largest share the gradient; along `dim` it goes to the index returned.

    Raises:
        ShapeError: there are no elements.

    >>> from tinytorch import tensor
    >>> max(tensor([[1, 5, 2], [7, 0, 7]]), 1)
    ValuesAndIndices(values=tensor([5, 7]), indices=tensor([1, 0]))
    """
    dim = dim if other is None else other
    if dim is None:
        return amax(x)
    if not isinstance(dim, (int, np.integer)):
        return elementwise.maximum(x, _other("max", dim))
    return at_index(x, argmax(x, dim, keepdim=True), dim, keepdim)


def _other(name: str, value: Any) -> Any:
    """What is compared with, element by element: not a `dim` that is no whole number."""
    if isinstance(value, float):
        raise TypeError(f"{name}: dim is a whole number, or there is another tensor: not {value}")
    return value


def min(
    x: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
) -> Tensor | ValuesAndIndices:
    """Smallest element; along `dim` with its index; or with another tensor, `minimum`.

    Gradients and errors are as for `max`.
    """
    dim = dim if other is None else other
    if dim is None:
        return amin(x)
    if not isinstance(dim, (int, np.integer)):
        return elementwise.minimum(x, _other("min", dim))
    return at_index(x, argmin(x, dim, keepdim=True), dim, keepdim)


def at_index(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> ValuesAndIndices:
    """The elements at the indices that a reduction with `keepdim` found, and those indices."""
    dim = normalize_dim(dim, x.ndim)
    if not x.ndim:
        return ValuesAndIndices(apply(ops.copy, x), index)
    if keepdim:
        return ValuesAndIndices(apply(ops.gather, x, index, dim=dim), index)
    shape = _without(x.shape, (dim,))
    indices = movement.in_shape(index, shape)
    # by what is returned: the gradient of a program then reads that, and finds it no second time
    values = apply(ops.gather, x, movement.in_shape(indices, index.shape), dim=dim)
    return ValuesAndIndices(movement.in_shape(values, shape), indices)


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element, along `dim` or in the flattened tensor; as int64.

    Raises:
        ShapeError: there are no elements.

    >>> from tinytorch import tensor
    >>> x = tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> argmax(x), argmax(x, 1)
    (tensor(1), tensor([1, 0]))
    """
    return _arg(ops.argmax, x, dim, keepdim)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element, along `dim` or in the flattened tensor; as int64.

    Raises:
        ShapeError: there are no elements.
    """
    return _arg(ops.argmin, x, dim, keepdim)


def _arg(op: Op, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None or x.ndim == 0:
        flat = apply(op, movement.reshape(x, (-1,)), dim=0, keepdim=False)
        return movement.reshape(flat, (1,) * x.ndim) if keepdim else flat
    return apply(op, x, dim=normalize_dim(dim, x.ndim), keepdim=keepdim)


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Product of elements. Gradients are right where elements are 0.

    Integers and bool give int64, unless another `dtype` is given; over no elements it is 1.

    >>> from tinytorch import tensor
    >>> x = tensor([2.0, 0.0, 3.0], requires_grad=True)
    >>> prod(x).backward()
    >>> x.grad
    tensor([0., 6., 0.])
    """
    if dim is None and (order := order_of(x)) is not None:
        x = permuted(x, order)  # the factors may come in any
    x = _converted(x, dtype)
    if dim is None or x.ndim == 0:
        product = apply(ops.prod, movement.reshape(x, (-1,)), dim=0, keepdim=False)
        product = movement.reshape(product, (1,) * x.ndim) if keepdim else product
    else:
        product = apply(ops.prod, x, dim=normalize_dim(dim, x.ndim), keepdim=keepdim)
    return _converted(product, dtype)


def var(
    x: Tensor,
    dim: Dim | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """sum((x - mean(x))^2) / (n - correction).

    Args:
        dim: the dimension or dimensions of the n elements; None for all. A bool here is `unbiased`.
        unbiased: False for correction 0, True for 1.
        keepdim: whether the dimensions stay, with size 1.
        correction: 1, which None is, to estimate the variance of what x is a sample of without
            bias (Bessel's correction), 0 for that of the elements themselves. n <= correction
            divides by 0.

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> x = tensor([1.0, 2.0, 3.0, 4.0])
    >>> var(x), var(x, unbiased=False)
    (tensor(1.6667), tensor(1.25))
    """
    _only_floating("var", x)
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    dims = normalize_dims(dim, x.ndim)
    deviation = x - mean(x, dims, keepdim=True)
    total = apply(ops.sum, deviation * deviation, dims=dims, keepdim=keepdim)
    count = math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction)
    return apply(ops.div, total, float(count if count > 0 else 0))


def std(
    x: Tensor,
    dim: Dim | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Standard deviation: the square root of `var`. Where it is 0, so is its gradient.

    Args are those of `var`.

    Raises:
        DTypeError: the tensor is not floating-point.
    """
    return root(var(x, dim, unbiased, keepdim, correction=correction), 2)


def var_mean(x: Tensor, dim: Dim | bool = None, **options: Any) -> tuple[Tensor, Tensor]:
    """`var` and `mean` of the same elements; options are those of `var`."""
    over = None if isinstance(dim, bool) else dim
    return var(x, dim, **options), mean(x, over, options.get("keepdim", False))


def std_mean(x: Tensor, dim: Dim | bool = None, **options: Any) -> tuple[Tensor, Tensor]:
    """`std` and `mean` of the same elements; options are those of `var`."""
    over = None if isinstance(dim, bool) else dim
    return std(x, dim, **options), mean(x, over, options.get("keepdim", False))


def all(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true (not zero); over no elements, true.

    The result is bool; of uint8, as in PyTorch, uint8: 1 or 0.

    >>> from tinytorch import tensor, uint8
    >>> all(tensor([[1, 2], [3, 0]]), 1), all(tensor([1, 2], dtype=uint8))
    (tensor([ True, False]), tensor(1, dtype=uint8))
    """
    true = x if x.dtype is bool_ else apply(ops.ne, x, 0)
    if true.meta.size:
        return _answer(amin(true, dim, keepdim), x)
    return _answer(apply(ops.eq, sum(apply(ops.logical_not, x), dim, keepdim), 0), x)


def any(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether at least one element is true (not zero); over no elements, false.

    The result is bool; of uint8, as in PyTorch, uint8: 1 or 0.
    """
    true = x if x.dtype is bool_ else apply(ops.ne, x, 0)
    if true.meta.size:
        return _answer(amax(true, dim, keepdim), x)
    return _answer(apply(ops.ne, sum(true, dim, keepdim), 0), x)


def _answer(true: Tensor, x: Tensor) -> Tensor:
    """bool as it is; uint8 for uint8, which was the type of a truth value before there was bool."""
    return apply(ops.cast, true, dtype=uint8) if x.dtype is uint8 else true


def nansum(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`sum` of the elements that are not NaN."""
    x = _converted(x, dtype)
    if not x.dtype.is_floating_point:
        return sum(x, dim, keepdim, dtype=dtype)
    return sum(apply(ops.where, apply(ops.ne, x, x), x.dtype.zero, x), dim, keepdim)


def nanmean(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """`mean` of the elements that are not NaN; NaN where there is none."""
    _only_floating("nanmean", x)
    counted = sum(apply(ops.eq, x, x), dim, keepdim)
    return apply(ops.div, nansum(x, dim, keepdim), counted.to(x.dtype))


def count_nonzero(x: Tensor, dim: Dim = None) -> Tensor:
    """The number of elements that are not 0, as int64."""
    true = apply(ops.ne, x, 0)
    if x.dtype in _COUNTING and x.meta.size <= _COUNTING[x.dtype]:  # one loop, where it is replayed
        return apply(ops.cast, sum(apply(ops.cast, true, dtype=x.dtype), dim), dtype=int64)
    return sum(true, dim)


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinAndMax:
    """`amin` and `amax` in one call."""
    return MinAndMax(amin(x, dim, keepdim), amax(x, dim, keepdim))


def logsumexp(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))), computed without overflow as m + log(sum(exp(x - m))), m the largest.

    Integers give floats. Where m is infinite, it is not subtracted (that would be NaN): the
    result is m.

    Args:
        dim: the dimension or dimensions to sum over; None for all.
        keepdim: whether they stay, with size 1.

    Raises:
        ShapeError: there are no elements.

    Source: P. Blanchard, D. Higham, N. Higham, "Accurately computing the log-sum-exp and softmax
    functions", 2021.

    >>> from tinytorch import tensor
    >>> logsumexp(tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    dims = normalize_dims(dim, x.ndim)
    largest = apply(ops.amax, x, dims=dims, keepdim=True).detach()
    # an infinite largest element must not be subtracted from itself
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    total = elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=True)) + shift
    return total if keepdim else movement.reshape(total, _without(x.shape, dims))


def _without(shape: Shape, dims: tuple[int, ...]) -> Shape:
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, in x's shape, computed without overflow.

    Raises:
        DTypeError: the tensor is not floating-point.

    Source: as for `logsumexp`.

    >>> from tinytorch import tensor
    >>> softmax(tensor([1000.0, 1000.0]), 0)
    tensor([0.5, 0.5])
    """
    x = _converted(x, dtype)
    return apply(ops.softmax, x, dim=normalize_dim(dim, x.ndim))


def log_softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """x - logsumexp(x) along `dim`: log(softmax(x)) without overflow and without log(0).

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> log_softmax(tensor([0.0, 1000.0]), 0)
    tensor([-1000.,     0.])
    """
    x = _converted(x, dtype)
    return apply(ops.log_softmax, x, dim=normalize_dim(dim, x.ndim))


def norm(
    x: Tensor, p: float | str = 2, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """(sum |x|^p)^(1/p). Where it is 0, so is its gradient.

    Args:
        p: a number from 0 up; infinity for the largest |x|, -infinity for the smallest, 0 for how
            many are not 0, "fro" for 2.
        dim: the dimension or dimensions to reduce; None for all.
        keepdim: whether they stay, with size 1.

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> x = tensor([3.0, -4.0])
    >>> norm(x), norm(x, 1), norm(x, math.inf)
    (tensor(5.), tensor(7.), tensor(4.))
    """
    _only_floating("norm", x)
    if p == "fro":
        p = 2
    if isinstance(p, str) or (p < 0 and p != -math.inf):
        raise ValueError(f"norm: p must be a number from 0 up, -inf, or 'fro', not {p!r}")
    x = _converted(x, dtype)
    if p == 2:
        return root(sum(x * x, dim, keepdim), 2)
    magnitude = elementwise.abs(x)
    if p == 1:
        return sum(magnitude, dim, keepdim)
    if p == 0:
        count = sum(apply(ops.ne, x, 0), dim, keepdim).to(x.dtype)
        return with_zero_gradient(count, sum(x, dim, keepdim)) if x.requires_grad else count
    if p in (math.inf, -math.inf):
        return (amax if p > 0 else amin)(magnitude, dim, keepdim)
    zero = apply(ops.eq, x, 0)  # for p < 1 the derivative there is infinite
    powers = elementwise.pow(apply(ops.where, zero, 1.0, magnitude), p)
    return root(sum(apply(ops.where, zero, 0.0, powers), dim, keepdim), p)


def root(total: Tensor, p: float) -> Tensor:
    """total^(1/p) of sums that are not negative; the gradient where the sum is 0 is 0.

    There the derivative is infinite, and infinity times the 0 of the terms would be NaN.
    """
    if not total.requires_grad and isinstance(total._data, np.ndarray):
        return apply(ops.sqrt, total) if p == 2 else elementwise.pow(total, 1 / p)
    zero = apply(ops.eq, total, 0)
    safe = apply(ops.where, zero, 1.0, total)
    root = apply(ops.sqrt, safe) if p == 2 else elementwise.pow(safe, 1 / p)
    return apply(ops.where, zero, 0.0, root)


def _only_floating(name: str, x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{name} takes floating-point tensors, not {x.dtype.name}; use x.float()")


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """Summed to a shape that broadcasts to x's: the adjoint of broadcasting.

    Where broadcasting repeated an element, its copies are added up: dimensions that `shape` does
    not have are summed away, and those that have size 1 in it become size 1.

    Args:
        x: any tensor.
        shape: broadcasts to x.shape.

    Returns:
        A tensor of this shape; x itself if it has it already.

    >>> from tinytorch import ones
    >>> sum_to(ones(4, 2), (1, 2))
    tensor([[4., 4.]])
    """
    if x.shape == shape:
        return x
    new = x.ndim - len(shape)
    dims = tuple(i for i in range(x.ndim) if i < new or (shape[i - new] == 1 and x.shape[i] != 1))
    return movement.reshape(apply(ops.sum, x, dims=dims, keepdim=False), shape)


publish(
    globals(),
    replayed="sum mean amax amin max min argmax argmin softmax log_softmax var std var_mean "
    "std_mean prod all any nansum nanmean count_nonzero aminmax logsumexp norm",
    hidden="at_index root sum_to",
)
