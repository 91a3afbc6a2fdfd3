"""Where the inputs of a trace come from, and where what it changes is put.

Tensors that a function reaches through its closure, its globals, its object or an optimizer become
named inputs of its trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.dispatch import live_scalar, live_seed, wrap
from tinytorch.dtypes import DType, tensor_meta
from tinytorch.random import Generator
from tinytorch.tensor import Tensor


class Binding:
    """The source of a graph's input, or the target of its result."""

    #: A write changes the memory of the tensor that `read` gives.
    writes_in_place = True

    def read(self, leaves: list[Any]) -> Tensor:
        """The value now; `leaves` are those of the arguments."""
        raise NotImplementedError(f"{type(self).__name__} cannot be read")

    def write(self, leaves: list[Any], value: Any) -> None:
        """Write a new value to the target."""
        with no_grad():
            self.read(leaves).copy_(value)

    def same(self, other: Binding) -> bool:
        """Whether it is bound to the same tensor."""
        return self is other


class ArgumentBinding(Binding):
    """A tensor among the arguments, by its position among the leaves."""

    def __init__(self, position: int) -> None:
        self.position = position

    def same(self, other: Binding) -> bool:
        return isinstance(other, ArgumentBinding) and self.position == other.position

    def read(self, leaves: list[Any]) -> Tensor:
        return leaves[self.position]  # type: ignore[no-any-return]


class StateBinding(Binding):
    """A tensor that exists apart from the call: a parameter, a buffer, a moment."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def same(self, other: Binding) -> bool:
        return isinstance(other, StateBinding) and self.tensor is other.tensor

    def read(self, leaves: list[Any]) -> Tensor:
        return self.tensor


class GradBinding(Binding):
    """The `.grad` of a tensor.

    Attributes:
        owner: the tensor.
        replaces: a write sets another tensor; if not, it is into the one that there is, which
            others may hold. Code gives new values in either case, and never writes into it itself.
    """

    writes_in_place = False

    def __init__(self, owner: Binding, replaces: bool = False) -> None:
        self.owner, self.replaces = owner, replaces

    def read(self, leaves: list[Any]) -> Tensor:
        return self.owner.read(leaves).grad  # type: ignore[return-value]

    def write(self, leaves: list[Any], value: Any) -> None:
        if self.replaces:
            self.owner.read(leaves).grad = value
        else:
            super().write(leaves, value)

    def same(self, other: Binding) -> bool:
        return isinstance(other, GradBinding) and self.owner.same(other.owner)


class SeedBinding(Binding):
    """The next seed of a generator."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def read(self, leaves: list[Any]) -> Tensor:
        return live_seed(self.generator)


class ScalarBinding(Binding):
    """A Python number that is read anew."""

    def __init__(self, source: Callable[[], float], dtype: DType) -> None:
        self.source, self.dtype = source, dtype

    def read(self, leaves: list[Any]) -> Tensor:
        number = live_scalar(self.source, self.dtype)
        if isinstance(number, Tensor):  # this call is being traced itself
            return number
        return wrap(np.array(number, self.dtype.dtype), tensor_meta((), self.dtype))
