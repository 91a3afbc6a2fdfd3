"""What a function reads and writes besides its arguments, and by which names.

Tensors that a function reaches through its closure, its globals, its object or an optimizer become
named inputs of its trace. Python values that it may read there are remembered, since the trace is
only right as long as they stay.
"""

from __future__ import annotations

import dis
import inspect
from collections import deque
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.dispatch import live_scalar, live_seed, wrap
from tinytorch.dtypes import DType, tensor_meta
from tinytorch.nn.module import Module
from tinytorch.optim.optimizer import Optimizer
from tinytorch.random import Generator
from tinytorch.tensor import Tensor

SIMPLE = (bool, int, float, str, type(None))
OBJECTS_LIMIT = 20_000


class Binding:
    """Where an input of a graph comes from, and where a result of it goes."""

    #: A write changes the memory of the tensor that `read` gives.
    writes_in_place = True

    def read(self, leaves: list[Any]) -> Tensor:
        """The value now; `leaves` are those of the arguments."""
        raise NotImplementedError(f"{type(self).__name__} cannot be read")

    def write(self, leaves: list[Any], value: Any) -> None:
        """Put a new value there."""
        with no_grad():
            self.read(leaves).copy_(value)

    def same(self, other: Binding) -> bool:
        """It stands for the same tensor."""
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
    """The `.grad` of a tensor, which is replaced and not written into."""

    writes_in_place = False

    def __init__(self, owner: Binding) -> None:
        self.owner = owner

    def read(self, leaves: list[Any]) -> Tensor:
        return self.owner.read(leaves).grad  # type: ignore[return-value]

    def write(self, leaves: list[Any], value: Any) -> None:
        self.owner.read(leaves).grad = value

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


class Environment:
    """Everything that a function can reach: tensors by name, and the Python values to watch.

    Watched are numbers, strings, flags and (which they are) tensors that the function finds by a
    name of its own or as attributes of modules, and options of optimizers; those of other objects
    are not.

    Attributes:
        signature: of the function.
        names: of tensors, by id.
        tensors: those, in the order in which they were found.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.signature = inspect.signature(
            function.forward if isinstance(function, Module) else function
        )
        self.names: dict[int, str] = {}
        self.tensors: list[Tensor] = []
        self._watched: dict[str, Callable[[], Any]] = {}
        self._optimizers: list[tuple[str, Optimizer]] = []
        self._walk(function)

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of a tensor, also of one that an optimizer has made since."""
        if id(tensor) not in self.names:
            for name, optimizer in self._optimizers:
                self._visit_state(name, optimizer)
        return self.names.get(id(tensor))

    def watched_values(self) -> dict[str, Any]:
        """The Python values that a trace takes for constants, as they are now."""
        return {name: read() for name, read in self._watched.items()}

    def watched(self) -> dict[str, Callable[[], Any]]:
        """How those values are read."""
        return self._watched

    def optimizers(self) -> list[Optimizer]:
        """The optimizers that the function can reach."""
        return [optimizer for _, optimizer in self._optimizers]

    def optimizer_state(self) -> list[tuple[int, str, int]]:
        """Which tensors there are in optimizers' states: parameter, name and identity of each."""
        return [
            (i, key, id(value))
            for _, optimizer in self._optimizers
            for i, p in enumerate(optimizer._params())
            for key, value in optimizer.state.get(p, {}).items()
            if isinstance(value, Tensor)
        ]

    def counted_state(self) -> dict[str, Any]:
        """The Python numbers in optimizers' states: a trace must not change them."""
        return {
            f"{name}.state[{i}][{key!r}]": value
            for name, optimizer in self._optimizers
            for i, p in enumerate(optimizer._params())
            for key, value in optimizer.state.get(p, {}).items()
            if isinstance(value, SIMPLE)
        }

    # -- the walk ----------------------------------------------------------------------------------

    def _walk(self, function: Callable[..., Any]) -> None:
        seen: set[int] = set()
        queue: deque[tuple[str, Any]] = deque([("", function)])
        while queue and len(seen) < OBJECTS_LIMIT:
            name, value = queue.popleft()
            if id(value) in seen:
                continue
            seen.add(id(value))
            queue.extend(self._inside(name, value))
        for name, optimizer in self._optimizers:  # last, so that a model names its parameters
            self._visit_optimizer(name, optimizer)

    def _inside(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """What an object holds, with names; tensors are noted on the way."""
        if isinstance(value, Tensor):
            self._note(name, value)
            return []
        dot = f"{name}." if name else ""
        if isinstance(value, (FunctionType, MethodType)):
            return self._captured(value)
        if "__wrapped__" in getattr(value, "__dict__", ()):  # what calls it keeps is not its state
            return [(name, value.__wrapped__)]
        if isinstance(value, (list, tuple)):
            return [(f"{dot}{i}", inside) for i, inside in enumerate(value)]
        if isinstance(value, dict):
            return [(f"{dot}{key}", inside) for key, inside in value.items()]
        if isinstance(value, Optimizer):
            self._optimizers.append((name or "optimizer", value))
            return []
        if isinstance(value, type) or not hasattr(value, "__dict__"):
            return []
        if type(value).__module__.split(".")[0] in ("builtins", "numpy", "types"):
            return []
        if isinstance(value, Module):
            found = [k for k, v in vars(value).items() if isinstance(v, (*SIMPLE, Tensor))]
            for key in ("training", *found):
                self._watch(dot + key, partial(getattr, value, key, None))
            for key, tensor in (*value.named_parameters(), *value.named_buffers()):
                self._note(dot + key, tensor)
            # Sequential and its like keep their children under other names than they show
            inside = {**vars(value), **dict(value.named_children())}
            return [(dot + key, child) for key, child in inside.items()]
        return [(dot + key, inside) for key, inside in vars(value).items()]

    def _captured(self, function: Any) -> list[tuple[str, Any]]:
        """Nonlocals and globals that a function uses, its defaults, and the object it is bound to.

        TinyTorch's own functions hold no state of the user's.
        """
        found: list[tuple[str, Any]] = []
        if isinstance(function, MethodType):
            found.append(("", function.__self__))
            function = function.__func__
        if not isinstance(function, FunctionType) or function.__module__.startswith("tinytorch."):
            return found
        for name in sorted({*_global_names(function.__code__), *function.__code__.co_freevars}):
            value = captured_value(function, name)
            if isinstance(value, (*SIMPLE, Tensor)):
                self._watch(name, partial(captured_value, function, name))
            found.append((name, value))
        return found + [("default", d) for d in function.__defaults__ or ()]

    def _watch(self, name: str, read: Callable[[], Any]) -> None:
        """Watch a value; two functions may have one of the same name."""
        label, number = name, 1
        while label in self._watched:
            number += 1
            label = f"{name} ({number})"
        self._watched[label] = read

    def _note(self, name: str, tensor: Tensor) -> None:
        if id(tensor) not in self.names:
            self.names[id(tensor)] = name
            self.tensors.append(tensor)

    def _visit_optimizer(self, name: str, optimizer: Optimizer) -> None:
        """Note its tensors, and watch all options but the learning rate, a live scalar."""
        for i, p in enumerate(optimizer._params()):
            self._note(f"{name}.params.{i}", p)
        self._visit_state(name, optimizer)
        for i, group in enumerate(optimizer.param_groups):
            for key in group.keys() - {"params", "lr", "initial_lr"}:
                label = f"{name}.param_groups[{i}][{key!r}]"
                self._watch(label, partial(group.__getitem__, key))

    def _visit_state(self, name: str, optimizer: Optimizer) -> None:
        for i, p in enumerate(optimizer._params()):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, Tensor):
                    self._note(f"{name}.{key}.{self.names.get(id(p), i)}", value)


def captured_value(function: FunctionType, name: str) -> Any:
    """The value that a name has inside a function now; None if it has none."""
    free = function.__code__.co_freevars
    if name not in free:
        return function.__globals__.get(name)
    cell = (function.__closure__ or ())[free.index(name)]
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is assigned later
        return None


def _global_names(code: CodeType) -> set[str]:
    """The globals that a function reads, those of functions inside it too.

    Attributes are not among them, though `co_names` has both: `optimizer.step` is no `step`.
    """
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return names.union(*(_global_names(c) for c in code.co_consts if isinstance(c, CodeType)))
