"""Native code with its elementwise loops left in Python: a program takes 30 ms in place of 500.

Everything else is as ever: schedule, fusion, phases, the machine code that calls symbols and loops,
threads. Only the text of a loop is not compiled, but called back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numba import types

from tinytorch.graph.compiler.native import loop_text, machine_code
from tinytorch.jit import views

TWINS = {
    "view": views._view_twin, "strided": views._strided_twin, "words": views._words_twin,
}  # fmt: skip


class _Loop:
    """A loop as C calls it.

    Attributes:
        address: of the function.
    """

    def __init__(self, name: str, source: str, names: dict[str, Any]) -> None:
        scope = {**names, **TWINS}
        exec(compile(source, f"<loop {name}>", "exec"), scope)
        self._run = scope[name]
        count = self._run.__code__.co_argcount
        self._callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)(self._call)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value
        self._sig = types.void(*[types.int64] * count)  # as `machine_code` reads it of a CFunc

    def _call(self, *arguments: int) -> None:
        with np.errstate(all="ignore"):
            self._run(*arguments)


def _make(name: str, source: str, names: dict[str, Any], **options: Any) -> _Loop:
    return _Loop(name, source, names)


def _scalar(scalar: Callable[..., Any], real: Any) -> Callable[..., Any]:
    """A definition of the op table on Python numbers, rounded to the type of the loop."""
    number = int if np.dtype(real).kind == "i" else float
    return lambda *operands: real(scalar(*map(number, operands)))


_known: dict[str, Any] = {}
_c_function = machine_code.c_function


def _as_c(function: Any) -> Any:
    return function if isinstance(function, _Loop) else _c_function(function)


@contextmanager
def interpreted_loops() -> Iterator[None]:
    """Compile native code without compiling its loops."""
    if len(_known) > 2_000:
        _known.clear()
    with (
        patch.object(loop_text, "compile_source", _make),
        patch.object(loop_text, "_compiled", _known),
        patch.object(loop_text, "_compiled_scalar", _scalar),
        patch.object(machine_code, "c_function", _as_c),
    ):
        yield
