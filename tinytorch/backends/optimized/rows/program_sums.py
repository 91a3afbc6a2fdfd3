"""Sums of what a program gives, whose terms are never stored.

The steps of a reduction are those of `reductions`; in the first one a block of terms at a time is
computed into a buffer that stays in L1, and added up there. So a mean squared error reads its two
inputs once and writes one number, and its sum has the blocks, and the error, of any other.

An operand is read along with the terms ("v"), is a number ("s"), or is the same for all terms of a
sum ("r": a mean that is subtracted from its row). Any other that broadcasts is written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tinytorch.backends.blocked.sums import total
from tinytorch.backends.optimized.elementwise.loop_text import each
from tinytorch.backends.optimized.elementwise.loops import loops_of
from tinytorch.backends.optimized.rows import reductions
from tinytorch.backends.optimized.rows.reductions import BLOCK, COLUMN_BLOCK, Shape, runs_of
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous, order_in_memory
from tinytorch.jit.parallel import shared
from tinytorch.program import Program


def _operands(kinds: str) -> list[str]:
    return [f"v{i}[]" if kind == "v" else f"v{i}" for i, kind in enumerate(kinds)]


def _rows_source(kinds: str, is_limited: bool) -> str:
    """Sums of rows; an operand is (outer, reduced), (outer,), or a number."""
    first = kinds.index("v")
    lines = [f"def rows({', '.join(f'x{i}' for i in range(len(kinds)))}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    lines += [f"    buffer = empty(min(BLOCK, x{first}.shape[1]), out.dtype)"]
    lines += ["    for i in range(out.size):", "        blocks = 0.0"]
    lines += [f"        v{i} = x{i}[i]" for i, kind in enumerate(kinds) if kind == "r"]
    lines += [f"        for start in range(0, x{first}.shape[1], BLOCK):"]
    lines += [
        f"            v{i} = x{i}[i, start : start + BLOCK]"
        for i, kind in enumerate(kinds)
        if kind == "v"
    ]
    lines += [f"            terms = buffer[: v{first}.size]"]
    lines += each(12, "terms.size", "terms", _operands(kinds), is_limited)
    lines += ["            blocks += total(terms)", "        out[i] = blocks", ""]
    return "\n".join(lines)


def _columns_source(kinds: str, is_limited: bool) -> str:
    """Sums of columns; an operand is (outer, reduced, inner), (outer, inner), or a number."""
    first = kinds.index("v")
    operands = [f"v{i}" if kind == "s" else f"v{i}[]" for i, kind in enumerate(kinds)]
    lines = [f"def columns({', '.join(f'x{i}' for i in range(len(kinds)))}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    lines += [
        "    terms, part = empty(out.shape[1], out.dtype), empty(out.shape[1], out.dtype)",
        "    for i in range(out.shape[0]):",
        "        result = out[i]",
        "        result[:] = 0",
        *(f"        v{i} = x{i}[i]" for i, kind in enumerate(kinds) if kind == "r"),
        f"        count = x{first}.shape[1]",
        "        for start in range(0, count, COLUMN_BLOCK):",
        "            part[:] = 0",
        "            for r in range(start, min(start + COLUMN_BLOCK, count)):",
        *(f"                v{i} = x{i}[i, r]" for i, kind in enumerate(kinds) if kind == "v"),
        *each(16, "terms.size", "terms", operands, is_limited),
        "                for j in range(terms.size):",
        "                    part[j] += terms[j]",
        "            for j in range(result.size):",
        "                result[j] += part[j]",
        "",
    ]
    return "\n".join(lines)


@cache
def _kernel(program: Program, dtype: np.dtype[Any], kinds: str, is_rows: bool) -> Any:
    source = _rows_source if is_rows else _columns_source
    names: dict[str, Any] = {
        "empty": np.empty,
        "total": total,
        "BLOCK": BLOCK,
        "COLUMN_BLOCK": COLUMN_BLOCK,
    }
    loop = loops_of(program, dtype).loop(source, kinds, **names)
    parameters = (f"x{i}" if kind == "s" else f"x{i}[:]" for i, kind in enumerate(kinds))
    return shared(loop, f"{', '.join(parameters)}, out[:]")


def specialize(
    program: Program,
    dtype: np.dtype[Any],
    operands: tuple[Shape | None, ...],
    dims: Shape,
    keepdim: bool,
) -> Callable[..., Array]:
    """The kernel of the sum of a program over `dims`, for operands of these shapes.

    Args:
        program: gives numbers, not truth values.
        dtype: float32 or float64.
        operands: their shapes; None for a Python number.
        dims: non-negative dimensions of the common shape, at least one.
        keepdim: leave them in place, with length 1.
    """
    whole = np.broadcast_shapes(*(s for s in operands if s is not None))
    steps, result = runs_of(whole, dims, keepdim)
    outer, reduced, inner = steps[0]
    first = last = max(dims)
    while first - 1 in dims:
        first -= 1
    axes = range(first, last + 1)  # the dimensions of this step
    others = tuple(d for d in dims if d not in axes)
    kept = tuple(1 if d in axes else n for d, n in enumerate(whole))
    is_rows = inner == 1
    along = (outer, reduced) if is_rows else (outer, reduced, inner)
    across = (outer,) if is_rows else (outer, inner)
    kinds, places = "", []
    for shape in operands:
        full = () if shape is None else (1,) * (len(whole) - len(shape)) + shape
        if shape is None or math.prod(shape) == 1 != math.prod(whole):
            kinds += "s"
        else:
            kinds += "r" if all(full[d] == 1 for d in axes) and reduced > 1 else "v"
        places.append(kept if kinds[-1] == "r" else whole)
    if "v" not in kinds:  # then one of them is
        at = next(i for i, kind in enumerate(kinds) if operands[i] is not None)
        kinds, places[at] = f"{kinds[:at]}v{kinds[at + 1 :]}", whole
    run = _kernel(program, dtype, kinds, is_rows)
    work = len(program.steps) * math.prod(whole)
    shapes = [along if kind == "v" else across for kind in kinds]
    given = tuple(zip(kinds, operands, places, shapes, strict=True))

    is_whole = all(shape is None or shape == whole for shape in operands)
    may_turn = is_whole and math.prod(whole) * dtype.itemsize >= buffers.POOLED_FROM

    def in_order(values: Sequence[Any], order: tuple[int, ...]) -> Array:
        turned = [x.transpose(order) if type(x) is np.ndarray else x for x in values]
        shapes = tuple(x.shape if type(x) is np.ndarray else None for x in turned)

        def reduce(dims: Shape) -> Array:
            found: Array = specialize(program, dtype, shapes, dims, True)(
                *turned, dims=dims, keepdim=True
            )
            return found

        return reductions.along_memory(reduce, order, dims, result)

    def kernel(*values: Any, dims: Shape, keepdim: bool) -> Array:
        arrays: list[Any] = [x for x in values if type(x) is np.ndarray] if may_turn else []
        if arrays and (order := order_in_memory(arrays)):
            return in_order(values, order)
        arrays = [
            x
            if kind == "s" and shape is None
            else x.item()
            if kind == "s"
            else contiguous(x if shape == place else np.broadcast_to(x, place)).reshape(to)
            for x, (kind, shape, place, to) in zip(values, given, strict=True)
        ]
        out = buffers.empty(across, dtype)
        run(work, *arrays, out)
        if others:
            out = reductions.sum(out.reshape(kept), dims=others, keepdim=True)
        return out.reshape(result)

    kernel.gives_arrays = True  # type: ignore[attr-defined]
    return kernel
