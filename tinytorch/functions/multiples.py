"""Sums with a multiple: a + alpha b and a - alpha b, as one kernel where they are frequent."""

from __future__ import annotations

from typing import Any

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import bool_, number_of, promote
from tinytorch.errors import DTypeError
from tinytorch.replay import replayed

Tensor = Any


@replayed
def plus_multiple(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """a + alpha * b"""
    return apply(ops.add, a, scaled(a, b, alpha))


@replayed
def minus_multiple(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """a - alpha * b"""
    return apply(ops.sub, a, scaled(a, b, alpha))


def scaled(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """alpha * b in the dtype of a + b: 2 * int8 would overflow beside a tensor of floats.

    Raises:
        DTypeError: alpha is a float and a + b is not, or a bool and a + b is none.
    """
    if type(alpha) is int and alpha == 1:
        return b
    dtype = promote(*(getattr(t, "meta", type(t)) for t in (a, b)))
    is_refused = dtype is not bool_ if isinstance(alpha, bool) else (
        isinstance(alpha, float) and not dtype.is_floating_point
    )  # fmt: skip
    if is_refused:
        raise DTypeError(
            f"alpha={alpha!r} beside operands whose sum is {dtype.name}: a float scales floats "
            f"only, a bool only bool; convert a tensor, x.float(), or alpha"
        )
    if dtype is bool_:  # True + True is True
        alpha = bool(alpha)
    alpha = number_of("alpha", alpha, dtype)
    if not hasattr(b, "meta"):
        return b * alpha if dtype is not bool_ else b and alpha
    return apply(ops.mul, b.to(dtype), alpha)
