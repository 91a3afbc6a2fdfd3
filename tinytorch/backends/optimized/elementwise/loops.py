"""Elementwise kernels, generated from the scalar definitions of the op table.

A kernel is a loop around the compiled definition (`scalars.py`). The kinds of operands decide which
loop is generated (`loop_text.py`):

    same shape       one loop over all elements
    small            the same, called with the least overhead (`specialized.py`)
    with a bias      two nested loops, over the rows of a matrix and along them
    broadcasting     three nested loops: dimensions in which the same operands repeat are taken
                     together, so (n, c, h, w) + (c, 1, 1) runs over n, c and h w
    rows of larger   the same three loops, with steps from row to row: slices need no copy
    anything else    operands are written out in full first

Each loop is compiled when first needed, serial and, for large arrays, for several threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import prange

from tinytorch.backends.optimized.elementwise.loop_text import (
    flat_source,
    matrix_source,
    nested_parallel_source,
    nested_source,
)
from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.elementwise.nest import (
    Nest,
    Shape,
    kind_of,
    steps_of_rows,
    without_repeats,
)
from tinytorch.backends.optimized.elementwise.scalars import compile_scalar, limits_of
from tinytorch.dtypes import Array
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import contiguous, inverse, order_of_strides
from tinytorch.jit.library import compile_source
from tinytorch.jit.parallel import shared
from tinytorch.jit.views import memory_of
from tinytorch.program import Program

Scalar = Callable[..., Any] | Program

MOST_DIMENSIONS = 2  # arrays of more are flattened, so that fewer versions are compiled
PLANS = 4096  # combinations of shapes to remember

Plan = Callable[..., Array]


class Loops:
    """The compiled loops of one definition for one dtype, and what to run for which shapes."""

    def __init__(self, scalar: Scalar, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        is_bool = isinstance(scalar, Program) and scalar.is_bool
        self.result = np.dtype(bool) if is_bool else dtype
        self.results = len(scalar.results) if isinstance(scalar, Program) else 1
        self.plans: dict[tuple[Shape | None, ...], Plan] = {}
        self._definition = scalar
        self._compiled: dict[tuple[Callable[..., str], str, bool], Callable[..., Any]] = {}
        self._shared: dict[Callable[..., Any], Callable[..., None]] = {}

    def loop(
        self,
        source: Callable[..., str],
        kinds: str,
        is_small: bool = False,
        **others: Any,
    ) -> Callable[..., Any]:
        """The loop that `source` writes for operands of these kinds; `others` are its globals."""
        # and not the text: that of parallel loops says nothing of the kinds
        key = source, kinds, is_small
        if key not in self._compiled:
            limits = limits_of(self._definition)
            several = (self.results,) if self.results > 1 else ()
            text = source(kinds, limits is not None, *several)
            name = text[len("def ") : text.index("(")]
            names: dict[str, Any] = {"real": self.dtype.type, "prange": prange, **others}
            if name == "nested_parallel":
                names["nested"] = self.loop(nested_source, kinds)
            else:
                names["scalar"] = compile_scalar(self._definition, self.dtype.type)
                if limits is not None:
                    names["fits"] = compile_scalar(limits, self.dtype.type)
                    names["anywhere"] = compile_scalar(
                        self._definition, self.dtype.type, is_limited=False
                    )
            parallel = name.endswith("_parallel")
            options = {"nogil": False, "refcounts": False} if is_small else {}
            self._compiled[key] = compile_source(
                name, text, names, fastmath=EXACT, parallel=parallel, **options
            )
        return self._compiled[key]

    def plan(self, shapes: tuple[Shape | None, ...]) -> Plan:
        """What to run for operands of these shapes; None stands for a Python scalar."""
        out = np.broadcast_shapes(*(s for s in shapes if s is not None))
        kinds = "".join(kind_of(s, out) for s in shapes)
        is_small = math.prod(out) < threads.SERIAL_BELOW and len(out) <= MOST_DIMENSIONS
        if "r" in kinds:
            nest = Nest(out, shapes)
            if nest.kinds is None:
                plan = self._written_out(out, len(shapes))
            else:
                plan = self._nested(out, nest)
        else:
            loop = self.loop(matrix_source if "b" in kinds else flat_source, kinds)
            plan = self._general(out, loop) if is_small else self._large(out, loop, kinds)
        if math.prod(out) * self.result.itemsize >= buffers.POOLED_FROM and out in shapes:
            plan = self._along_memory(out, shapes, plan)
        if len(self.plans) >= PLANS:
            self.plans.clear()
        self.plans[shapes] = plan
        return plan

    def _general(self, shape: Shape, loop: Callable[..., Any]) -> Plan:
        """For arrays of any layout on one thread."""
        dtype = self.result

        def run(*operands: Any) -> Array:
            out = np.empty(shape, dtype)
            loop(*operands, out)
            return out

        return run

    def _large(self, shape: Shape, loop: Callable[..., Any], kinds: str) -> Plan:
        """On several threads where that pays, and for arrays of more dimensions: flattened."""
        size, dtype = math.prod(shape), self.result
        lengths = shape if "b" in kinds else (size,)
        parameters = "".join(f"x{i}[:], " if k == "v" else f"x{i}, " for i, k in enumerate(kinds))
        places = [i for i, kind in enumerate(kinds) if kind == "v"]
        may_have_rows = "b" not in kinds and size * dtype.itemsize >= buffers.POOLED_FROM
        run_shared = self._shared.setdefault(loop, shared(loop, parameters + "out[:]"))

        def run(*operands: Any) -> Array:
            arrays = [operands[i] for i in places]
            if may_have_rows and not all(x.flags.c_contiguous for x in arrays):
                rows = steps_of_rows(shape, arrays, places, len(kinds))
                if rows is not None:
                    flat = [
                        memory_of(x) if k == "v" else x
                        for x, k in zip(operands, kinds, strict=True)
                    ]
                    return self._run_nested(shape, kinds, *rows, flat)
            out = buffers.empty(shape, dtype)
            ordered = [
                contiguous(x).reshape(lengths) if k == "v" else x
                for x, k in zip(operands, kinds, strict=True)
            ]
            run_shared(size, *ordered, out.reshape(lengths))
            return out

        return run

    def _nested(self, shape: Shape, nest: Nest) -> Plan:
        kinds, length, geometry = nest.kinds or "", nest.length, nest.geometry
        self.loop(nested_source, kinds)

        def run(*operands: Any) -> Array:
            once = without_repeats(operands, shape)
            if once is not None:
                key = tuple([x.shape if isinstance(x, np.ndarray) else None for x in once])
                return (self.plans.get(key) or self.plan(key))(*once)
            flat = [
                x if k == "s" else contiguous(x).reshape(-1)
                for x, k in zip(operands, kinds, strict=True)
            ]
            return self._run_nested(shape, kinds, length, geometry, flat)

        return run

    def _run_nested(
        self, shape: Shape, kinds: str, length: int, geometry: Array, flat: Sequence[Any]
    ) -> Array:
        """Three nested loops over flat operands, the outermost of `length` shared by threads."""
        out, serial = buffers.empty(shape, self.result), self.loop(nested_source, kinds)
        count = min(threads.threads_for(out.size), length)
        parallel = serial if count == 1 else self.loop(nested_parallel_source, kinds)
        threads.run_parallel(parallel, serial, count, 0, length, geometry, *flat, out.reshape(-1))
        return out

    def _along_memory(self, shape: Shape, shapes: tuple[Shape | None, ...], plan: Plan) -> Plan:
        """The plan, but large arrays in the order of their memory, and the result stored in it."""
        whole = [i for i, s in enumerate(shapes) if s == shape]

        def run(*operands: Any) -> Array:
            order = order_of_strides([operands[i] for i in whole])
            if order is None:
                return plan(*operands)
            turned = [
                x if s is None else x[(None,) * (len(shape) - len(s))].transpose(order)
                for x, s in zip(operands, shapes, strict=True)
            ]
            key = tuple(None if s is None else x.shape for x, s in zip(turned, shapes, strict=True))
            return (self.plans.get(key) or self.plan(key))(*turned).transpose(inverse(order))

        return run

    def _written_out(self, shape: Shape, arity: int) -> Plan:
        kinds = "v" * arity
        flat = self._large(shape, self.loop(flat_source, kinds), kinds)
        return lambda *operands: flat(*(contiguous(np.broadcast_to(x, shape)) for x in operands))


# -- calling ---------------------------------------------------------------------------------------


@cache
def loops_of(scalar: Scalar, dtype: np.dtype[Any]) -> Loops:
    """The loops of one definition for one dtype."""
    return Loops(scalar, dtype)


def compile_elementwise(
    scalar: Callable[..., Any], otherwise: Callable[..., Array] | None = None
) -> Callable[..., Array]:
    """The kernel of a scalar definition: a function of arrays, which broadcast, and Python scalars.

    All arrays are float32, or all float64 (one that the definition uses as a condition may be
    bool); the result is of the same dtype.

        fused = compile_elementwise(bias_relu)     # def bias_relu(x, b): return max(x + b, 0)
        y = fused(x, b)

    Args:
        scalar: plain Python on numbers, see `scalars.py`.
        otherwise: what to call for arrays of other dtypes.

    Raises:
        TypeError: arrays of another dtype and no `otherwise`.
    """
    by_dtype = {d: loops_of(scalar, d) for d in (np.dtype(np.float32), np.dtype(np.float64))}
    name = getattr(scalar, "__name__", "elementwise")

    def refuse(*operands: Any) -> Array:
        dtypes = ", ".join(str(getattr(x, "dtype", type(x).__name__)) for x in operands)
        raise TypeError(f"{name} is compiled for float32 or float64 arrays, not for {dtypes}")

    otherwise = otherwise or refuse

    def unary(a: Any) -> Array:
        loops = by_dtype.get(a.dtype)
        if loops is None:
            return otherwise(a)
        key = (a.shape,)
        return (loops.plans.get(key) or loops.plan(key))(a)

    def binary(a: Any, b: Any) -> Array:
        shape_a = a.shape if type(a) is np.ndarray else None
        shape_b = b.shape if type(b) is np.ndarray else None
        loops = by_dtype.get((a if shape_b is None else b).dtype)
        if loops is None:
            return otherwise(a, b)
        key = (shape_a, shape_b)
        return (loops.plans.get(key) or loops.plan(key))(a, b)

    def nary(*operands: Any) -> Array:
        dtype = None
        for x in operands:  # the last one counts: the first of `where` is bool
            if isinstance(x, np.ndarray):
                dtype = x.dtype
        loops = by_dtype.get(dtype) if dtype is not None else None
        if loops is None:
            return otherwise(*operands)
        key = tuple([x.shape if isinstance(x, np.ndarray) else None for x in operands])
        return (loops.plans.get(key) or loops.plan(key))(*operands)

    if scalar.__code__.co_argcount == 1:
        return unary
    return binary if scalar.__code__.co_argcount == 2 else nary
