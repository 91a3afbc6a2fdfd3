"""Reductions: over all dimensions, over one or over several.

`dim` counts from the end if negative. The result has x's shape without the dimensions reduced, or
with size 1 there if `keepdim`. A dimension that x does not have raises IndexError, one named twice
ValueError. Functions that compute raise DTypeError for float16, which is for storage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import Shape, int64
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions import elementwise, indexing, movement
from tinytorch.functions.dims import normalize_dim, normalize_dims
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Dim = int | Sequence[int] | None


class ValuesAndIndices(NamedTuple):
    """Result of `max` and `min` along a dimension, `sort` and `topk`."""

    values: Tensor
    indices: Tensor


def sum(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Sum of elements; integers and bool give int64.

    Args:
        dim: the dimension or dimensions to sum over; None for all.
        keepdim: whether they stay, with size 1.

    >>> from tinytorch import tensor
    >>> x = tensor([[1, 2, 3], [4, 5, 6]])
    >>> sum(x), sum(x, 0), sum(x, 1, keepdim=True).shape
    (tensor(21), tensor([5, 7, 9]), (2, 1))
    """
    return apply(ops.sum, x, dims=normalize_dims(dim, x.ndim), keepdim=keepdim)


def mean(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Arithmetic mean: the sum, divided by the number of elements; NaN over none.

    Args:
        dim: the dimension or dimensions to average over; None for all.
        keepdim: whether they stay, with size 1.

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> mean(tensor([[1.0, 2.0], [3.0, 6.0]]), 1)
    tensor([1.5, 4.5])
    """
    if not x.dtype.is_floating_point:
        raise DTypeError(f"mean takes floating-point tensors, not {x.dtype.name}; use x.float()")
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
    x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False
) -> Tensor | ValuesAndIndices:
    """Largest element; along `dim` with its index; or with another tensor, `maximum`.

    Over all elements the largest share the gradient; along `dim` it goes to the index returned.

    Raises:
        ShapeError: there are no elements.

    >>> from tinytorch import tensor
    >>> max(tensor([[1, 5, 2], [7, 0, 7]]), 1)
    ValuesAndIndices(values=tensor([5, 7]), indices=tensor([1, 0]))
    """
    if dim is None:
        return amax(x)
    if not isinstance(dim, int):
        return elementwise.maximum(x, dim)
    return _at(x, argmax(x, dim, keepdim=True), dim, keepdim)


def min(
    x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False
) -> Tensor | ValuesAndIndices:
    """Smallest element; along `dim` with its index; or with another tensor, `minimum`.

    Gradients and errors are as for `max`.
    """
    if dim is None:
        return amin(x)
    if not isinstance(dim, int):
        return elementwise.minimum(x, dim)
    return _at(x, argmin(x, dim, keepdim=True), dim, keepdim)


def _at(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> ValuesAndIndices:
    values = indexing.gather(x, dim, index) if x.ndim else x
    if keepdim or not x.ndim:
        return ValuesAndIndices(values, index)
    return ValuesAndIndices(movement.squeeze(values, dim), movement.squeeze(index, dim))


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


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> ValuesAndIndices:
    """Elements in order along `dim`, with where they stood; equal ones keep their order.

    >>> from tinytorch import tensor
    >>> sort(tensor([3, 1, 2]))
    ValuesAndIndices(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))
    """
    return _at(x, argsort(x, dim, descending), dim, keepdim=True)


def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices that would sort along `dim`; equal elements keep their order, NaN is the largest.

    >>> from tinytorch import tensor
    >>> argsort(tensor([10, 30, 20]), descending=True)
    tensor([1, 2, 0])
    """
    if x.ndim == 0:
        normalize_dim(dim, 0)
        return apply(ops.full, shape=(), value=0, dtype=int64)
    return apply(ops.argsort, x, dim=normalize_dim(dim, x.ndim), descending=descending)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> ValuesAndIndices:
    """The k largest (or smallest) elements along `dim`, in order, with their indices.

    Raises:
        ShapeError: there are fewer than k elements along `dim`, or k is negative.

    >>> from tinytorch import tensor
    >>> topk(tensor([3, 1, 4, 1, 5]), 2)
    ValuesAndIndices(values=tensor([5, 4]), indices=tensor([4, 2]))
    """
    extent = x.shape[normalize_dim(dim, x.ndim)]
    if not 0 <= k <= extent:
        raise ShapeError(f"topk: k={k} is not within 0 and {extent}, the size of dim {dim}")
    index = movement.narrow(argsort(x, dim, descending=largest), dim, 0, k)
    return ValuesAndIndices(indexing.gather(x, dim, index), index)


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Product of elements, by multiplying halves; so gradients are right where elements are 0.

    Integers and bool give int64; over no elements it is 1.

    >>> from tinytorch import tensor
    >>> x = tensor([2.0, 0.0, 3.0], requires_grad=True)
    >>> prod(x).backward()
    >>> x.grad
    tensor([0., 6., 0.])
    """
    if dim is None or x.ndim == 0:
        product = _prod_last(movement.reshape(x, (-1,)))
        return movement.reshape(product, (1,) * x.ndim) if keepdim else product
    dim = normalize_dim(dim, x.ndim)
    product = _prod_last(movement.transpose(x, dim, -1))
    # what was last now stands at `dim`
    product = movement.unsqueeze(product, -1)
    product = movement.transpose(product, dim, -1)
    return product if keepdim else movement.squeeze(product, dim)


def _prod_last(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        x = x.long()
    if x.shape[-1] == 0:
        return sum(x, -1) + 1
    while (n := x.shape[-1]) > 1:
        half = n // 2
        rest = movement.narrow(x, -1, 2 * half, n - 2 * half)
        x = movement.narrow(x, -1, 0, half) * movement.narrow(x, -1, half, half)
        if n % 2:
            x = movement.cat([x, rest], -1)
    return movement.squeeze(x, -1)


def var(x: Tensor, dim: Dim = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """sum((x - mean(x))^2) / (n - correction).

    Args:
        dim: the dimension or dimensions of the n elements; None for all.
        correction: 1 to estimate the variance of what x is a sample of without bias (Bessel's
            correction), 0 for that of the elements themselves. n <= correction divides by 0.
        keepdim: whether the dimensions stay, with size 1.

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> x = tensor([1.0, 2.0, 3.0, 4.0])
    >>> var(x), var(x, correction=0)
    (tensor(1.6667), tensor(1.25))
    """
    if not x.dtype.is_floating_point:
        raise DTypeError(f"var takes floating-point tensors, not {x.dtype.name}; use x.float()")
    dims = normalize_dims(dim, x.ndim)
    deviation = x - mean(x, dims, keepdim=True)
    total = sum(deviation * deviation, dims, keepdim)
    count = math.prod(x.shape[d] for d in dims) - correction
    return apply(ops.div, total, float(count if count > 0 else 0))


def std(x: Tensor, dim: Dim = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """Standard deviation: the square root of `var`.

    Raises:
        DTypeError: the tensor is not floating-point.
    """
    return apply(ops.sqrt, var(x, dim, correction, keepdim))


def all(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Every element is true (not zero); over no elements, true."""
    # over no elements `all` is true: count the false ones
    false = sum(apply(ops.logical_not, x), dim, keepdim)
    return apply(ops.eq, false, 0)


def any(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """At least one element is true (not zero); over no elements, false."""
    return apply(ops.ne, sum(apply(ops.ne, x, 0), dim, keepdim), 0)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """out[i] = x[0] + ... + x[i] along `dim`, in x's shape; integers and bool give int64.

    >>> from tinytorch import tensor
    >>> cumsum(tensor([1, 2, 3]), 0)
    tensor([1, 3, 6])
    """
    if x.ndim == 0:
        return sum(x)
    return apply(ops.cumsum, x, dim=normalize_dim(dim, x.ndim))


def logsumexp(x: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))), computed without overflow as m + log(sum(exp(x - m))), m the largest.

    Raises:
        ShapeError: there are no elements.

    Source: P. Blanchard, D. Higham, N. Higham, "Accurately computing the log-sum-exp and softmax
    functions", 2021.

    >>> from tinytorch import tensor
    >>> logsumexp(tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    dims = normalize_dims(dim, x.ndim)
    largest = amax(x, dims, keepdim=True).detach()
    # an infinite largest element must not be subtracted from itself
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    total = elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=True)) + shift
    return total if keepdim else movement.reshape(total, _without(x.shape, dims))


def _without(shape: Shape, dims: tuple[int, ...]) -> Shape:
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def softmax(x: Tensor, dim: int) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, in x's shape, computed without overflow.

    Raises:
        DTypeError: the tensor is not floating-point.

    Source: as for `logsumexp`.

    >>> from tinytorch import tensor
    >>> softmax(tensor([1000.0, 1000.0]), 0)
    tensor([0.5, 0.5])
    """
    return apply(ops.softmax, x, dim=normalize_dim(dim, x.ndim))


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """x - logsumexp(x) along `dim`: log(softmax(x)) without overflow and without log(0).

    Raises:
        DTypeError: the tensor is not floating-point.

    >>> from tinytorch import tensor
    >>> log_softmax(tensor([0.0, 1000.0]), 0)
    tensor([-1000.,     0.])
    """
    return apply(ops.log_softmax, x, dim=normalize_dim(dim, x.ndim))


def norm(x: Tensor, p: float = 2, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """(sum |x|^p)^(1/p); p may be 1, 2, infinity (the largest |x|) or another positive number.

    >>> from tinytorch import tensor
    >>> x = tensor([3.0, -4.0])
    >>> norm(x), norm(x, 1), norm(x, math.inf)
    (tensor(5.), tensor(7.), tensor(4.))
    """
    if not p > 0:
        raise ValueError(f"norm: p must be positive, not {p}")
    if p == 2:
        return elementwise.sqrt(sum(x * x, dim, keepdim))
    magnitude = elementwise.abs(x)
    if p == 1:
        return sum(magnitude, dim, keepdim)
    if p == math.inf:
        return amax(magnitude, dim, keepdim)
    return elementwise.pow(sum(elementwise.pow(magnitude, p), dim, keepdim), 1 / p)


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
    return movement.reshape(sum(x, dims), shape)
