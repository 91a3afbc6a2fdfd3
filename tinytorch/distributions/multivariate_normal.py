"""The normal distribution of vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tinytorch.creation import eye
from tinytorch.distributions.distribution import Distribution, Values, positive
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import broadcast_to, stack
from tinytorch.random import randn
from tinytorch.tensor import Tensor


class MultivariateNormal(Distribution):
    """The density exp(-|L^-1 (x - loc)|^2 / 2) / ((2 pi)^(n / 2) |det L|), with covariance L L^T

    Args:
        loc: (..., n), the mean.
        covariance_matrix: (..., n, n), symmetric and positive definite; or
        precision_matrix: its inverse, likewise; or
        scale_tril: (..., n, n), its lower triangular factor L, with positive diagonal.

    Raises:
        ValueError: not one of the matrices is given, or the matrix is not such.
        ShapeError: the matrix does not fit loc.

    >>> import tinytorch
    >>> MultivariateNormal(tinytorch.zeros(2), tinytorch.eye(2)).log_prob(tinytorch.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True
    parameters = ("loc", "scale_tril")

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = covariance_matrix, precision_matrix, scale_tril
        if sum(matrix is not None for matrix in matrices) != 1:
            raise ValueError(
                "MultivariateNormal takes covariance_matrix, precision_matrix or scale_tril, one "
                "of them"
            )
        given = next(matrix for matrix in matrices if matrix is not None)
        if loc.ndim < 1 or given.ndim < 2 or given.shape[-2:] != (loc.shape[-1],) * 2:
            raise ShapeError(
                f"MultivariateNormal: loc (..., n) needs a matrix (..., n, n), got {loc.shape} and "
                f"{given.shape}"
            )
        batch = np.broadcast_shapes(tuple(loc.shape[:-1]), tuple(given.shape[:-2]))
        super().__init__(batch, loc.shape[-1:], validate_args)
        if scale_tril is None:
            name = "covariance_matrix" if precision_matrix is None else "precision_matrix"
            symmetric = (given - given.mT).abs() <= 1e-6 + 1e-5 * given.abs()
            self._check(name, symmetric, lambda a: a, "symmetric")
            given = (given + given.mT) / 2
            if precision_matrix is not None:  # L^-T L^-1: with both orders turned round, L L^T
                given = given.flip(-2, -1)
            pivots, given = cholesky(given)
            self._check(f"{name} (its pivots)", pivots, positive, "positive definite")
            if precision_matrix is not None:
                given = inverse_lower(given.flip(-2, -1).mT)
        else:
            self._check("scale_tril", given.tril() == given, lambda a: a, "lower triangular")
        self.loc = broadcast_to(loc, (*batch, *self.event_shape))
        self.scale_tril = broadcast_to(given, (*batch, *self.event_shape, *self.event_shape))
        self._diagonal = self.scale_tril.diagonal(dim1=-2, dim2=-1)
        self._check("scale_tril (its diagonal)", self._diagonal, positive, "above 0")

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T"""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """(L L^T)^-1"""
        inverse = inverse_lower(self.scale_tril)
        return inverse.mT @ inverse

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = randn(self._shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Values) -> Tensor:
        self._check_value(value, lambda a: a == a, "a number, not NaN")
        if np.shape(value)[-1:] != self.event_shape:
            raise ShapeError(
                f"MultivariateNormal: a value is (..., {self.event_shape[0]}), got "
                f"{np.shape(value)}"
            )
        distance = (solve_lower(self.scale_tril, value - self.loc) ** 2).sum(-1)
        return -0.5 * (distance + self._constant()) - self._diagonal.log().sum(-1)

    def entropy(self) -> Tensor:
        return 0.5 * (self._constant() + self.event_shape[0]) + self._diagonal.log().sum(-1)

    def _constant(self) -> float:
        return self.event_shape[0] * math.log(2 * math.pi)


def cholesky(a: Tensor) -> tuple[Tensor, Tensor]:
    """The pivots (..., n), and the lower triangular L with L L^T = a, row by row.

    Where a pivot is not above 0, `a` is not positive definite, and L is NaN.

    Source: G. Golub, C. Van Loan, "Matrix computations", 2013, section 4.2.
    """
    n = a.shape[-1]
    rows: list[list[Tensor]] = []
    pivots = []
    for i in range(n):
        row: list[Tensor] = []
        for j in range(i + 1):
            rest = a[..., i, j]
            for k in range(j):
                rest = rest - row[k] * (row[k] if j == i else rows[j][k])
            if j == i:
                pivots.append(rest)
            row.append(rest.sqrt() if j == i else rest / rows[j][j])
        rows.append(row)
    zero = a[..., 0, 0] * 0
    full = [stack([*row, *[zero] * (n - len(row))], -1) for row in rows]
    return stack(pivots, -1), stack(full, -2)


def solve_lower(lower: Tensor, b: Tensor) -> Tensor:
    """x (..., n) with lower x = b, by forward substitution."""
    x: list[Tensor] = []
    for i in range(b.shape[-1]):
        rest = b[..., i]
        for k, known in enumerate(x):
            rest = rest - lower[..., i, k] * known
        x.append(rest / lower[..., i, i])
    return stack(x, -1)


def inverse_lower(lower: Tensor) -> Tensor:
    """The inverse of lower triangular matrices (..., n, n), column by column."""
    n = lower.shape[-1]
    units = eye(n, dtype=lower.dtype)
    columns = [solve_lower(lower, broadcast_to(units[i], lower.shape[:-1])) for i in range(n)]
    return stack(columns, -1)
