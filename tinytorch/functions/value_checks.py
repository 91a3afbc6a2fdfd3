"""What the values of an argument have to be: looked at where they are known.

In a trace these are the values of its inputs, at each call, not what is computed in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.dispatch import assumed, is_tensor
from tinytorch.dtypes import Array, DType, bfloat16, number_of
from tinytorch.replay import holds


def check_probabilities(name: str, p: Any, advice: str = "") -> None:
    """Raise ValueError unless all of p, a tensor or a number, are from 0 to 1, which NaN is not."""
    _check(f"{name} must be from 0 to 1", _is_probability, p, advice)


def check_not_negative(name: str, values: Any) -> None:
    """Raise ValueError unless none of a tensor, or a number, is negative, or NaN."""
    _check(f"{name} must not be negative", _is_not_negative, values)


def factor_of(name: str, value: Any, dtype: DType) -> Any:
    """A number by which values of a dtype are multiplied, as one of these; a float beside integers
    stays what it is.

    Raises:
        DTypeError: the dtype has no such number, as float32 has no 1e39: products would be inf.
    """
    if type(value) is int or (isinstance(value, float) and dtype.is_floating_point):
        return number_of(name, value, dtype)
    return value


def _check(rule: str, of_each: Callable[[Any], Any], value: Any, advice: str = "") -> None:
    if not is_tensor(value):
        if not of_each(value):
            raise ValueError(f"{rule}, not {value}{advice}")
        return
    value = value.float() if value.dtype is bfloat16 else value  # as numbers, not as their bits
    if assumed(value, _is_met, value.meta.size, rule, of_each, advice):
        return  # by the example of a trace; each of its calls asks again
    if not holds(value, _is_true_of_all, of_each, traced=True):
        raise _refusal(value._data, rule, of_each, advice)


def _is_met(
    values: Array, size: int, rule: str, of_each: Callable[[Array], Array], advice: str
) -> bool:
    """Whether all of an input of a trace may be given; refused, if all of it is what was given."""
    met = bool(of_each(values).all())
    if not met and values.size == size:
        raise _refusal(values, rule, of_each, advice)
    return met


def _is_true_of_all(values: Array, of_each: Callable[[Array], Array]) -> Any:
    return of_each(values).all()


def _refusal(
    values: Array, rule: str, of_each: Callable[[Array], Array], advice: str
) -> ValueError:
    return ValueError(f"{rule}, not {values[~of_each(values)][0]}{advice}")


def _is_probability(value: Any) -> Any:
    return (value >= 0) & (value <= 1)


def _is_not_negative(value: Any) -> Any:
    return value >= 0
