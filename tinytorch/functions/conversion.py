"""Other dtypes, and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import as_dtype, bool_, float16, float32, float64, int32, int64

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def to(x: Tensor, dtype: Any) -> Tensor:
    """In another dtype; x itself if it has that already. Floats become integers by truncation.

    Args:
        dtype: a `DType`, its name, a NumPy dtype or a Python number type.

    Raises:
        DTypeError: it is not one of TinyTorch's.

    >>> from tinytorch import tensor
    >>> to(tensor([1.7, -1.7]), "int32")
    tensor([ 1, -1], dtype=int32)
    """
    kind = as_dtype(dtype)
    return x if kind is x.dtype else apply(ops.cast, x, dtype=kind)


def to_float(x: Tensor) -> Tensor:
    """As float32."""
    return to(x, float32)


def to_double(x: Tensor) -> Tensor:
    """As float64."""
    return to(x, float64)


def to_half(x: Tensor) -> Tensor:
    """As float16, which can be stored and converted, not computed with."""
    return to(x, float16)


def to_int(x: Tensor) -> Tensor:
    """As int32."""
    return to(x, int32)


def to_long(x: Tensor) -> Tensor:
    """As int64."""
    return to(x, int64)


def to_bool(x: Tensor) -> Tensor:
    """As bool: true where it is not zero."""
    return to(x, bool_)


def detach(x: Tensor) -> Tensor:
    """The same values, sharing memory, without history: no gradient passes."""
    return apply(ops.detach, x)


def clone(x: Tensor) -> Tensor:
    """A copy with memory of its own; the gradient passes through."""
    return apply(ops.copy, x)


def contiguous(x: Tensor) -> Tensor:
    """x itself, or a copy if its elements do not stand in memory in order."""
    data = x._data
    return x if isinstance(data, np.ndarray) and data.flags.c_contiguous else clone(x)
