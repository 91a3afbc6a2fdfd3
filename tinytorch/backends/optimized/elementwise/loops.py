"""Elementwise kernels, generated from the scalar definitions of the op table.

A kernel is a loop around the compiled definition (`scalars.py`). The kinds of operands decide which
loop is generated: an array walked along ("v", a vector of the register's width at a time), a number
that stays the same throughout ("s", a Python scalar), and, where operands broadcast, a row that is
walked along again in each row ("b", a bias) and an array of which one element serves a whole row
("r").

    same shape       one loop over all elements
    small            the same, called without numba's dispatch and with the interpreter lock held
    with a bias      two nested loops, over the rows of a matrix and along them
    broadcasting     three nested loops: dimensions in which the same operands repeat are taken
                     together, so (n, c, h, w) + (c, 1, 1) runs over n, c and h w
    anything else    operands are written out in full first

Each loop is compiled when first needed, serial and, for large arrays, for several threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numba import prange, types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.elementwise.scalars import compile_scalar, limits_of
from tinytorch.dtypes import Array
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import contiguous, inverse, order_in_memory
from tinytorch.jit.entries import flat_type
from tinytorch.jit.library import JIT, compile_source
from tinytorch.jit.parallel import shared
from tinytorch.program import Program

Scalar = Callable[..., Any] | Program
Shape = tuple[int, ...]

LOOPS = 3  # nested loops of a broadcasting kernel
MOST_DIMENSIONS = 2  # arrays of more are flattened, so that fewer versions are compiled
PLANS = 4096  # combinations of shapes to remember


BLOCK = 256  # elements whose arguments are looked at together


# -- source of the loops ---------------------------------------------------------------------------


def each(indent: int, count: str, target: str, operands: list[str], is_limited: bool) -> list[str]:
    """The innermost loop, over vectors (names that end in `[]`) and numbers.

    Where the definition is limited, `fits` is asked about each block first, and a block in which it
    says no is left to `anywhere`, the definition by the C library.
    """

    def call(function: str, suffix: str = "") -> str:
        return f"{function}({', '.join(o.replace('[]', f'{suffix}[k]') for o in operands)})"

    if not is_limited:
        lines = [f"for k in range({count}):", f"    {target}[k] = {call('scalar')}"]
    else:
        vectors = dict.fromkeys([target, *(o[:-2] for o in operands if o.endswith("[]"))])
        lines = [f"for begin in range(0, {count}, {BLOCK}):"]
        lines += [f"    {name}_part = {name}[begin : begin + {BLOCK}]" for name in vectors]
        each = f"for k in range({target}_part.size):"
        lines += ["    fit = True", f"    {each}", f"        fit &= {call('fits', '_part')}"]
        for test, function in (("if fit:", "scalar"), ("else:", "anywhere")):
            lines += [f"    {test}", f"        {each}"]
            lines += [f"            {target}_part[k] = {call(function, '_part')}"]
    return [" " * indent + line for line in lines]


def _small_source(kinds: str, is_limited: bool) -> str:
    """A loop over all elements of flat arrays."""
    lines = [f"def small({_names(kinds)}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    operands = [f"x{i}[]" if kind == "v" else f"v{i}" for i, kind in enumerate(kinds)]
    return "\n".join([*lines, *each(4, "out.size", "out", operands, is_limited), ""])


def _flat_source(kinds: str, is_limited: bool) -> str:
    """A loop over all elements; arrays of any number of dimensions."""
    names = [f"x{i}" for i in range(len(kinds))]
    arrays = [n for n, kind in zip(names, kinds, strict=True) if kind == "v"]
    lines = [f"def flat({', '.join(names)}, out):"]
    lines += [f"    {n}_ = {n}.ravel()" for n in (*arrays, "out")]
    lines += [f"    {n}_ = real({n})" for n in names if n not in arrays]
    operands = [f"{n}_[]" if n in arrays else f"{n}_" for n in names]
    lines += each(4, "out_.size", "out_", operands, is_limited)
    return "\n".join(lines) + "\n"


def _matrix_source(kinds: str, is_limited: bool) -> str:
    """Two loops over a matrix; an operand is a matrix, a row that all rows use, or a number."""
    lines = [f"def matrix({_names(kinds)}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    lines += [f"    v{i} = x{i}" for i, kind in enumerate(kinds) if kind == "b"]
    lines += ["    for i in range(out.shape[0]):", "        row = out[i]"]
    lines += [f"        v{i} = x{i}[i]" for i, kind in enumerate(kinds) if kind == "v"]
    operands = [f"v{i}" if kind == "s" else f"v{i}[]" for i, kind in enumerate(kinds)]
    lines += each(8, "row.size", "row", operands, is_limited)
    return "\n".join(lines) + "\n"


def _nested_source(kinds: str, is_limited: bool) -> str:
    """Three nested loops, the outermost over `first:last`; flat arrays.

    `geometry` holds the lengths of the two inner loops, then for each operand its steps in the two
    outer ones (unused for a number): one array costs less to pass than many integers.
    """
    lines = [
        f"def nested(first, last, geometry, {_names(kinds)}, out):",
        "    rows, columns = geometry[0], geometry[1]",
    ]
    for i, kind in enumerate(kinds):
        j = 2 + 2 * i
        lines.append(
            f"    v{i} = real(x{i})"
            if kind == "s"
            else f"    outer{i}, inner{i} = geometry[{j}], geometry[{j + 1}]"
        )
    lines += ["    for a in range(first, last):", "        for b in range(rows):"]
    operands = []
    for i, kind in enumerate(kinds):
        operands.append(f"v{i}[]" if kind == "v" else f"v{i}")
        if kind != "s":
            lines.append(f"            p{i} = a * outer{i} + b * inner{i}")
        if kind == "v":
            lines.append(f"            v{i} = x{i}[p{i} : p{i} + columns]")
        elif kind == "r":
            lines.append(f"            v{i} = x{i}[p{i}]")
    lines += [
        "            p = (a * rows + b) * columns",
        "            row = out[p : p + columns]",
        *each(12, "columns", "row", operands, is_limited),
    ]
    return "\n".join(lines) + "\n"


def _nested_parallel_source(kinds: str, is_limited: bool) -> str:
    return (
        f"def nested_parallel(threads, first, last, geometry, {_names(kinds)}, out):\n"
        "    for t in prange(threads):\n"
        "        a, b = last * t // threads, last * (t + 1) // threads\n"
        f"        nested(a, b, geometry, {_names(kinds)}, out)\n"
    )


def _names(kinds: str) -> str:
    return ", ".join(f"x{i}" for i in range(len(kinds)))


# -- which loop ------------------------------------------------------------------------------------


def _kind(shape: Shape | None, out: Shape) -> str:
    """Which letter an operand has, as far as its own shape tells."""
    if shape is None:
        return "s"
    return "v" if shape == out else "b" if len(out) == 2 and shape == out[1:] else "r"


class _Nest:
    """How three nested loops run over C-contiguous operands that broadcast.

    Args:
        out: shape of the result.
        shapes: of the operands; None for a Python scalar.

    Attributes:
        kinds: a letter for each operand; None if three loops do not suffice.
        length: of the outermost loop.
        geometry: see `_nested_source`.
    """

    def __init__(self, out: Shape, shapes: tuple[Shape | None, ...]) -> None:
        arrays = [(1,) * (len(out) - len(s)) + s for s in shapes if s is not None]
        groups: list[tuple[int, tuple[bool, ...]]] = []  # length, and which arrays have it
        for size, *theirs in zip(out, *arrays, strict=True):
            present = tuple(length == size for length in theirs)
            if groups and groups[-1][1] == present:
                groups[-1] = (groups[-1][0] * size, present)
            elif size != 1:
                groups.append((size, present))
        self.kinds: str | None = None
        if len(groups) > LOOPS:
            return
        everywhere = tuple(True for _ in arrays)
        missing = LOOPS - len(groups)
        # a single outer loop becomes the outermost, the one that threads share
        groups[len(groups) - 1 : 0] = [(1, everywhere)] * missing if groups else []
        groups = groups or [(1, everywhere)] * LOOPS
        self.length = groups[0][0]
        self.kinds, geometry, array = "", [groups[1][0], groups[2][0]], 0
        for shape in shapes:
            if shape is None:
                self.kinds += "s"
                geometry += [0, 0]
                continue
            rows, columns = (length if here[array] else 1 for length, here in groups[1:])
            geometry += [rows * columns * groups[0][1][array], columns * groups[1][1][array]]
            self.kinds += "v" if groups[2][1][array] else "r"
            array += 1
        self.geometry = np.array(geometry, np.int64)


Plan = Callable[..., Array]


class _Loops:
    """The compiled loops of one definition for one dtype, and what to run for which shapes."""

    def __init__(self, scalar: Scalar, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        is_bool = isinstance(scalar, Program) and scalar.is_bool
        self.result = np.dtype(bool) if is_bool else dtype
        self.plans: dict[tuple[Shape | None, ...], Plan] = {}
        self._definition = scalar
        self._compiled: dict[tuple[Callable[..., str], str, bool], Callable[..., Any]] = {}
        self._shared: dict[Callable[..., Any], Callable[..., None]] = {}

    def loop(
        self,
        source: Callable[[str, bool], str],
        kinds: str,
        is_small: bool = False,
        **others: Any,
    ) -> Callable[..., Any]:
        """The loop that `source` writes for operands of these kinds; `others` are its globals."""
        # and not the text: that of parallel loops says nothing of the kinds
        key = source, kinds, is_small
        if key not in self._compiled:
            limits = limits_of(self._definition)
            text = source(kinds, limits is not None)
            name = text[len("def ") : text.index("(")]
            names: dict[str, Any] = {"real": self.dtype.type, "prange": prange, **others}
            if name == "nested_parallel":
                names["nested"] = self.loop(_nested_source, kinds)
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
        kinds = "".join(_kind(s, out) for s in shapes)
        is_small = math.prod(out) < threads.SERIAL_BELOW and len(out) <= MOST_DIMENSIONS
        if "r" in kinds:
            nest = _Nest(out, shapes)
            plan = (
                self._written_out(out, len(shapes))
                if nest.kinds is None
                else self._nested(out, nest)
            )
        else:
            loop = self.loop(_matrix_source if "b" in kinds else _flat_source, kinds)
            plan = self._general(out, loop) if is_small else self._large(out, loop, kinds)
        if len(self.plans) >= PLANS:
            self.plans.clear()
        self.plans[shapes] = plan
        return plan

    def small(self, shapes: tuple[Shape | None, ...], bools: frozenset[int]) -> Plan | None:
        """As `plan` for small arrays in C order, with the least overhead; None for large ones.

        Args:
            bools: positions of the operands that are bool; the caller answers for the dtypes.
        """
        shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
        dtype = self.result
        if math.prod(shape) * dtype.itemsize >= buffers.POOLED_FROM:
            return None
        kinds, entry = "".join(_kind(s, shape) for s in shapes), partial(self._entry, bools)
        if not {"b", "r"}.isdisjoint(kinds):
            nest = _Nest(shape, shapes)
            if nest.kinds is None:
                return None
            given = 0, nest.length, nest.geometry
            loop: Any = partial(entry(_nested_source, nest.kinds), *given)
        else:
            loop = entry(_small_source, kinds)

        def run(*operands: Any) -> Array:
            out = np.empty(shape, dtype)
            try:
                loop(*operands, out)
            except BufferError:  # in another order
                return self.plan(shapes)(*operands)
            return out

        def run_two(a: Any, b: Any) -> Array:
            out = np.empty(shape, dtype)
            try:
                loop(a, b, out)
            except BufferError:
                return self.plan(shapes)(a, b)
            return out

        def run_one(a: Any) -> Array:
            out = np.empty(shape, dtype)
            try:
                loop(a, out)
            except BufferError:
                return self.plan(shapes)(a)
            return out

        by_arity: dict[int, Any] = {1: run_one, 2: run_two}
        found = by_arity.get(len(kinds), run)
        found.gives_arrays = True
        return found

    def _entry(
        self, bools: frozenset[int], source: Callable[[str, bool], str], kinds: str
    ) -> Callable[..., Any]:
        loop: Any = self.loop(source, kinds, is_small=True)
        if not JIT:
            return loop
        arrays = {False: flat_type(from_dtype(self.dtype)), True: flat_type(types.boolean)}
        geometry = (types.intp, types.intp, flat_type(types.intp))
        entry: Callable[..., Any] = loop.compile(
            (
                *(geometry if source is _nested_source else ()),
                *(types.float64 if k == "s" else arrays[i in bools] for i, k in enumerate(kinds)),
                arrays[self.result.kind == "b"],
            )
        )
        return entry

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
        may_turn = "b" not in kinds and size * dtype.itemsize >= buffers.POOLED_FROM
        run_shared = self._shared.setdefault(loop, shared(loop, parameters + "out[:]"))

        def run(*operands: Any) -> Array:
            if may_turn and (order := order_in_memory([operands[i] for i in places])):
                # along memory; the result is stored in the same way
                turned = list(operands)
                for i in places:
                    turned[i] = turned[i].transpose(order)
                return in_order(tuple(shape[d] for d in order), turned).transpose(inverse(order))
            return in_order(shape, operands)

        def in_order(shape: Shape, operands: Sequence[Any]) -> Array:
            out = buffers.empty(shape, dtype)
            arrays = [
                contiguous(x).reshape(lengths) if k == "v" else x
                for x, k in zip(operands, kinds, strict=True)
            ]
            run_shared(size, *arrays, out.reshape(lengths))
            return out

        return run

    def _nested(self, shape: Shape, nest: _Nest) -> Plan:
        kinds, length, geometry = nest.kinds or "", nest.length, nest.geometry
        serial, size = self.loop(_nested_source, kinds), math.prod(shape)

        def run(*operands: Any) -> Array:
            out = buffers.empty(shape, dtype)
            flat = [
                x if k == "s" else contiguous(x).reshape(-1)
                for x, k in zip(operands, kinds, strict=True)
            ]
            count = min(threads.threads_for(size), length)
            parallel = serial if count == 1 else self.loop(_nested_parallel_source, kinds)
            threads.run_parallel(
                parallel, serial, count, 0, length, geometry, *flat, out.reshape(-1)
            )
            return out

        dtype = self.result
        return run

    def _written_out(self, shape: Shape, arity: int) -> Plan:
        kinds = "v" * arity
        flat = self._large(shape, self.loop(_flat_source, kinds), kinds)
        return lambda *operands: flat(*(contiguous(np.broadcast_to(x, shape)) for x in operands))


# -- calling ---------------------------------------------------------------------------------------


@cache
def loops_of(scalar: Scalar, dtype: np.dtype[Any]) -> _Loops:
    """The loops of one definition for one dtype."""
    return _Loops(scalar, dtype)


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
    return loops.small(shapes, bools) or loops.plan(shapes)


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
