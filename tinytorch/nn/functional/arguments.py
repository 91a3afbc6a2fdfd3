"""Reading of arguments that may be one number or one for each spatial dimension."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.functions.inplace import in_place
from tinytorch.tensor import Tensor

Pair = tuple[int, int]
Size = int | Sequence[int]


def pair(value: Size, what: str) -> Pair:
    """(height, width) from a pair, or from one number for both.

    Raises:
        ValueError: it has another length.
        TypeError: it is not made of whole numbers.

    >>> pair(3, "kernel_size")
    (3, 3)
    """
    if not isinstance(value, Sequence):
        return (operator.index(value),) * 2
    if len(value) == 1:
        value = (value[0], value[0])
    if len(value) != 2:
        raise ValueError(f"{what} must be one number or two, not {value}")
    return operator.index(value[0]), operator.index(value[1])


def single(value: Size, what: str) -> int:
    """The number itself, or the only one of a sequence; raises as `pair`."""
    if not isinstance(value, Sequence):
        return operator.index(value)
    if len(value) != 1:
        raise ValueError(f"{what} must be one number, not {value}")
    return operator.index(value[0])


def inplaceable(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Give a function of a tensor PyTorch's last positional argument, `inplace=False`.

    With True the result becomes the value of the tensor itself, as by an in-place method.

    >>> from tinytorch import tensor
    >>> x = tensor([-1.0, 2.0])
    >>> inplaceable(lambda x: x * 2)(x, True) is x, x
    (True, tensor([-2.,  4.]))
    """
    whole = inspect.signature(function)
    before = [p for p in whole.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    after = [p for p in whole.parameters.values() if p.kind is not p.POSITIONAL_OR_KEYWORD]
    replace = in_place(function)
    own = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
    signature = whole.replace(parameters=[*before, own, *after])

    @functools.wraps(function)
    def call_one(x: Tensor, inplace: bool = False) -> Tensor:
        return (replace if inplace else function)(x)

    if len(whole.parameters) == 1:
        call_one.__signature__ = signature  # type: ignore[attr-defined]
        return call_one

    @functools.wraps(function)
    def call(x: Tensor, *args: Any, inplace: bool = False, **options: Any) -> Tensor:
        if len(args) == len(before):
            *rest, inplace = args
            args = tuple(rest)
        return (replace if inplace else function)(x, *args, **options)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
