"""Copies in the order of memory: a large tensor that is stored by columns is copied as it lies.

From one row to the next such a copy would jump through memory; PyTorch's keep the order, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, bool_
from tinytorch.replay import holds

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

LARGE = 2**16  # bytes: below, an array is in a cache and its order makes no difference

Order = tuple[int, ...]


def _by_strides(data: Array) -> Order:
    return tuple(sorted(range(data.ndim), key=lambda d: -data.strides[d]))


def _is_as_stored(data: Array) -> bool:
    """Whether the order of the dimensions is that of memory, or of no use."""
    if data.flags.c_contiguous:
        return True
    return not data.transpose(_by_strides(data)).flags.c_contiguous


def order_of(x: Tensor) -> Order | None:
    """The order of dimensions in which a large tensor is contiguous.

    None where that is the order as it is, where it is contiguous in no order, and in a trace. A
    program is made for tensors of which this is None.
    """
    if x.meta.nbytes < LARGE or holds(x, _is_as_stored, traced=True):
        return None
    assert isinstance(x._data, np.ndarray)
    return _by_strides(x._data)


def permuted(x: Tensor, order: Order) -> Tensor:
    """The dimensions in that order."""
    return apply(ops.permute, x, dims=order)


def permuted_back(x: Tensor, order: Order) -> Tensor:
    """The dimensions of what is `permuted` as they were."""
    return permuted(x, tuple(map(order.index, range(len(order)))))


def copied(x: Tensor) -> Tensor:
    """A copy with memory of its own, in the order of x's memory; the gradient passes through."""
    order = order_of(x)
    if order is None:
        return apply(ops.copy, x)
    return permuted_back(apply(ops.copy, permuted(x, order)), order)


def with_zero_gradient(value: Any, *inputs: Tensor) -> Any:
    """`value`, recorded as a function of those inputs (which broadcast to its shape) that require a
    gradient, which is 0."""
    for x in inputs:
        if x.requires_grad:
            value = apply(ops.where, apply(ops.full, shape=(), value=True, dtype=bool_), value, x)
    return value
