"""Weight and spectral normalization, as functions of tensors."""

from __future__ import annotations

from tinytorch.autograd import no_grad
from tinytorch.functions.linalg import matmul
from tinytorch.functions.movement import permute, reshape
from tinytorch.functions.reductions import norm, sum
from tinytorch.nn.functional.similarity import normalize
from tinytorch.random import randn
from tinytorch.tensor import Tensor


def length_except(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm of v over all dimensions but `dim`, which keep size 1; for None or -1 over all."""
    if dim is None or dim == -1:
        return norm(v)
    return norm(v, 2, tuple(i for i in range(v.ndim) if i != dim % v.ndim), keepdim=True)


def weight_of(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """g * v / |v|: a weight as a length and a direction.

    Source: T. Salimans, D. Kingma, "Weight normalization", 2016, equation 2.
    """
    return v * (g / length_except(v, dim))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Dimension `dim` as rows, all others as columns."""
    if dim:
        weight = permute(weight, dim, *(i for i in range(weight.ndim) if i != dim))
    return reshape(weight, (weight.shape[0], -1))


def start_vectors(weight: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor]:
    """Random unit vectors for the power iteration, as long as the rows and the columns."""
    rows, columns = as_matrix(weight.detach(), dim).shape
    u, v = (normalize(randn(n, dtype=weight.dtype), dim=0, eps=eps) for n in (rows, columns))
    return u, v


def power_iteration(
    matrix: Tensor, u: Tensor, v: Tensor, steps: int, eps: float, u_first: bool = False
) -> None:
    """Move u and v, in place, towards the singular vectors of the largest singular value.

    Args:
        u_first: a step begins with u; PyTorch's two forms differ in it.

    Source: T. Miyato et al., "Spectral normalization for generative adversarial networks", 2018,
    algorithm 1.
    """
    with no_grad():
        for _ in range(steps):
            for to_u in (u_first, not u_first):
                product = matmul(matrix, v) if to_u else matmul(matrix.mT, u)
                (u if to_u else v).copy_(normalize(product, dim=0, eps=eps))


def spectral_length(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u . matrix v: the largest singular value, where u and v are its vectors."""
    return sum(u.clone() * matmul(matrix, v.clone()))
