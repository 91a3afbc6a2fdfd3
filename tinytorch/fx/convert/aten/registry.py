"""`@aten`: what an ATen operator means, written as Tensor code.

    @aten("mm", "bmm")
    def mm(a, b): ...

Names are those of ATen, "name" for the overload `default` and "name.overload" otherwise. A function
takes the arguments of the operator's schema, with the schema's defaults; tensors are TinyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ATEN: dict[str, Callable[..., Any]] = {}


def aten(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the implementation of ATen operators.

    Raises:
        ValueError: a name is taken.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in ATEN:
                raise ValueError(f"there is a function for aten::{name} already")
            ATEN[name] = function
        return function

    return enter
