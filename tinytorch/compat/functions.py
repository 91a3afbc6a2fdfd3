"""Functions and methods of PyTorch's that are another spelling of what there is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import tinytorch
from tinytorch.dtypes import TensorMeta, as_dtype, category_of, promote, tensor_meta
from tinytorch.errors import DTypeError
from tinytorch.random import default_generator as default_generator
from tinytorch.tensor import Tensor

newaxis = None


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """x with elements below `min` raised to it."""
    return tinytorch.clip(input, min, None)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """x with elements above `max` lowered to it."""
    return tinytorch.clip(input, None, max)


def positive(input: Tensor) -> Tensor:
    """x itself."""
    return +input


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy."""
    return input.clone()


def detach(input: Tensor) -> Tensor:
    """The same values without history."""
    return input.detach()


def fill(input: Tensor, value: Any) -> Tensor:
    """The value in the shape of x."""
    return tinytorch.full_like(input, value)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    """A tensor of anything; a copy if asked for."""
    return tinytorch.tensor(obj, dtype=dtype) if copy else tinytorch.as_tensor(obj, dtype=dtype)


def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A 0-d tensor, of float32 unless a dtype is given."""
    kind = "float32" if dtype is None else dtype
    return tinytorch.tensor(s, dtype=kind, requires_grad=requires_grad)


def rsub(input: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha x"""
    out: Tensor = tinytorch.sub(other, input, alpha=alpha)
    return out


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product."""
    return tinytorch.dot(input, other)


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The greater of two, or the one that is a number."""
    greater = tinytorch.where(other.isnan(), input, tinytorch.maximum(input, other))
    return tinytorch.where(input.isnan(), other, greater)


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The lesser of two, or the one that is a number."""
    lesser = tinytorch.where(other.isnan(), input, tinytorch.minimum(input, other))
    return tinytorch.where(input.isnan(), other, lesser)


def isposinf(input: Tensor) -> Tensor:
    """True where x is infinity."""
    return input == math.inf


def isneginf(input: Tensor) -> Tensor:
    """True where x is minus infinity."""
    return input == -math.inf


def isreal(input: Tensor) -> Tensor:
    """True everywhere."""
    return tinytorch.ones_like(input, dtype="bool")


def is_nonzero(input: Tensor) -> bool:
    """The one element is not zero."""
    return bool(input.item())


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """The shapes are equal."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """The dtype has negative numbers."""
    return input.dtype.dtype.kind in "if"


def get_device(input: Tensor) -> int:
    """-1: the CPU has no number."""
    return -1


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that operands of these shapes have together.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return np.broadcast_shapes(*shapes)


def promote_types(type1: Any, type2: Any) -> Any:
    """The dtype that tensors of these have together."""
    return promote(*(tensor_meta((1,), as_dtype(t)) for t in (type1, type2)))


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype of tensor1 + tensor2."""
    metas: list[TensorMeta | type] = [
        v.meta if isinstance(v, Tensor) else type(v) for v in (tensor1, tensor2)
    ]
    return promote(*metas)


def can_cast(from_: Any, to: Any) -> bool:
    """A write in place may convert so: not to a lower category (bool < integer < float)."""
    return category_of(as_dtype(from_)) <= category_of(as_dtype(to))


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a matrix of zeros."""
    matrices = [t if t.ndim == 2 else t.reshape(1, -1) for t in tensors]
    width = sum(m.shape[1] for m in matrices)
    rows, left = [], 0
    for m in matrices:
        h, w = m.shape
        parts = [tinytorch.zeros(h, left), m, tinytorch.zeros(h, width - left - w)]
        rows.append(tinytorch.cat([p.to(m.dtype) for p in parts], 1))
        left += w
    return tinytorch.cat(rows, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """The tuples of one element from each tensor, as rows."""
    grid = list(itertools.product(*(range(t.shape[0]) for t in tensors)))
    columns = [t[[row[i] for row in grid]] for i, t in enumerate(tensors)]
    return columns[0] if len(tensors) == 1 else tinytorch.stack(columns, 1)


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral of y over x, or at steps of dx, by the trapezoidal rule."""
    n = y.shape[dim]
    pairs = (tinytorch.narrow(y, dim, 1, n - 1) + tinytorch.narrow(y, dim, 0, n - 1)) / 2
    if x is None:
        return tinytorch.sum(pairs * dx, dim)
    dim = dim % y.ndim - y.ndim  # from the last: x may have fewer dimensions
    if x.ndim == 1:
        x = x.reshape(-1, *[1] * (-1 - dim))
    steps = tinytorch.narrow(x, dim, 1, n - 1) - tinytorch.narrow(x, dim, 0, n - 1)
    return tinytorch.sum(pairs * steps, dim)


trapz = trapezoid


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """sin^2 over a window; periodic for a Fourier transform."""
    n = window_length if periodic else window_length - 1
    return tinytorch.tensor(
        [math.sin(math.pi * i / max(n, 1)) ** 2 for i in range(window_length)], dtype="float32"
    )


def hamming_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos over a window."""
    return hann_window(window_length, periodic) * 0.92 + 0.08


def in_place(value: Tensor, base: str) -> Any:
    """The method `base_`, made of `base`: the result is written into the tensor.

    Raises, when called:
        DTypeError: the result is of a higher category than the tensor.
        ShapeError: it has another shape.
    """

    def method(*args: Any, **keywords: Any) -> Tensor:
        out = getattr(value, base)(*args, **keywords)
        if out.shape != value.shape or category_of(out.dtype) > category_of(value.dtype):
            raise DTypeError(
                f"{base}_: the result, {out.meta}, cannot be written into {value.meta}; "
                f"write x = x.{base}(...)"
            )
        return value.copy_(out)

    method.__name__ = f"{base}_"
    return method
