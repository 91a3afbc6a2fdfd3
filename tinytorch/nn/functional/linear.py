"""The linear map."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.linalg import einsum
from tinytorch.tensor import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias

    Args:
        x: (..., in)
        weight: (out, in), or (in,) without a bias
        bias: (out,)

    Returns:
        (..., out); (...) for a weight (in,).

    Raises:
        ShapeError: the shapes do not fit; the message gives them.
    """
    if bias is None:
        if weight.ndim == 1:
            return x @ weight
        return apply(ops.linear, x, weight)
    return apply(ops.linear, x, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 @ weight[o] @ x2 + bias[o], for each output o.

    Args:
        input1: (..., in1)
        input2: (..., in2)
        weight: (out, in1, in2)
        bias: (out,)

    Returns:
        (..., out)

    Raises:
        ShapeError: the shapes do not fit; the message gives them.
    """
    sizes = (input1.shape[-1:], input2.shape[-1:])
    if weight.ndim != 3 or sizes != (weight.shape[1:2], weight.shape[2:]):
        raise ShapeError(
            f"bilinear: inputs {input1.shape} and {input2.shape} do not fit weight {weight.shape}, "
            f"which must be (out, in1, in2)"
        )
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(f"bilinear: inputs {input1.shape} and {input2.shape} are not as many")
    out = einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias
