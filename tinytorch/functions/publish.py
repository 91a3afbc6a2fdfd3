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

from tinytorch.replay import no_tensor, replay_all

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # names of `tinytorch`
METHODS: dict[str, Callable[..., Any]] = {}  # methods of `Tensor`

#: Other names of arguments, which PyTorch takes too: those of NumPy, and of its overloads.
OTHER_NAMES = {
    "axis": "dim",
    "keepdims": "keepdim",
    "split_size": "split_size_or_sections",
    "indices": "indices_or_sections",
    "sections": "indices_or_sections",
}
#: What the first argument is called in formulas here; PyTorch's functions call it `input`.
OPERANDS = ("x", "a")


def publish(
    module: dict[str, Any],
    *,
    functions: str = "",
    methods: str = "",
    hidden: str = "",
    replayed: str = "",
    aliases: Mapping[str, str] | None = None,
) -> None:
    """Publish the functions that a module defines; those with `dim` also take it as `axis`, and
    what is no method its first argument as `input`.

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
    found: dict[str, Any] = {
        name: function
        for name, function in module.items()
        if isinstance(function, FunctionType)
        and name[0] != "_"
        and function.__module__ == module["__name__"]
    }
    for name, function in found.items():
        names = _parameters(function)
        others = {other: own for other, own in OTHER_NAMES.items() if own in names}
        if others or name in replayed.split():  # other calls than those with names cost the same
            found[name] = with_other_names(function, others | _input_of(function))
    replay_all(found, replayed, "tinytorch")
    named = {name: with_input(function, "tinytorch") for name, function in found.items()}
    originals = {name: name for name in found if name not in hidden.split()} | dict(aliases or {})
    for name, original in originals.items():
        if original not in methods.split() and not original.endswith("_"):
            _enter(FUNCTIONS, name, named[original])
        if original not in functions.split():
            _enter(METHODS, name, found[original])


def _enter(table: dict[str, Callable[..., Any]], name: str, function: Callable[..., Any]) -> None:
    if name in table:
        ours, theirs = inspect.unwrap(function), inspect.unwrap(table[name])
        raise ValueError(f"{ours.__module__}.{name} is published already, from {theirs.__module__}")
    table[name] = function


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def _input_of(function: Callable[..., Any]) -> dict[str, str]:
    """PyTorch's name of the first argument, and the own one; nothing if they are the same."""
    own = inspect.unwrap(function)
    first = _parameters(own)[:1] if isinstance(own, FunctionType) else ()
    return {"input": first[0]} if first and first[0] in OPERANDS else {}


def with_input(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """The function, which takes its first argument as `input`, too, and names an argument that is
    no tensor, but is to be one; itself if it does already.

    Args:
        module: in which it is found by its name, when it is unpickled.

    >>> from tinytorch import exp, tensor
    >>> exp(input=tensor([0.0]))
    tensor([1.])
    """
    known, names = getattr(function, "other_names", None), _input_of(function)
    is_named = known is not None or hasattr(function, "replayed")
    if "input" in (known or ()) or (is_named and not names):
        return function
    named = with_other_names(function, names)
    named.__module__ = module
    return named


def with_other_names(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """Let a function take arguments by other names as well: other name -> own name.

    Raises:
        TypeError: an argument is given under both (when the function is called).
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            if not options:
                return function(*args)
            if not names.keys().isdisjoint(options):
                for other, own in names.items():
                    if other in options and own in options:
                        both = f"{other} and {own} are the same argument"
                        raise TypeError(f"{function.__name__}: {both}")
                options = {names.get(name, name): value for name, value in options.items()}
            return function(*args, **options)
        except AttributeError as error:
            raise no_tensor.explained(function, args, options, error) from None

    call.other_names = names  # type: ignore[attr-defined]
    return call
