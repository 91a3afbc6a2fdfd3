"""The operators with which transformers computes mixtures of experts."""

from __future__ import annotations

from tinytorch import creation
from tinytorch.functions import elementwise as e, linalg, movement as m, reductions as r
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor


def _is_of(rows: int, ends: Tensor) -> Tensor:
    """(experts, rows, 1): whether a row belongs to an expert. Theirs end at `ends`, in order."""
    row = creation.arange(rows)
    before = e.lt(row, m.unsqueeze(ends, 1))
    later = e.ge(row, m.unsqueeze(m.pad(ends[:-1], [1, 0]), 1))
    return m.unsqueeze(e.logical_and(before, later), -1)


@aten("transformers::grouped_mm_fallback")
def grouped_mm(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """(rows, k), (experts, k, n), (experts,): each row times the matrix of its expert.

    How many rows an expert has is a value, and shapes are not: so every expert sees every row.
    """
    found = linalg.matmul(x, weight)
    return r.sum(e.where(_is_of(x.shape[0], offs), found, 0.0), 0)


@aten("transformers::grouped_mm_fallback_backward")
def grouped_mm_backward(
    x: Tensor, weight: Tensor, offs: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    own = e.where(_is_of(x.shape[0], offs), grad, 0.0)
    to_x = r.sum(linalg.matmul(own, m.transpose(weight, 1, 2)), 0)
    return to_x, linalg.matmul(m.transpose(x, 0, 1), own)
