"""What an AttributeError within a function means: an argument that is no tensor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tinytorch import tensor_class


def run(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """function(*args, **options), with a TypeError for an argument that is to be a tensor.

    `'list' object has no attribute 'meta'` says nothing to whoever gave labels as a list.
    """
    try:
        return function(*args, **options)
    except AttributeError as error:
        raise explained(function, args, options, error) from None


def explained_of_layer(
    layer: Any, args: tuple[Any, ...], options: Mapping[str, Any], error: AttributeError
) -> Exception:
    """The same for the arguments of a layer's `forward` that it says are tensors: the layer may be
    a user's, and take others, which lack an attribute for a reason of their own."""
    return explained(layer.forward, args, options, error, type(layer).__name__, only_said=True)


def explained(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    error: AttributeError,
    called: str = "",
    only_said: bool = False,
) -> Exception:
    """A TypeError that names the argument that lacks an attribute; else `error` itself.

    Args:
        called: the name of what was called, if not the function's.
        only_said: only arguments whose annotations say that they are tensors.
    """
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError:  # too many arguments, or too few
        return error
    said = {name: "Tensor" in str(p.annotation) for name, p in signature.parameters.items()}
    # what is said to be a tensor first: an equal number may be the same object
    for name, value in sorted(given.items(), key=lambda item: not said[item[0]]):
        is_sequence = isinstance(value, (list, tuple))
        for each in (value, *value) if is_sequence else (value,):
            is_left_out = each is None is signature.parameters[name].default
            is_asked = said[name] or not only_said
            if is_asked and _is_missed_in(each, error.obj) and not is_left_out:
                what = "a tensor" if each is value else "tensors"
                return TypeError(
                    f"{called or function.__name__}: {name!r} must be {what}, not {_kind(each)}: "
                    f"use tinytorch.tensor(...)"
                )
    return error


def _is_missed_in(value: Any, missed: Any) -> bool:
    """Whether it is no tensor, and it, or its dtype, is what lacks an attribute."""
    if isinstance(value, tensor_class.tensor_class):
        return False
    return value is missed or (missed is not None and getattr(value, "dtype", None) is missed)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
