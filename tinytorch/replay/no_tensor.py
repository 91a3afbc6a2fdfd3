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


def explained(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    error: AttributeError,
) -> Exception:
    """A TypeError that names the argument that lacks an attribute; else `error` itself."""
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
            if _is_missed_in(each, error.obj) and not is_left_out:
                what = "a tensor" if each is value else "tensors"
                return TypeError(
                    f"{function.__name__}: {name!r} must be {what}, not {_kind(each)}: use "
                    f"tinytorch.tensor(...)"
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
