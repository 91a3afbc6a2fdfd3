"""What the values of an argument have to be: looked at where they are known, not in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.dispatch import is_tensor
from tinytorch.dtypes import Array, bfloat16
from tinytorch.replay import holds


def check_probabilities(name: str, p: Any, advice: str = "") -> None:
    """Raise ValueError unless all of p, a tensor or a number, are from 0 to 1, which NaN is not."""
    _check(f"{name} must be from 0 to 1", _are_probabilities, _is_probability, p, advice)


def check_not_negative(name: str, values: Any) -> None:
    """Raise ValueError unless none of a tensor, or a number, is negative, or NaN."""
    _check(f"{name} must not be negative", _are_not_negative, _is_not_negative, values)


def _check(
    rule: str,
    of_all: Callable[[Array], Any],
    of_each: Callable[[Array], Array],
    value: Any,
    advice: str = "",
) -> None:
    if not is_tensor(value):
        if not of_all(np.asarray(value)):
            raise ValueError(f"{rule}, not {value}{advice}")
        return
    value = value.float() if value.dtype is bfloat16 else value  # as numbers, not as their bits
    if not holds(value, of_all, traced=True):
        wrong = value._data[~of_each(value._data)]
        raise ValueError(f"{rule}, not {wrong[0]}{advice}")


def _is_probability(values: Array) -> Array:
    return (values >= 0) & (values <= 1)


def _are_probabilities(values: Array) -> Any:
    return _is_probability(values).all()


def _is_not_negative(values: Array) -> Array:
    return values >= 0


def _are_not_negative(values: Array) -> Any:
    return _is_not_negative(values).all()
