"""The linear map."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.tensor import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias

    Args:
        x: (..., in)
        weight: (out, in)
        bias: (out,)

    Returns:
        (..., out)

    Raises:
        ShapeError: the shapes do not fit; the message gives them.
    """
    if bias is None:
        return apply(ops.linear, x, weight)
    return apply(ops.linear, x, weight, bias)
