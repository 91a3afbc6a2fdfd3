"""One argument at a time made another: what PyTorch refuses then is refused here, and in words."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: What PyTorch says where it lacks a kernel, a type or a default, and nothing is wrong.
NO_KERNEL = (
    "not implemented for",
    "dtype",
    "data type",
    "scalar type",
    "Long",
    "int64_t",
    "long int",
    "Integral",
    "Integer",
    "must be int",
    "must be Number",
    "must be tuple of ints",
    "invalid combination of arguments",
    "missing 1 required positional argument",
)
#: Errors that say what broke, and not what was wrong.
CRUDE = (AttributeError, AssertionError, KeyError, ZeroDivisionError, UnboundLocalError)


def _arrays(array: Any) -> Iterator[tuple[str, Any]]:
    """An array with other elements, and in other shapes."""
    odd = (np.nan, np.inf, -3.0, 0.0, 2.0) if array.dtype.kind == "f" else (-1, 10**6, -(10**6), 0)
    if array.dtype.kind in "fi" and array.size:
        for value in odd:
            other = array.copy()
            other.flat[0] = value
            yield f"an element {value}", other
    yield "a dimension more in front", array[None].copy()
    if array.ndim:
        yield "a dimension more at the end", array[..., None].copy()
        yield "no rows", array[:0].copy()
        yield "no columns", array[..., :0].copy()
        yield "one column", array[..., :1].copy()
        yield "a column less", array[..., :-1].copy()
    if array.ndim > 1 and array.shape[0]:
        yield "the first row", array[0].copy()
    if array.size:
        yield "a number", np.asarray(array.flat[0])


def changed(value: Any) -> Iterator[tuple[str, Any]]:
    """Arguments in the place of one, each with what was done to it."""
    if isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((repr(n), n) for n in (-1, -2, -100, 100, 0, 2.5))
    elif isinstance(value, float):
        yield from ((repr(n), n) for n in (float("nan"), float("inf"), -1.0, 0.0, 1.0, 2.0))
    elif isinstance(value, str):
        yield "another word", "no such word"
    elif isinstance(value, (tuple, list)):
        kind = type(value)
        for i, each in enumerate(value):
            for what, other in changed(each):
                yield f"[{i}] {what}", kind([*value[:i], other, *value[i + 1 :]])
        yield "nothing in it", kind()
        yield "one more", kind([*value, *value[:1]])
        yield "one less", value[:-1]


def error_of(run: Callable[[], Any]) -> Exception | None:
    """What a call raises, if it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run()
    except Exception as error:  # whatever PyTorch raises
        return error
    return None
