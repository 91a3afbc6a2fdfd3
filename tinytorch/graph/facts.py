"""Facts: Python values that a trace took for constants, and whether they still are what they were.

A value is *frozen* when the trace is made: a number or a text is kept, a container is kept with
its entries, of anything else the identity. `mismatch` compares a value with what was frozen.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CellType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tinytorch.dtypes import TensorMeta
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor

SIMPLE = (
    bool, int, float, complex, str, bytes, type(None), range, slice, np.generic, np.dtype,
)  # fmt: skip
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
LARGEST = 2_000  # entries; of a larger container only the length is a fact
LARGEST_ARRAY = 64  # elements; those of a larger NumPy array are not compared
DEEPEST = 8


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Same(NamedTuple):
    """It must be this very object."""

    value: Any


class Contents(NamedTuple):
    """A container of this type with these entries; the object may be another.

    Attributes:
        holder: the container that was met.
        keys: of a dict or of an object's attributes.
        entries: frozen, in order.
    """

    holder: Any
    kind: type
    keys: tuple[Any, ...]
    entries: tuple[Any, ...]


def freeze(value: Any, depth: int = DEEPEST, attributes: bool = False) -> Any:
    """The form of a value with which `mismatch` compares a later one.

    Args:
        depth: how many levels of containers to open.
        attributes: open objects too, and keep what their attributes are.
    """
    if isinstance(value, SIMPLE):
        return value
    if depth and (inside := _inside(value, attributes)) is not None:
        keys, entries = inside
        frozen = tuple([freeze(entry, depth - 1, attributes) for entry in entries])
        return Contents(value, type(value), keys, frozen)
    return Same(value)


def _inside(value: Any, attributes: bool) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Keys and entries of a container; None for what is compared by identity."""
    if isinstance(value, CONTAINERS):
        if len(value) > LARGEST:
            return (len(value),), []
        if isinstance(value, dict):
            return tuple(value), list(value.values())
        return (), sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
    if isinstance(value, np.ndarray) and value.size <= LARGEST_ARRAY and value.dtype != object:
        return (value.shape, value.dtype), [value.tobytes()]
    if attributes and is_plain(value):
        named = attributes_of(value)
        return tuple(named), list(named.values())
    return None


def is_ours(value: Any) -> bool:
    """An object of TinyTorch's that has a state which people see, such as a schedule."""
    rooms = (type(value).__module__ or "").split(".")[:2]
    return rooms[0] == "tinytorch" and rooms[-1] in _ROOMS and hasattr(value, "__dict__")


_ROOMS = frozenset({"nn", "optim", "data", "training", "text", "compression"})


def is_plain(value: Any) -> bool:
    """An object of a class of the user's that is not a Module or the like."""
    cls = type(value)
    if isinstance(value, type) or any(
        (c.__module__ or "").startswith("tinytorch.") for c in cls.__mro__
    ):
        return False
    return not is_library(cls.__module__) or isinstance(value, NAMESPACES)


def is_library(module: str | None) -> bool:
    """A module of Python, TinyTorch or an installed package: it holds no state of the user's."""
    return _is_installed((module or "").partition(".")[0])


@cache
def _is_installed(package: str) -> bool:
    path = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in _LIBRARIES or not _SITES.isdisjoint(Path(path).parts)


_SITES = frozenset({"site-packages", "dist-packages"})
_LIBRARIES = frozenset((*sys.stdlib_module_names, "numpy", "tinytorch")) - {"__main__"}
NAMESPACES = (SimpleNamespace, argparse.Namespace)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, in its `__dict__` and in slots."""
    own = getattr(value, "__dict__", None)
    named = dict(own) if isinstance(own, Mapping) else {}
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                found = getattr(value, slot, MISSING)
                if found is not MISSING:
                    named[slot] = found
    return named


def mismatch(value: Any, frozen: Any, label: str) -> str | None:
    """The difference, as a sentence; None if nothing does."""
    if type(frozen) is Same:
        return None if value is frozen.value else _differ(label, value, frozen.value)
    if type(frozen) is not Contents:
        return _differ(label, value, frozen) if differs(value, frozen) else None
    if type(value) is not frozen.kind:
        return _differ(label, value, frozen.holder)
    is_object = not isinstance(value, (*CONTAINERS, np.ndarray))
    inside = _inside(value, is_object)
    assert inside is not None
    keys, entries = inside
    if len(keys) != len(frozen.keys) or any(map(differs, keys, frozen.keys)):
        return f"{label} has {_listed(keys)}, and had {_listed(frozen.keys)}"
    if len(entries) != len(frozen.entries):
        return f"{label} has {len(entries)} entries, and had {len(frozen.entries)}"
    for i, (entry, was) in enumerate(zip(entries, frozen.entries, strict=True)):
        if isinstance(value, np.ndarray):
            name = f"what {label} holds"
        else:
            name = f"{label}.{keys[i]}" if is_object else f"{label}[{keys[i] if keys else i!r}]"
        found = mismatch(entry, was, name)
        if found is not None:
            return found
    return None


def _listed(keys: tuple[Any, ...]) -> str:
    return f"{', '.join(map(str, keys)) or 'nothing':.80}"


def _differ(label: str, value: Any, was: Any) -> str:
    return f"{label} is {text_of(value)}, and was {text_of(was)}"


def differs(a: Any, b: Any) -> bool:
    """They are not the same Python value: 1 is not 1.0, 0.0 is not -0.0, and NaN is NaN."""
    if a is b:
        return False
    if type(a) is not type(b) or isinstance(a, Tensor):
        return True
    if isinstance(a, float):
        same = a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
        return not same and not (a != a and b != b)
    if isinstance(a, (tuple, list)):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, complex):
        return differs(a.real, b.real) or differs(a.imag, b.imag)
    return not isinstance(a, SIMPLE) or bool(a != b)


def text_of(given: Any) -> str:
    """A value in an error text."""
    if isinstance(given, Tensor):
        return f"the {given.meta} tensor at {id(given):#x}"
    if isinstance(given, tuple) and given and isinstance(given[0], TensorMeta):
        return f"{given[0]}{' with gradient' if given[1] else ''}"
    if isinstance(given, (Same, Contents)):
        return text_of(given[0])
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."


# -- where values are read -------------------------------------------------------------------------


class Fact:
    """A value that was read at some place, and must be there still.

    Args:
        label: what the user calls it.
        holder, key: where it is read.
        counted: a change of it is counted by `structure`, so it need be looked at only then.
        whole: so is a change of what a container there holds.
    """

    def __init__(
        self, label: str, holder: Any, key: Any, counted: bool = False, whole: bool = False
    ) -> None:
        self.label, self.holder, self.key = label, holder, key
        self.counted, self.whole = counted, whole
        self.frozen: Any = None

    def freeze(self) -> Fact:
        """Take the value now for the one that must stay."""
        self.frozen = freeze(self.read())
        return self

    @property
    def _is_missing(self) -> bool:
        return type(self.frozen) is Same and self.frozen.value is MISSING

    def read(self) -> Any:
        """The value now; MISSING if there is none."""
        raise NotImplementedError

    def expression(self, bind: Callable[[Any], str]) -> str:
        """Python that reads it, or raises one of AttributeError, KeyError, ValueError.

        Args:
            bind: gives an object a name.
        """
        raise NotImplementedError

    def why_not(self) -> str | None:
        """The difference from the value at the trace."""
        return mismatch(self.read(), self.frozen, self.label)


class AttributeFact(Fact):
    """An attribute of an object or of its class."""

    def read(self) -> Any:
        return getattr(self.holder, self.key, MISSING)

    def expression(self, bind: Callable[[Any], str]) -> str:
        if self._is_missing or not self.key.isidentifier():
            return f"getattr({bind(self.holder)}, {self.key!r}, {bind(MISSING)})"
        return f"{bind(self.holder)}.{self.key}"


class EntryFact(Fact):
    """An entry of a dict or a mapping: globals, options, the `__dict__` of a class."""

    def read(self) -> Any:
        return self.holder.get(self.key, MISSING)

    def expression(self, bind: Callable[[Any], str]) -> str:
        if self._is_missing:
            return f"{bind(self.holder)}.get({self.key!r}, {bind(MISSING)})"
        return f"{bind(self.holder)}[{self.key!r}]"


class VariableFact(Fact):
    """A variable of an enclosing function; the holder is its cell."""

    holder: CellType

    def read(self) -> Any:
        try:
            return self.holder.cell_contents
        except ValueError:  # a variable that is assigned later
            return MISSING

    def expression(self, bind: Callable[[Any], str]) -> str:
        if self._is_missing:
            return f"{bind(self.read)}()"
        return f"{bind(self.holder)}.cell_contents"


class HooksFact(Fact):
    """The gradient hooks of a tensor."""

    def __init__(self, label: str, tensor: Tensor) -> None:
        super().__init__(label, tensor, "hooks", counted=True, whole=True)

    def read(self) -> Any:
        return tuple(self.holder.hooks or ())

    def expression(self, bind: Callable[[Any], str]) -> str:
        return f"{bind(self.read)}()"


class PartsFact(Fact):
    """The names of a module's own modules, parameters and other tensors, in their order."""

    def __init__(self, label: str, module: Any) -> None:
        super().__init__(label, module, "parts", counted=True, whole=True)

    def read(self) -> Any:
        return tuple([k for k, v in vars(self.holder).items() if isinstance(v, _PARTS)])

    def expression(self, bind: Callable[[Any], str]) -> str:
        return f"{bind(self.read)}()"


_PARTS = (Module, Tensor)
