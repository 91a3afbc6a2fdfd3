"""What a function changes besides tensors while it is traced, which a call of the trace would not.

Everything that holds Python values is copied before the function runs, one level deep, and compared
afterwards. Where something differs the trace is refused, and all is put back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tinytorch.graph.environment import Environment
from tinytorch.graph.facts import (
    CONTAINERS,
    MISSING,
    EntryFact,
    Fact,
    VariableFact,
    attributes_of,
    differs,
    is_ours,
    is_plain,
)
from tinytorch.history import structure
from tinytorch.nn.hooks import Hooks
from tinytorch.nn.module import Module
from tinytorch.optim.optimizer import Optimizer
from tinytorch.random import Generator
from tinytorch.tensor import Tensor

SKIPPED = frozenset({"state", "param_groups"})  # of an optimizer; these are looked at one by one


class Effects:
    """The state before a function ran, to be compared and restored."""

    def __init__(self, environment: Environment) -> None:
        self._states = [
            (each, {p: (own, dict(own)) for p, own in each.state.items()})
            for each in environment.optimizers()
        ]
        self._copies: list[tuple[str, Any, dict[Any, Any]]] = []
        self._variables: list[tuple[Fact, Any]] = []
        self._random: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]] = []
        for name, value in environment.reached:
            self._note(name, value)
        for fact in environment.facts:
            if isinstance(fact, (VariableFact, EntryFact)) or isinstance(fact.holder, type):
                self._variables.append((fact, fact.read()))
        self._note_random("Python's random", random.getstate, random.setstate)
        self._note_random("np.random", np.random.get_state, np.random.set_state)

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, np.random.Generator):
            bits: Any = value.bit_generator
            self._note_random(name, lambda: bits.state, lambda s: setattr(bits, "state", s))
        elif isinstance(value, (random.Random, np.random.RandomState)):
            is_random = isinstance(value, random.Random)
            read: Any = getattr(value, "getstate" if is_random else "get_state")
            self._note_random(name, read, getattr(value, "setstate" if is_random else "set_state"))
        elif isinstance(value, Optimizer):
            for i, group in enumerate(value.param_groups):
                self._copies.append((f"{name}.param_groups[{i}]", group, dict(group)))
            self._copies.append((name, value, _entries(value)))
        elif isinstance(value, (set, list, dict, deque)) or _has_state(value):
            self._copies.append((name, value, _entries(value)))
        elif isinstance(value, Tensor) and value.hooks is not None:
            self._copies.append((f"{name}.hooks", value.hooks, _entries(value.hooks)))

    def _note_random(self, name: str, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self._random.append((name, read, write, read()))

    def changes(self) -> Iterator[tuple[str, Any]]:
        """The changes since then, by name; MISSING for what is gone."""
        for label, holder, before in self._copies:
            after = _entries(holder)
            for key in before.keys() | after.keys():
                value = after.get(key, MISSING)
                if differs(value, before.get(key, MISSING)):
                    yield (f"{label}.{key}" if label else str(key)), value
        for fact, was in self._variables:
            if differs(value := fact.read(), was):
                yield fact.label, value

    def random_drawn(self) -> str | None:
        """A source of random numbers other than TinyTorch's that was used."""
        for name, read, _, was in self._random:
            if not _same_state(read(), was):
                return name
        return None

    def undo_state(self) -> None:
        """Restore the state of optimizers; traces before hold the very dicts that it is in."""
        for optimizer, before in self._states:
            for p in list(optimizer.state):
                own, copy = before.get(p, (None, {}))
                if own is None:
                    del optimizer.state[p]
                else:
                    own.clear()
                    own.update(copy)

    def undo(self) -> None:
        """Restore everything."""
        for _, holder, before in self._copies:
            if any(True for _ in _changed(holder, before)):
                _restore(holder, before)
        for fact, was in self._variables:
            if differs(fact.read(), was):
                _restore_variable(fact, was)
        for _, read, write, was in self._random:
            if not _same_state(read(), was):
                write(was)
        structure.count()


def _has_state(value: Any) -> bool:
    if isinstance(value, (type, ModuleType, FunctionType, Generator, Hooks, *CONTAINERS)):
        return False
    if "__wrapped__" in getattr(value, "__dict__", ()):  # what calls it counts its calls
        return False
    return isinstance(value, Module) or is_ours(value) or is_plain(value)


def _entries(holder: Any) -> dict[Any, Any]:
    """What a container or an object holds."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, (set, frozenset)):
        return dict.fromkeys(holder)
    if isinstance(holder, CONTAINERS):
        return dict(enumerate(holder))
    named = attributes_of(holder)
    return {k: v for k, v in named.items() if not (isinstance(holder, Optimizer) and k in SKIPPED)}


def _changed(holder: Any, before: dict[Any, Any]) -> Iterator[Any]:
    after = _entries(holder)
    for key in before.keys() | after.keys():
        if differs(after.get(key, MISSING), before.get(key, MISSING)):
            yield key


def _restore(holder: Any, before: dict[Any, Any]) -> None:
    if isinstance(holder, (dict, set)):
        holder.clear()
        holder.update(before)
    elif isinstance(holder, list):
        holder[:] = before.values()
    elif isinstance(holder, deque):
        holder.clear()
        holder.extend(before.values())
    else:
        for key in list(_changed(holder, before)):
            if key in before:
                object.__setattr__(holder, key, before[key])
            else:
                object.__delattr__(holder, key)


def _restore_variable(fact: Fact, was: Any) -> None:
    if isinstance(fact, VariableFact):
        if was is MISSING:
            del fact.holder.cell_contents
        else:
            fact.holder.cell_contents = was
    elif isinstance(fact.holder, type):
        setattr(fact.holder, fact.key, was)
    elif isinstance(fact.holder, dict):
        if was is MISSING:
            fact.holder.pop(fact.key, None)
        else:
            fact.holder[fact.key] = was


def _same_state(a: Any, b: Any) -> bool:
    """Two states of a generator of random numbers, which are nests of numbers and arrays."""
    if isinstance(a, dict):
        return all(_same_state(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return all(map(_same_state, a, b))
    return bool(np.array_equal(a, b))
