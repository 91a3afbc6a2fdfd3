"""What the machine code of a kernel depends on, as a text."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba import types


@cache
def _file_digest(filename: str) -> str:
    try:
        return hashlib.sha256(Path(filename).read_bytes()).hexdigest()
    except OSError:  # a notebook cell or generated code: the code itself is in the fingerprint
        return ""


def fingerprint(value: Any) -> str:
    """A text that two values share only if code that uses them compiles to the same.

    For a function that is its code, its liberties with floating point and, in turn, every value
    that the code refers to, in its module or its closure: two kernels made by one factory, or
    generated from one text, differ only there.
    """
    return _describe(value, set())


def _describe(value: Any, seen: set[int]) -> str:
    liberties = sorted(getattr(value, "targetoptions", {}).get("fastmath", ()))
    value = getattr(value, "py_func", getattr(value, "_defn", value))
    if isinstance(value, tuple):
        return repr([_describe(v, seen) for v in value])
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.tobytes()))
    if not isinstance(value, FunctionType):
        return repr(value) if isinstance(value, _CONSTANTS) else type(value).__name__
    code = value.__code__
    name = (value.__module__, value.__qualname__)
    if id(value) in seen:
        return repr(name)
    seen.add(id(value))
    found = {n: value.__globals__[n] for n in code.co_names if n in value.__globals__}
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    uses = [_describe(v, seen) for v in (*found.values(), *cells)]
    return repr((name, liberties, _file_digest(code.co_filename), _body(code), uses))


# Values that become part of the code; others, such as modules, only lead to it.
_CONSTANTS = (bool, int, float, complex, str, bytes, type, np.generic, types.Type)


def _body(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(_body(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return (code.co_code, code.co_names, code.co_firstlineno, constants)
