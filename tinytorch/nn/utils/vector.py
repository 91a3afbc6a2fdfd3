"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tinytorch.autograd import no_grad
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import cat, reshape
from tinytorch.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters as one vector.

    >>> from tinytorch import nn
    >>> parameters_to_vector(nn.Linear(3, 2).parameters()).shape
    (8,)
    """
    return cat([reshape(p, (p.numel(),)) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a row into the parameters: the inverse of `parameters_to_vector`.

    Raises:
        ShapeError: the row is not as long as all parameters together; then nothing is written.
    """
    targets = list(parameters)
    total = sum(p.numel() for p in targets)
    if vec.shape != (total,):
        raise ShapeError(f"vector_to_parameters: the vector {vec.shape} must be ({total},)")
    start = 0
    with no_grad():
        for p in targets:
            p.copy_(reshape(vec[start : start + p.numel()], p.shape))
            start += p.numel()
