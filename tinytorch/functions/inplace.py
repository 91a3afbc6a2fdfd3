"""Writing into a tensor in place.

Every write goes through `dispatch.write`, so modes see it and `backward` notices when a value that
it needs is gone. On a tensor that is part of a recorded history the methods refuse; the operators
`+= -= *= /=` then make a new tensor, since history is not rewritten.

The methods return x. They raise AutogradError where that would falsify a recorded history or x is a
read-only view, and ShapeError if the result does not have x's shape; `add_`, `sub_`, `mul_` and
`masked_fill_` raise DTypeError if its dtype does not fit into x's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import SCALAR_TYPES, check_not_read_only, is_tensor, wrap, write
from tinytorch.dtypes import meta_of_array
from tinytorch.errors import AutogradError, DTypeError
from tinytorch.functions import elementwise, indexing
from tinytorch.history import write_clock
from tinytorch.state import is_grad_enabled

if TYPE_CHECKING:
    from tinytorch.random import Generator
    from tinytorch.tensor import Tensor

Operand = Any  # a tensor, a NumPy array or a number


def copy_(x: Tensor, source: Operand) -> Tensor:
    """Take over the values of `source`, which broadcasts, cast to x's dtype."""
    if type(source) in SCALAR_TYPES:
        return fill_(x, source)
    if isinstance(source, np.ndarray):
        source = wrap(source, meta_of_array(source))
    write(x, ops.expand, source, shape=x.shape)
    return x


def fill_(x: Tensor, value: float) -> Tensor:
    """Every element becomes `value`, cast to x's dtype."""
    write(x, ops.full, shape=x.shape, value=value, dtype=x.dtype)
    return x


def zero_(x: Tensor) -> Tensor:
    """Every element becomes 0."""
    return fill_(x, 0)


def add_(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """x += alpha * other

    >>> from tinytorch import no_grad, tensor
    >>> w = tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     w.add_(tensor([1.0, 1.0]), alpha=-0.5)
    tensor([0.5, 1.5], requires_grad=True)
    """
    write(x, ops.add, x, other if alpha == 1 else elementwise.mul(other, alpha))
    return x


def sub_(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """x -= alpha * other"""
    write(x, ops.sub, x, other if alpha == 1 else elementwise.mul(other, alpha))
    return x


def mul_(x: Tensor, other: Operand) -> Tensor:
    """x *= other"""
    write(x, ops.mul, x, other)
    return x


def div_(x: Tensor, other: Operand) -> Tensor:
    """x /= other

    Raises:
        DTypeError: x holds integers, and would have to round.
    """
    if not x.dtype.is_floating_point:
        raise DTypeError(f"in-place division would round {x.dtype.name}; use t = t / other")
    write(x, ops.div, x, other)
    return x


def clamp_(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Limited to [min, max], as by `clip`.

    Raises:
        ValueError: neither bound is given.
    """
    return copy_(x, elementwise.clip(x, min, max))


def masked_fill_(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """`value` where the mask, which broadcasts, is true."""
    write(x, ops.where, mask, value, x)
    return x


def uniform_(
    x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Random numbers evenly distributed over [low, high); see `tinytorch.rand`."""
    from tinytorch.random import rand_like

    return copy_(x, rand_like(x, generator=generator) * (high - low) + low)


def normal_(
    x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Random numbers of a normal distribution; see `tinytorch.randn`."""
    from tinytorch.random import randn_like

    return copy_(x, randn_like(x, generator=generator) * std + mean)


def setitem(x: Tensor, index: Any, value: Operand) -> None:
    """x[index] = value

    Raises:
        AutogradError: x or value is part of a recorded history, or x is a read-only view.
        IndexError, TypeError: as `x[index]`.
        ValueError: the value does not broadcast to `x[index]`.

    >>> from tinytorch import tensor
    >>> x = tensor([1, 2, 3])
    >>> x[x > 1] = 0
    >>> x
    tensor([1, 0, 0])
    """
    if is_grad_enabled() and (x.requires_grad or _requires_grad(value)):
        raise AutogradError(
            f"t[...] = value on a tensor of shape {x.shape} would falsify the recorded history; "
            f"use where(mask, value, t), or write under `with no_grad():`"
        )
    array = x._concrete("assignment to an index")
    check_not_read_only(array)
    first, second = indexing.in_two_steps(index)
    array[first][second] = value._concrete("assignment") if is_tensor(value) else value
    write_clock.write(array)


def _requires_grad(value: Operand) -> bool:
    return getattr(value, "requires_grad", False)


def _augmented(
    method: Callable[..., Tensor], operation: Callable[..., Tensor]
) -> Callable[[Tensor, Operand], Tensor]:
    """`t += x`: in place where nothing is recorded, otherwise the new tensor `t + x`."""

    def assign(x: Tensor, other: Operand) -> Tensor:
        if not is_grad_enabled() or not (x.requires_grad or _requires_grad(other)):
            return method(x, other)
        if x.requires_grad and x.history is None:
            raise AutogradError(
                f"in-place {operation.__name__} on a leaf that requires a gradient (shape "
                f"{x.shape}); update it under `with no_grad():`"
            )
        return operation(x, other)

    return assign


iadd = _augmented(add_, elementwise.add)
isub = _augmented(sub_, elementwise.sub)
imul = _augmented(mul_, elementwise.mul)
itruediv = _augmented(div_, elementwise.div)
