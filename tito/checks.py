"""Checks for the test cells of lessons, with messages that help.

    equal(broadcast("add", [(4, 1), (3,)]), (4, 3), hint="a size of 1 stretches")

    broadcast("add", [(4, 1), (3,)])
      expected: (4, 3)
      got:      (4, 1)
      hint:     a size of 1 stretches

Values are compared by their own type's memory, never by asking the student's object: only exact
builtin types, NumPy arrays and tensors are values here. So an object that says it is equal to
everything is equal to nothing.
"""

from __future__ import annotations

import ast
import linecache
import math
import sys
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np

from tito.plain import Numbers, Same, Unknown, plain, show

RTOL, ATOL = 1e-5, 1e-6
LONGEST = 300  # characters of a message
LIBRARIES = ("builtins", "numpy", "tinytorch")


class CheckError(AssertionError):
    """A check found something else than it expected."""


def equal(got: Any, expected: Any, hint: str = "") -> None:
    """`got` is `expected`: the same type and the same value; NaN equals NaN. A `np.float64` is a
    float, as Python says too.

    Args:
        got: numbers, strings, None, lists, tuples, dicts and sets of them; NumPy arrays and tensors
            (shape, dtype and values); types, functions and dtypes, which must be the very same.

    Raises:
        CheckError: it is not.
    """
    if difference(got, expected) is not None:
        raise CheckError(difference(got, expected, hint=hint, call=_first_argument()))


def close(got: Any, expected: Any, rtol: float = RTOL, atol: float = ATOL, hint: str = "") -> None:
    """|got - expected| <= atol + rtol * |expected| for every element; the shapes are equal too.

    Args:
        got, expected: numbers, nested lists of numbers, NumPy arrays or tensors.

    Raises:
        CheckError: it is not so; the message says where the difference is the largest.
    """
    if distance(got, expected, rtol=rtol, atol=atol) is not None:
        call = _first_argument()
        raise CheckError(distance(got, expected, rtol=rtol, atol=atol, hint=hint, call=call))


def difference(got: Any, expected: Any, *, hint: str = "", call: str = "") -> str | None:
    """What `equal` says; None if it holds.

    Args:
        call: how `got` was computed, as the test cell has it.
    """
    where = _difference(plain(got), plain(expected), "")
    return None if where is None else _message(call, show(expected), got, where, hint)


def distance(
    got: Any,
    expected: Any,
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    hint: str = "",
    call: str = "",
) -> str | None:
    """What `close` says; None if it holds.

    Raises:
        TypeError: `expected` is no numbers.
    """
    mine, theirs = Numbers.of(expected), Numbers.of(got)
    if mine is None:
        raise TypeError(f"close compares numbers; expected is {show(expected)}")
    if theirs is None:
        where: str | None = "these are no numbers"
    elif theirs.shape != mine.shape:
        where = f"its shape is {theirs.shape}, expected {mine.shape}"
    elif theirs.kind != mine.kind and "b" in (theirs.kind, mine.kind):
        where = "truth values are compared with truth values only"
    else:
        where = _farthest(theirs, mine, rtol, atol)
    return None if where is None else _message(call, show(expected), got, where, hint)


def raises(
    error: type[BaseException],
    function: Callable[..., Any],
    *args: Any,
    match: str = "",
    hint: str = "",
    **kwargs: Any,
) -> None:
    """`function(*args, **kwargs)` raises `error`, with `match` in its message.

    A special case of `error` will do if a library defines it (ShapeError is a ValueError); a class
    of one's own will not. Of the message the first 300 characters count.

    What is not written yet does not count: its NotImplementedError passes on.

    Raises:
        CheckError: it returns, or raises something else, or says something else.
    """
    try:
        result = function(*args, **kwargs)
    except Exception as raised:
        if isinstance(raised, NotImplementedError) and error is not NotImplementedError:
            raise
        text = _text_of(raised)[:LONGEST]
        if is_error(type(raised), error) and match in text:
            return
        got = f"{type(raised).__name__}: {text}"
    else:
        got = f"no error; it returned {show(result)}"
    wanted = error.__name__ + (f" with {match!r} in its message" if match else "")
    raise CheckError(_lines(_called_function(function), wanted, got, "", hint)) from None


def check(condition: Any, message: str, hint: str = "") -> None:
    """`condition` is True itself, or NumPy's; for what the other checks cannot say.

    Raises:
        CheckError: it is not; with the message.
    """
    if condition is True or (type(condition) is np.bool_ and bool(condition)):
        return
    got = "" if condition is False or type(condition) is np.bool_ else f": {show(condition)}"
    raise CheckError(f"{message}{got}" + (f"\n  hint:     {hint}" if hint else ""))


def is_error(raised: type[BaseException], stated: type[BaseException]) -> bool:
    """Whether a class is the one stated, or Python's, NumPy's or TinyTorch's special case of it.

    A class of one's own does not count: it could inherit from all others at once.
    """
    if raised is stated:
        return True
    name, module = (str(type.__dict__[n].__get__(raised)) for n in ("__name__", "__module__"))
    if module.partition(".")[0] not in LIBRARIES or module not in sys.modules:
        return False
    in_library = vars(sys.modules[module]).get(name) is raised
    return in_library and stated in type.mro(raised)


def _text_of(error: BaseException) -> str:
    """The message; never an instance of a subclass of str, which could claim to contain all."""
    return str.__add__("", str(error))


def _difference(got: Any, expected: Any, path: str) -> str | None:
    """Where two plain values differ first; None if they do not."""
    at = f"at {path}: " if path else ""
    if isinstance(got, Unknown):
        return f"{at}{got.text} is no value that can be compared"
    if type(got) is not type(expected):
        return f"{at}its type is {_type_name(got)}, expected {_type_name(expected)}"
    if type(got) is Numbers:
        return _array_difference(got, expected, at)
    if type(got) in (list, tuple):
        if len(got) != len(expected):
            return f"{at}it has {len(got)} elements, expected {len(expected)}"
        pairs = enumerate(zip(got, expected, strict=True))
        parts = (_difference(g, e, f"{path}[{i}]") for i, (g, e) in pairs)
        return next((part for part in parts if part), None)
    if type(got) is dict:
        if list(got) != list(expected) and set(got) != set(expected):
            return f"{at}its keys are {list(got)}, expected {list(expected)}"
        parts = (_difference(got[k], expected[k], f"{path}[{k!r}]") for k in expected)
        return next((part for part in parts if part), None)
    same = got == expected or (type(got) is float and math.isnan(got) and math.isnan(expected))
    return None if same else at.rstrip(": ")


def _type_name(value: Any) -> str:
    """The type of a plain value, as a student knows it."""
    if type(value) is Numbers:
        return f"{value.container} of {value.dtype}"
    return "object" if type(value) is Same else type(value).__name__


def _array_difference(got: Numbers, expected: Numbers, at: str) -> str | None:
    if got.container != expected.container:
        return f"{at}it is a {got.container}, expected a {expected.container}"
    if got.shape != expected.shape:
        return f"{at}its shape is {got.shape}, expected {expected.shape}"
    if got.dtype != expected.dtype:
        return f"{at}its dtype is {got.dtype}, expected {expected.dtype}"
    return _farthest(got, expected, 0.0, 0.0)


def _farthest(got: Numbers, expected: Numbers, rtol: float, atol: float) -> str | None:
    """Where the values are farther apart than allowed, at its worst."""
    worst, place = 0.0, -1
    for i, (g, e) in enumerate(zip(got.values, expected.values, strict=True)):
        if g == e or (g != g and e != e):
            continue
        distance = abs(g - e)
        if not distance <= atol + rtol * abs(e) and (place < 0 or not distance <= worst):
            worst, place = distance, i
    if place < 0:
        return None
    if not got.shape:
        return f"they differ by {worst:.3g}"
    index = ", ".join(map(str, np.unravel_index(place, got.shape)))
    values = f"{got.values[place]!r}, expected {expected.values[place]!r}"
    return f"the largest difference is at [{index}]: {values}"


def _message(call: str, expected: str, got: Any, where: str, hint: str) -> str:
    if got is None:
        where = "it returned None: is a `return` missing?"
    return _lines(call, expected, show(got), where, hint)


def _lines(call: str, expected: str, got: str, where: str, hint: str) -> str:
    lines = [call or "not what was expected", f"  expected: {expected}", f"  got:      {got}"]
    lines += [f"  where:    {where}"] if where else []
    lines += [f"  hint:     {hint}"] if hint else []
    return "\n".join(lines)


def _called_function(function: Callable[..., Any]) -> str:
    call = _call()
    if call is None or len(call.args) < 2:
        return getattr(function, "__name__", "the call")
    if isinstance(call.args[1], ast.Lambda) and len(call.args) == 2:
        return ast.unparse(call.args[1].body)
    arguments = [ast.unparse(a) for a in call.args[2:]]
    arguments += [ast.unparse(k) for k in call.keywords if k.arg not in ("match", "hint")]
    return f"{ast.unparse(call.args[1])}({', '.join(arguments)})"


def _first_argument() -> str:
    call = _call()
    return ast.unparse(call.args[0]) if call is not None and call.args else ""


def _call() -> ast.Call | None:
    """The call of a check as it is in the test cell; None if its source is not known."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return None
    found = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if found is None or None in found:
        return None
    line, end_line, column, end_column = found
    assert line is not None and end_line is not None
    lines = [
        linecache.getline(frame.f_code.co_filename, n).encode() for n in range(line, end_line + 1)
    ]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        node = ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    except SyntaxError:
        return None
    return node if isinstance(node, ast.Call) else None
