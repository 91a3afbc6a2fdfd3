"""Sums of what a program gives, whose terms are never stored.

The steps of a reduction are those of `reductions`; in the first one a block of terms at a time is
computed into a buffer that stays in L1, and added up there. So a mean squared error reads its two
inputs once and writes one number, and its sum has the blocks, and the error, of any other.

An operand is read along with the terms ("v"), is a number ("s"), is the same for all terms of a
sum ("r": a mean that is subtracted from its row), or is the same for all sums ("l": a line of
weights of their terms). Any other that broadcasts is written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.blocked.sums import total
from tinytorch.backends.optimized.elementwise.loop_text import each, names
from tinytorch.backends.optimized.elementwise.loops import loops_of
from tinytorch.backends.optimized.rows import reductions
from tinytorch.backends.optimized.rows.reductions import BLOCK, COLUMN_BLOCK, Shape, runs_of
from tinytorch.dtypes import Array
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import contiguous, in_order, order_in_memory
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import compile_source
from tinytorch.jit.parallel import shared
from tinytorch.program import Program

SHORT_ROWS = 32  # terms, for which a loop takes longer to begin than the terms to be stored

_GLOBALS: dict[str, Any] = {
    "empty": np.empty,
    "total": total,
    "BLOCK": BLOCK,
    "COLUMN_BLOCK": COLUMN_BLOCK,
}


def _operands(kinds: str) -> list[str]:
    return [f"v{i}[]" if kind in "vl" else f"v{i}" for i, kind in enumerate(kinds)]


def _rows_source(kinds: str, is_limited: bool) -> str:
    """Sums of rows; an operand is (outer, reduced), (outer,), (reduced,), or a number."""
    first = kinds.index("v")
    lines = [f"def rows({', '.join(f'x{i}' for i in range(len(kinds)))}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    lines += [f"    buffer = empty(min(BLOCK, x{first}.shape[1]), out.dtype)"]
    lines += ["    for i in range(out.size):", "        blocks = 0.0"]
    lines += [f"        v{i} = x{i}[i]" for i, kind in enumerate(kinds) if kind == "r"]
    lines += [f"        for start in range(0, x{first}.shape[1], BLOCK):"]
    lines += [
        f"            v{i} = x{i}[{'i, ' if kind == 'v' else ''}start : start + BLOCK]"
        for i, kind in enumerate(kinds)
        if kind in "vl"
    ]
    lines += [f"            terms = buffer[: v{first}.size]"]
    # by the size of what is read: LLVM makes several times as much of that of the slice it writes
    lines += each(12, f"v{first}.size", ["terms"], _operands(kinds), is_limited)
    lines += ["            blocks += total(terms)", "        out[i] = blocks", ""]
    return "\n".join(lines)


def _columns_source(kinds: str, is_limited: bool) -> str:
    """Sums of columns; an operand is (outer, reduced, inner), (outer, inner), (reduced,), or a
    number."""
    first = kinds.index("v")
    operands = [f"v{i}" if kind in "sl" else f"v{i}[]" for i, kind in enumerate(kinds)]
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
        *(f"                v{i} = x{i}[r]" for i, kind in enumerate(kinds) if kind == "l"),
        *each(16, "terms.size", ["terms"], operands, is_limited),
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
    loop = loops_of(program, dtype).loop(source, kinds, **_GLOBALS)
    parameters = (f"x{i}" if kind in "sl" else f"x{i}[:]" for i, kind in enumerate(kinds))
    return shared(loop, f"{', '.join(parameters)}, out[:]")


@cache
def _entry(
    program: Program, dtype: np.dtype[Any], kinds: str, is_rows: bool, bools: frozenset[int]
) -> Callable[..., Any]:
    """The loop for flat arrays: takes outer, reduced, inner, the operands and the result."""
    source = _rows_source if is_rows else _columns_source
    loop = loops_of(program, dtype).loop(source, kinds, **_GLOBALS)
    along, across = ("(outer, reduced)", "outer") if is_rows else (
        "(outer, reduced, inner)", "(outer, inner)"
    )  # fmt: skip
    shapes = {"v": f".reshape({along})", "r": f".reshape({across})", "s": "", "l": ""}
    given = ", ".join(f"x{i}{shapes[kind]}" for i, kind in enumerate(kinds))
    text = (
        f"def entry(outer, reduced, inner, {names(kinds)}, out):\n"
        f"    loop({given}, out.reshape({across}))\n"
    )
    arrays = {False: flat_type(from_dtype(dtype)), True: flat_type(types.boolean)}
    operands = [types.float64 if k == "s" else arrays[i in bools] for i, k in enumerate(kinds)]
    entry = compile_source("entry", text, {"loop": loop}, nogil=False)
    size = types.intp
    return Entries(step=(entry, size, size, size, *operands, arrays[False])).step


def _small(
    step: Callable[..., Any],
    dtype: np.dtype[Any],
    operands: Sequence[Shape | None],
    places: Sequence[Shape],
    kinds: str,
    first: Shape,
    others: Shape,
    result: Shape,
) -> Callable[..., Array]:
    """The kernel for small arrays, called without numba's dispatch.

    Args:
        step: takes the operands and the result, in C order.
        places: the shape to which each operand is written out, if it has fewer elements.
        first: of the sums over the last dimensions of those that are summed; `others` are left.
    """
    at = [i for i, s in enumerate(operands) if s is not None]
    numbers = [i for i in at if kinds[i] == "s"]
    spread = [
        (i, places[i])
        for i in at
        if kinds[i] != "s" and math.prod(operands[i] or ()) != math.prod(places[i])
    ]

    def run(values: Sequence[Any]) -> Array:
        out = np.empty(first, dtype)
        try:
            step(*values, out)
        except BufferError:  # in another order, or not aligned
            step(*[in_order(x) if type(x) is np.ndarray else x for x in values], out)
        if others:
            return reductions.sum(out, dims=others, keepdim=True).reshape(result)
        return out

    def written_out(*values: Any, **_: Any) -> Array:
        given = list(values)
        for i in numbers:
            given[i] = given[i].item()
        for i, place in spread:
            wide = np.empty(place, given[i].dtype)
            wide[...] = given[i]
            given[i] = wide
        return run(given)

    def as_they_are(*values: Any, **_: Any) -> Array:
        return run(values)

    kernel = written_out if numbers or spread else as_they_are
    kernel.gives_arrays = True  # type: ignore[attr-defined]
    return kernel


def _of_narrow(
    step: Callable[..., Array],
    otherwise: Callable[..., Array],
    kinds: str,
    wide: Shape,
    inner: int,
    result: Shape,
) -> Callable[..., Array]:
    """The kernel of short columns, several rows of which are taken side by side as one.

    Args:
        step: sums an array of the shape `wide` over its second dimension.
        otherwise: what runs where an operand is not in C order.
    """
    outer, _, width = wide
    beside = width // inner

    def several(x: Any, kind: str) -> Any:
        if kind == "v":
            return x.reshape(wide)
        if kind == "r":
            rows = np.broadcast_to(x.reshape(outer, 1, inner), (outer, beside, inner))
            return rows.reshape(outer, 1, width)
        return x.reshape(()) if type(x) is np.ndarray else x

    def kernel(*values: Any, dims: Shape, keepdim: bool) -> Array:
        if not all([type(x) is not np.ndarray or x.flags.c_contiguous for x in values]):
            return otherwise(*values, dims=dims, keepdim=keepdim)
        parts = step(*map(several, values, kinds), dims=(1,), keepdim=False)
        by_rows = parts.reshape(outer, beside, inner)
        return reductions.sum(by_rows, dims=(1,), keepdim=False).reshape(result)

    kernel.gives_arrays = True  # type: ignore[attr-defined]
    return kernel


def _of_stored(terms: Callable[..., Array]) -> Callable[..., Array]:
    """The kernel that adds up terms which are stored."""

    def kernel(*values: Any, dims: Shape, keepdim: bool) -> Array:
        return reductions.sum(terms(*values), dims=dims, keepdim=keepdim)

    kernel.gives_arrays = True  # type: ignore[attr-defined]
    return kernel


def specialize(
    program: Program,
    dtype: np.dtype[Any],
    operands: tuple[Shape | None, ...],
    dims: Shape,
    keepdim: bool,
    bools: frozenset[int] = frozenset(),
) -> Callable[..., Array]:
    """The kernel of the sum of a program over `dims`, for operands of these shapes.

    Args:
        program: gives numbers, not truth values.
        dtype: float32 or float64.
        operands: their shapes; None for a Python number.
        dims: non-negative dimensions of the common shape, at least one.
        keepdim: leave them in place, with length 1.
        bools: positions of the operands that are bool.
    """
    whole = np.broadcast_shapes(*(s for s in operands if s is not None))
    steps, result = runs_of(whole, dims, keepdim)
    outer, reduced, inner = steps[0]
    first = last = max(dims)
    while first - 1 in dims:
        first -= 1
    axes = range(first, last + 1)  # the dimensions of this step
    line = tuple(n if d in axes else 1 for d, n in enumerate(whole))
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
        elif full == line != whole:
            kinds += "l"
        else:
            kinds += "r" if all(full[d] == 1 for d in axes) and reduced > 1 else "v"
        places.append({"r": kept, "l": line}.get(kinds[-1], whole))
    if "v" not in kinds:  # then one of them is
        at = next(i for i, kind in enumerate(kinds) if operands[i] is not None)
        kinds, places[at] = f"{kinds[:at]}v{kinds[at + 1 :]}", whole
    work = len(program.steps) * math.prod(whole)
    if 0 < math.prod(whole) * dtype.itemsize < buffers.POOLED_FROM and work < threads.SERIAL_BELOW:
        step = partial(_entry(program, dtype, kinds, is_rows, bools), outer, reduced, inner)
        return _small(
            step, dtype, operands, places, kinds, kept if others else result, others, result
        )
    if is_rows and reduced < SHORT_ROWS and "r" not in kinds:
        return _of_stored(loops_of(program, dtype).plan(operands))
    run = _kernel(program, dtype, kinds, is_rows)
    flattened = {"v": along, "l": (reduced,)}
    shapes = [flattened.get(kind, across) for kind in kinds]
    given = tuple(zip(kinds, operands, places, shapes, strict=True))

    wholes = [i for i, shape in enumerate(operands) if shape == whole]
    is_large = math.prod(whole) * dtype.itemsize >= buffers.POOLED_FROM
    deciding = wholes if is_large else []  # about the order; the others are turned with them

    def turned_to(values: Sequence[Any], order: tuple[int, ...]) -> Array:
        turned = [
            x.reshape((1,) * (len(whole) - x.ndim) + x.shape).transpose(order)
            if type(x) is np.ndarray
            else x
            for x in values
        ]
        shapes = tuple(x.shape if type(x) is np.ndarray else None for x in turned)

        def reduce(dims: Shape) -> Array:
            found: Array = specialize(program, dtype, shapes, dims, True, bools)(
                *turned, dims=dims, keepdim=True
            )
            return found

        return reductions.along_memory(reduce, order, dims, result)

    def kernel(*values: Any, dims: Shape, keepdim: bool) -> Array:
        if deciding and (order := order_in_memory([values[i] for i in deciding])):
            return turned_to(values, order)
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
    sizes = {"v": math.prod(whole), "r": outer * inner}  # of operands that are not spread
    if others or not reductions.is_narrow(reduced, inner) or any(
        kind == "l" or math.prod(shape or ()) != sizes.get(kind, 1)
        for kind, shape in zip(kinds, operands, strict=True)
    ):  # fmt: skip
        return kernel
    beside = reductions.rows_beside(reduced, inner)
    if reduced % beside:
        return kernel
    wide = outer, reduced // beside, beside * inner
    shapes_of = {"v": wide, "r": (outer, 1, wide[2])}
    of_wide = tuple(
        [
            None if shape is None else shapes_of.get(kind, ())
            for kind, shape in zip(kinds, operands, strict=True)
        ]
    )
    several = specialize(program, dtype, of_wide, (1,), False, bools)
    return _of_narrow(several, kernel, kinds, wide, inner, result)
