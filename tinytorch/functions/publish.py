"""How a function of `functions/` becomes a name of `tinytorch` and a method of `Tensor`.

By being defined: every public function of a module that ends with `publish(globals())` becomes
both; one whose name ends with `_`, which writes in place, a method only. What else is only one of
them, or neither, the call names, by literals: `tito/lessons/published.py` reads it without running
it. `tinytorch/__init__.py` and `Tensor` take what is collected here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any

from tinytorch.replay import replay_all

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # names of `tinytorch`
METHODS: dict[str, Callable[..., Any]] = {}  # methods of `Tensor`

#: What NumPy calls the arguments of a function; PyTorch takes these names too.
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def publish(
    module: dict[str, Any],
    *,
    functions: str = "",
    methods: str = "",
    hidden: str = "",
    replayed: str = "",
    aliases: Mapping[str, str] | None = None,
) -> None:
    """Publish the functions that a module defines; those with `dim` also take it as `axis`.

    Args:
        module: its `globals()`. What is in it stays: inside the package `dim` is `dim`.
        functions: names of those that are no methods.
        methods: names of those that are methods only.
        hidden: names of those that are neither: for use inside the package.
        replayed: names of those whose calls are replayed (`tinytorch.replay`): made of several ops.
        aliases: other names under which functions are published as well: alias -> name.

    Raises:
        ValueError: a name is published already, by another module.

    >>> from tinytorch import ones
    >>> ones(2, 3).sum(axis=1, keepdims=True).shape
    (2, 1)
    """
    found = {
        name: function
        for name, function in module.items()
        if isinstance(function, FunctionType)
        and name[0] != "_"
        and function.__module__ == module["__name__"]
    }
    for name, function in found.items():
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if "dim" in names:
            found[name] = _with_numpy_names(function)
    replay_all(found, replayed, "tinytorch")
    aliased = {a: found[name] for a, name in (aliases or {}).items()}
    both = {name: f for name, f in found.items() if name not in hidden.split()}
    for name, function in {**both, **aliased}.items():
        original = (aliases or {}).get(name, name)
        if original not in methods.split() and not original.endswith("_"):
            _enter(FUNCTIONS, name, function)
        if original not in functions.split():
            _enter(METHODS, name, function)


def _enter(table: dict[str, Callable[..., Any]], name: str, function: Callable[..., Any]) -> None:
    if name in table:
        ours, theirs = inspect.unwrap(function), inspect.unwrap(table[name])
        raise ValueError(f"{ours.__module__}.{name} is published already, from {theirs.__module__}")
    table[name] = function


def _with_numpy_names(function: Callable[..., Any]) -> Any:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not options:
            return function(*args)
        if not NUMPY_NAMES.keys().isdisjoint(options):
            for old, new in NUMPY_NAMES.items():
                if old in options and new in options:
                    raise TypeError(f"{function.__name__}: {old} and {new} are the same argument")
            options = {NUMPY_NAMES.get(name, name): value for name, value in options.items()}
        return function(*args, **options)

    return call
