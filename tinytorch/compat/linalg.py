"""`torch.linalg`: norms and products. What needs LAPACK is refused with NumPy's spelling."""

from __future__ import annotations

from typing import Any

import tinytorch
from tinytorch import matmul as matmul
from tinytorch.tensor import Tensor


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over dims, or over all elements.

    >>> vector_norm(tinytorch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = x if dtype is None else x.to(dtype)
    dims = tuple(range(x.ndim)) if dim is None else dim
    if ord == float("inf"):
        return tinytorch.amax(x.abs(), dims, keepdim=keepdim)
    if ord == -float("inf"):
        return tinytorch.amin(x.abs(), dims, keepdim=keepdim)
    if ord == 0:
        return tinytorch.sum((x != 0).to(x.dtype), dims, keepdim=keepdim)
    return tinytorch.norm(x, ord, dims, keepdim=keepdim)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """The Frobenius norm, or that of the greatest row (inf) or column (1).

    Raises:
        NotImplementedError: the norm needs singular values.
    """
    if ord == "fro":
        return vector_norm(A, 2, dim, keepdim)
    if ord in (1, -1, float("inf"), -float("inf")):
        summed, other = (dim[0], dim[1]) if abs(ord) == 1 else (dim[1], dim[0])
        sums = tinytorch.sum(A.abs(), summed, keepdim=True)
        out = (tinytorch.amax if ord > 0 else tinytorch.amin)(sums, other, keepdim=True)
        return out if keepdim else out.sum(tuple(dim))
    raise NotImplementedError(
        f"linalg.matrix_norm of order {ord!r} needs singular values: "
        f"use numpy.linalg.norm(A.numpy(), {ord!r})"
    )


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
    """`matrix_norm` where an order and two dims are given, `vector_norm` otherwise."""
    if ord is None or isinstance(dim, int) or (dim is None and A.ndim == 1):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, **options)
    return matrix_norm(A, ord, (-2, -1) if dim is None else tuple(dim), keepdim)


def multi_dot(tensors: Any) -> Tensor:
    """The product of matrices, from left to right."""
    out: Tensor
    out, *others = tensors
    for other in others:
        out = out @ other
    return out


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of products along a dim."""
    return tinytorch.sum(x * y, dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three components along a dim."""
    return tinytorch.cross(input, other, dim)


def matrix_power(A: Tensor, n: int) -> Tensor:
    """A times itself, n times.

    Raises:
        ValueError: n is negative.
    """
    if n < 0:
        raise ValueError(f"linalg.matrix_power: n must not be negative, not {n}")
    out = tinytorch.eye(A.shape[-1], dtype=A.dtype).expand(*A.shape)
    for _ in range(n):
        out = out @ A
    return out


def __getattr__(name: str) -> Any:
    from tinytorch.compat.names import module_name

    return module_name("torch.linalg", name)
