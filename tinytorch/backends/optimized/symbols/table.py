"""The table of symbols, and how a kernel enters it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tinytorch.jit.library import JIT, compile_source, export
from tinytorch.jit.views import view

SUFFIXES: dict[Any, str] = {np.float32: "f32", np.float64: "f64"}
REALS = tuple(SUFFIXES)

SYMBOLS: dict[str, Any] = {}
"""What has been declared, by full name: functions that generated code calls."""


def declare(name: str, real: Any, parameters: str) -> Callable[[Callable[..., None]], Any]:
    """Export a function of addresses and sizes as the symbol of an op for one type.

    Args:
        name: of the op; `_f32` or `_f64` is added.
        real: np.float32 or np.float64.
        parameters: names, for the count; all are int64, but for those with a star in front, which
            are float64.
    """
    kinds = [types.float64 if p.startswith("*") else types.intp for p in parameters.split()]
    full = f"{name}_{SUFFIXES[real]}"
    register = export(f"tinytorch_{full}", types.void(*kinds))

    def enter(function: Callable[..., None]) -> Any:
        SYMBOLS[full] = register(function)
        return SYMBOLS[full]

    return enter


def declare_kernel(name: str, kernel: Callable[..., None], sizes: str, operands: str) -> None:
    """Export a kernel on C-contiguous arrays unchanged, for every type.

        declare_kernel("scale_rows", _scale, "n d", "x[n,d] w[d] *factor out[n,d]")

    makes the symbols `tinytorch_scale_rows_f32` and `..._f64` of (n, d, x, w, factor, out), with
    addresses in place of arrays.

    Args:
        name: as for `declare`.
        kernel: takes the operands in the order given.
        sizes: names of the lengths.
        operands: of the kernel, arrays with their shape; with a star in front a float64.
    """
    parts = [operand.partition("[") for operand in operands.split()]
    parameters = f"{sizes} {' '.join(part[0] for part in parts)}"
    arguments = [f"view(real, {a}, ({s[:-1]},))" if b else a.lstrip("*") for a, b, s in parts]
    source = (
        f"def {name}({', '.join(parameters.replace('*', '').split())}):\n"
        f"    kernel({', '.join(arguments)})\n"
    )
    for real in REALS:
        function = compile_source(name, source, {"kernel": kernel, "view": view, "real": real})
        declare(name, real, parameters)(function.py_func if JIT else function)
