"""What a tensor remembers of where it came from, and how overwritten values are noticed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from tinytorch.dtypes import Array, TensorMeta
from tinytorch.op import Op, Params

grad: Callable[..., Any]
"""`autograd.grad`, for what is below autograd and cannot import it."""


def set_grad(function: Callable[..., Any]) -> None:
    """Set the function that computes gradients. `autograd.engine` calls it once."""
    global grad
    grad = function


class Record:
    """The op and inputs that a tensor came from. Points only at inputs, so reference counting alone
    frees it.

    Attributes:
        op: the op that made the tensor.
        params: its parameters.
        edges: for each input its Record, or the tensor itself if it is a leaf that needs a
            gradient, or None.
        inputs: for each input the tensor or scalar if the gradient reads its value, else None. The
            whole is None after `backward` has freed it.
        metas: for each input its `TensorMeta`, or the scalar's type.
        meta: that of the result.
        output: the result's array, if the gradient reads it.
        clock: the write clock when the op ran; in-place writes after it are found by `last_write`.
        hooks: functions to call with the gradient.
    """

    __slots__ = ("clock", "edges", "hooks", "inputs", "meta", "metas", "op", "output", "params")

    def __init__(
        self,
        op: Op,
        params: Params,
        edges: tuple[Any, ...],
        inputs: tuple[Any, ...],
        metas: tuple[Any, ...],
        meta: TensorMeta,
        output: Any = None,
    ) -> None:
        self.op = op
        self.params = params
        self.edges = edges
        self.inputs: tuple[Any, ...] | None = inputs
        self.metas = metas
        self.meta = meta
        self.output = output
        self.clock = write_clock.now
        self.hooks: list[Any] | None = None


class KeepGradient:
    """The hook of `retain_grad`: it adds the gradient to the tensor's `.grad`.

    An in-place operation moves it to the tensor's new history.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)  # the history must not hold its own result

    def __call__(self, g: Any) -> None:
        tensor = self._tensor()
        if tensor is not None:
            tensor.grad = g.clone() if tensor.grad is None else tensor.grad + g


def keeps_gradient(hooks: list[Any] | None) -> bool:
    """Whether the last of these hooks, behind all others, is that of `retain_grad`."""
    return bool(hooks and type(hooks[-1]) is KeepGradient)


class WriteClock:
    """Counts in-place writes, and knows for each array the last one.

    An op's record keeps the time; `backward` compares. So a value that was overwritten after the op
    ran is noticed without a version number on every tensor.
    """

    def __init__(self) -> None:
        self.now = 0
        self._ticks = count(1)
        self._last: dict[int, list[Any]] = {}  # by id of an owner: a weak reference to it, the time

    def write(self, *arrays: Array) -> None:
        """Note a write into arrays, and so into every view of the same memory."""
        self.now = now = next(self._ticks)
        last = self._last
        for array in arrays:
            owner = array if array.base is None else owner_of(array)
            key = id(owner)
            entry = last.get(key)
            if entry is not None and entry[0]() is owner:
                entry[1] = now
            else:
                last[key] = [weakref.ref(owner, partial(self._discard, key)), now]

    def _discard(self, key: int, _: object) -> None:
        self._last.pop(key, None)

    def marker(self, arrays: Sequence[Array]) -> Callable[[], None]:
        """A function that notes a write into each of these, and keeps them alive.

        For arrays that are written together again and again; it costs less than `write` for each.
        """
        self.write(*arrays)
        owners = [owner_of(array) for array in arrays]
        # with the owner itself, so that its entry stays its own
        entries = [(owner, self._last[id(owner)]) for owner in owners]

        def mark() -> None:
            self.now = now = next(self._ticks)
            for _, entry in entries:
                entry[1] = now

        return mark

    def last_write(self, array: Array) -> int:
        """When the memory of `array` was last written in place; 0 for never."""
        entry = self._last.get(id(owner_of(array)))
        return entry[1] if entry is not None else 0


class ChangeCounter:
    """Counts changes of what models are made of: attributes of modules, layers, hooks.

    Compiled code compares one number at each call, and looks closer only if it is another.
    """

    def __init__(self) -> None:
        self.now = 0
        self._ticks = count(1)

    def count(self) -> None:
        """Note a change, after it was made."""
        self.now = next(self._ticks)


def owner_of(array: Array) -> Array:
    """The array that owns the memory which `array` views."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


write_clock = WriteClock()
structure = ChangeCounter()
