"""Lengths, distances and angles of vectors."""

from __future__ import annotations

from tinytorch.functions.arrangement import broadcast_tensors
from tinytorch.functions.elementwise import abs, clip
from tinytorch.functions.reductions import norm, sum
from tinytorch.tensor import Tensor


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(|x|, eps), where |x| is the p-norm along `dim`.

    >>> import tinytorch
    >>> normalize(tinytorch.tensor([3.0, 4.0]), dim=0)
    tensor([0.6, 0.8])
    """
    return input / clip(norm(input, p, dim, keepdim=True), min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`, which the result is without.

    Args:
        x1, x2: they broadcast.

    Raises:
        ValueError: eps is negative.
    """
    if not eps >= 0:
        raise ValueError(f"cosine_similarity: eps must not be negative: {eps}")
    if x1.ndim != x2.ndim or x1.shape[dim:][:1] != x2.shape[dim:][:1]:
        x1, x2 = broadcast_tensors(x1, x2)  # a vector that is repeated along `dim` is longer
    lengths = [clip(norm(x, 2, dim, keepdim=True), min=eps) for x in (x1, x2)]
    return sum((x1 / lengths[0]) * (x2 / lengths[1]), dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    difference = x1 - x2 + eps
    if p == 1:
        return sum(abs(difference), -1, keepdim)
    return norm(difference, p, -1, keepdim)
