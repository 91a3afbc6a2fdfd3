"""The kernel of a definition for known shapes: small arrays without numba's dispatch.

It holds the interpreter lock. The loop over 2,000 elements takes a tenth of a microsecond, so what
counts is how it is called. The plan knows the dtypes, and one compiled entry serves all shapes;
that arrays are in C order its machine code looks at (`jit.entries.FlatArray`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.elementwise.loop_text import nested_source, small_source
from tinytorch.backends.optimized.elementwise.loops import Loops, Plan, Scalar, loops_of
from tinytorch.backends.optimized.elementwise.nest import Nest, Shape, kind_of
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import flat_type
from tinytorch.jit.library import JIT


def specialize(
    scalar: Scalar,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int] = frozenset(),
) -> Plan:
    """The kernel of a definition for arrays of one dtype and for these shapes only.

    Args:
        dtype: float32 or float64.
        shapes: of the operands; None for a Python scalar.
        bools: positions of the operands that are bool.
    """
    loops = loops_of(scalar, dtype)
    return _small(loops, shapes, bools) or loops.plan(shapes)


def _small(loops: Loops, shapes: tuple[Shape | None, ...], bools: frozenset[int]) -> Plan | None:
    """As `loops.plan` for small arrays in C order, with the least overhead; None for large ones.

    Args:
        bools: positions of the operands that are bool; the caller answers for the dtypes.
    """
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    dtype = loops.result
    if math.prod(shape) * dtype.itemsize >= buffers.POOLED_FROM:
        return None
    kinds, entry = "".join(kind_of(s, shape) for s in shapes), partial(_entry, loops, bools)
    if not {"b", "r"}.isdisjoint(kinds):
        nest = Nest(shape, shapes)
        if nest.kinds is None:
            return None
        given = 0, nest.length, nest.geometry
        loop: Any = partial(entry(nested_source, nest.kinds), *given)
    else:
        loop = entry(small_source, kinds)

    def run(*operands: Any) -> Array:
        out = np.empty(shape, dtype)
        try:
            loop(*operands, out)
        except BufferError:  # in another order, or not aligned
            loop(*[in_order(x) if isinstance(x, np.ndarray) else x for x in operands], out)
        return out

    # the same for so many operands, without a tuple of them

    def run_two(a: Any, b: Any) -> Array:
        out = np.empty(shape, dtype)
        try:
            loop(a, b, out)
        except BufferError:
            a, b = [in_order(x) if isinstance(x, np.ndarray) else x for x in (a, b)]
            loop(a, b, out)
        return out

    def run_one(a: Any) -> Array:
        out = np.empty(shape, dtype)
        try:
            loop(a, out)
        except BufferError:
            loop(in_order(a), out)
        return out

    by_arity: dict[int, Any] = {1: run_one, 2: run_two}
    found = by_arity.get(len(kinds), run)
    found.gives_arrays = True
    return found


def _entry(
    loops: Loops, bools: frozenset[int], source: Callable[[str, bool], str], kinds: str
) -> Callable[..., Any]:
    loop: Any = loops.loop(source, kinds, is_small=True)
    if not JIT:
        return loop
    arrays = {False: flat_type(from_dtype(loops.dtype)), True: flat_type(types.boolean)}
    geometry = (types.intp, types.intp, flat_type(types.intp))
    entry: Callable[..., Any] = loop.compile(
        (
            *(geometry if source is nested_source else ()),
            *(types.float64 if k == "s" else arrays[i in bools] for i, k in enumerate(kinds)),
            arrays[loops.result.kind == "b"],
        )
    )
    return entry
