"""The kernel of a definition for known shapes: arrays for one thread without numba's dispatch.

It holds the interpreter lock. The loop over 2,000 elements takes a tenth of a microsecond, so what
counts is how it is called. The plan knows the dtypes, and one compiled entry serves all shapes;
that arrays are in C order its machine code looks at (`jit.entries.FlatArray`). Where they are not,
but have rows in memory (`x[:, 1:]`), another entry walks along these (`nest.steps_of_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.base import Slice
from tinytorch.backends.optimized.elementwise.loop_text import nested_source, small_source
from tinytorch.backends.optimized.elementwise.loops import Loops, Plan, Scalar, loops_of
from tinytorch.backends.optimized.elementwise.nest import (
    Nest,
    Shape,
    kind_of,
    steps_of_rows,
    steps_of_slices,
)
from tinytorch.backends.reference_elementwise import silence
from tinytorch.dtypes import Array
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import in_order, inverse, order_in_memory, pays_by_tiles
from tinytorch.jit.entries import entry_of, flat_type, memory_type

LAYOUTS = 64  # of the operands of one plan, to remember
MOST_COLUMNS = 48  # of a row so short that its loop costs less than to begin it
WIDE = 512  # numbers of such rows side by side

InPlace = Callable[[Sequence[Any], Array], Array]


def specialize(
    scalar: Scalar,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int] = frozenset(),
    ufunc: Any = None,
) -> Plan:
    """The kernel of a definition for arrays of one dtype and for these shapes only.

    Args:
        dtype: float32 or float64; or int64, where the definition divides nothing.
        shapes: of the operands; None for a Python scalar.
        bools: positions of the operands that are bool.
        ufunc: NumPy's with the same results, bit for bit, if there is one.
    """
    loops = loops_of(scalar, dtype)
    serial = _serial(loops, shapes, bools, ufunc)
    if serial is None:
        return loops.plan(shapes)
    beside = _beside(shapes)
    return serial if beside is None else _side_by_side(loops, shapes, bools, beside, serial)


def loop_along_rows(
    scalar: Scalar,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int],
    slices: Mapping[int, Slice],
) -> Callable[..., Any] | None:
    """The loop along the rows of arrays in C order, some of which are given as what they are cut
    from. It takes operands, then memory for each result, and raises BufferError for another order.

    None where rows are too short, or several threads would share the work.
    """
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    rows = steps_of_slices(shape, shapes, slices)
    if rows is None or math.prod(shape) >= threads.SERIAL_BELOW:
        return None
    kinds, length, geometry = rows
    entry = _entry(loops_of(scalar, dtype), bools, nested_source, kinds)
    return partial(entry, 0, length, geometry)


def specialize_slices(
    scalar: Scalar,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int],
    slices: Mapping[int, Slice],
) -> Plan | None:
    """As `specialize`, of some operands given as the arrays that they are cut from.

    The loop walks along rows of those arrays, so nothing is cut or copied. None where rows are too
    short, or several threads would share the work.

    Args:
        slices: of such operands, by position.
    """
    loop = loop_along_rows(scalar, dtype, shapes, bools, slices)
    if loop is None:
        return None
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    result = loops_of(scalar, dtype).result
    ordinary = cache(partial(specialize, scalar, dtype, shapes, bools))
    empty = buffers.allocator(shape, result)

    def run(*operands: Any) -> Array:
        out = empty(shape, result)
        try:
            loop(*operands, out)
        except BufferError:  # an array is in another order, or not aligned
            cut = [slices[i].of(x) if i in slices else x for i, x in enumerate(operands)]
            found: Array = ordinary()(*cut)
            return found
        return out

    run.gives_arrays = True  # type: ignore[attr-defined]
    return run


def _serial(
    loops: Loops, shapes: tuple[Shape | None, ...], bools: frozenset[int], ufunc: Any
) -> Plan | None:
    """As `loops.plan`, with the least overhead; None for arrays that several threads share.

    Args:
        bools: positions of the operands that are bool; the caller answers for the dtypes.
    """
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    dtype = loops.result
    if math.prod(shape) >= threads.SERIAL_BELOW:
        return None
    kinds, entry = "".join(kind_of(s, shape) for s in shapes), partial(_entry, loops, bools)
    if not {"b", "r"}.isdisjoint(kinds):
        nest = Nest(shape, shapes)
        if nest.kinds is None:
            return None
        given = 0, nest.length, nest.geometry
        loop: Any = partial(entry(nested_source, nest.kinds), *given)
        otherwise = _Reordered(loops, shapes, loop)
    else:
        loop = entry(small_source, kinds)
        otherwise = _Reordered(
            loops, shapes, loop, partial(entry, nested_source, kinds, memory_type), ufunc
        )
    empty = buffers.allocator(shape, dtype)

    def run(*operands: Any) -> Array:
        out = empty(shape, dtype)
        try:
            loop(*operands, out)
        except BufferError:  # in another order, or not aligned
            return otherwise.run(operands, out)
        return out

    # the same for so many operands, without a tuple of them

    def run_two(a: Any, b: Any) -> Array:
        out = empty(shape, dtype)
        try:
            loop(a, b, out)
        except BufferError:
            return otherwise.run((a, b), out)
        return out

    def run_one(a: Any) -> Array:
        out = empty(shape, dtype)
        try:
            loop(a, out)
        except BufferError:
            return otherwise.run((a,), out)
        return out

    by_arity: dict[int, Any] = {1: run_one, 2: run_two}
    found = by_arity.get(len(kinds), run)
    found.gives_arrays = True
    return found


def _beside(shapes: tuple[Shape | None, ...]) -> tuple[int, int] | None:
    """How many rows, of how many columns, a loop takes side by side, where some operands are such a
    short row, and the others have a multiple of them; None where that is not so."""
    whole = np.broadcast_shapes(*(s for s in shapes if s is not None))
    rows = {_without_ones(s) for s in shapes if s is not None and s != whole}
    row = next(iter(rows), ())
    columns = math.prod(row)
    if len(rows) != 1 or row != whole[len(whole) - len(row) :] or not 1 < columns <= MOST_COLUMNS:
        return None
    count = math.prod(whole) // columns
    if whole not in shapes or count * columns < 8 * WIDE:
        return None
    found = [n for n in range(WIDE // columns, 1, -1) if count % n == 0]
    return (found[0], columns) if found else None


def _without_ones(shape: Shape) -> Shape:
    """Without the dimensions of length 1 at the front."""
    first = next((d for d, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def _side_by_side(
    loops: Loops,
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int],
    beside: tuple[int, int],
    otherwise: Plan,
) -> Plan:
    """The plan of rows that are repeated to be as long as several: `_beside`.

    Args:
        otherwise: what runs where an operand is not in C order.
    """
    whole = np.broadcast_shapes(*(s for s in shapes if s is not None))
    length = math.prod(beside)
    wide = math.prod(whole) // length, length
    nest = Nest(
        wide, tuple([None if s is None else wide if s == whole else (length,) for s in shapes])
    )
    assert nest.kinds is not None
    entry = _entry(loops, bools, nested_source, nest.kinds)
    loop = partial(entry, 0, nest.length, nest.geometry)
    rows = frozenset([i for i, s in enumerate(shapes) if s is not None and s != whole])
    dtype = loops.result
    empty = buffers.allocator(whole, dtype)

    def repeated(row: Array) -> Array:
        several = np.empty(beside, row.dtype)
        several[...] = row.reshape(-1)
        return several

    def run(*operands: Any) -> Array:
        out = empty(whole, dtype)
        try:
            loop(*[repeated(x) if i in rows else x for i, x in enumerate(operands)], out)
        except BufferError:
            found: Array = otherwise(*operands)
            return found
        return out

    run.gives_arrays = True  # type: ignore[attr-defined]
    return run


class _Reordered:
    """What runs where operands are not in C order.

    Args:
        loop: takes arrays in C order.
        by_rows: makes the entry that walks along rows in memory; None where operands broadcast.
        ufunc: see `specialize`.
    """

    def __init__(
        self,
        loops: Loops,
        shapes: tuple[Shape | None, ...],
        loop: Callable[..., Any],
        by_rows: Callable[[], Callable[..., Any]] | None = None,
        ufunc: Any = None,
    ) -> None:
        self.loops, self.shapes, self.loop, self.by_rows = loops, shapes, loop, by_rows
        self.ufunc = ufunc
        self.places = [i for i, s in enumerate(shapes) if s is not None]
        self.known: dict[tuple[Any, ...], InPlace | None] = {}

    def run(self, operands: Sequence[Any], out: Array) -> Array:
        """The result, in `out`; of large arrays in the order of the operands."""
        if self.by_rows is not None:
            key = tuple([operands[i].strides for i in self.places])
            try:
                in_place = self.known[key]
            except KeyError:
                in_place = self._remember(key, operands, out)
            if in_place is not None:
                try:
                    return in_place(operands, out)
                except BufferError:  # not aligned
                    pass
        if out.nbytes >= buffers.POOLED_FROM:
            loops = self.loops
            return (loops.plans.get(self.shapes) or loops.plan(self.shapes))(*operands)
        self.loop(*[in_order(x) if isinstance(x, np.ndarray) else x for x in operands], out)
        return out

    def _remember(
        self, key: tuple[Any, ...], operands: Sequence[Any], out: Array
    ) -> InPlace | None:
        if len(self.known) >= LAYOUTS:
            self.known.clear()
        found = self._in_place([operands[i] for i in self.places], out)
        self.known[key] = found
        return found

    def _in_place(self, arrays: Sequence[Array], out: Array) -> InPlace | None:
        """What reads operands with such strides where they are; None if they are to be copied."""
        assert self.by_rows is not None
        rows = steps_of_rows(out.shape, arrays, self.places, len(self.shapes))
        if rows is not None:
            return _by_rows(self.by_rows(), rows)
        if out.nbytes < buffers.POOLED_FROM:  # a program copies a small view to C order as well
            return None
        order = order_in_memory(arrays)
        if order is not None:
            return _turned(self.loop, order, out.shape)
        if self.ufunc is None:
            return None
        # numbers apart, such as x[..., ::2], uncopied
        return None if any(map(pays_by_tiles, arrays)) else _by_numpy(self.ufunc)


def _by_rows(entry: Callable[..., Any], rows: tuple[int, Array]) -> InPlace:
    length, geometry = rows

    def run(operands: Sequence[Any], out: Array) -> Array:
        entry(0, length, geometry, *operands, out)
        return out

    return run


def _by_numpy(ufunc: Any) -> InPlace:
    def run(operands: Sequence[Any], out: Array) -> Array:
        silence.run(partial(ufunc, *operands, out))
        return out

    return run


def _turned(loop: Callable[..., Any], order: tuple[int, ...], shape: Shape) -> InPlace:
    """The result in the order of memory of the operands."""
    turned, back = tuple([shape[d] for d in order]), inverse(order)

    def run(operands: Sequence[Any], out: Array) -> Array:
        result = out.reshape(turned)
        loop(*[x.transpose(order) if isinstance(x, np.ndarray) else x for x in operands], result)
        return result.transpose(back)

    return run


def _entry(
    loops: Loops,
    bools: frozenset[int],
    source: Callable[..., str],
    kinds: str,
    type_of: Callable[[Any], Any] = flat_type,
) -> Callable[..., Any]:
    """A small loop, called without numba's dispatch."""
    arrays = {False: type_of(from_dtype(loops.dtype)), True: type_of(types.boolean)}
    geometry = (types.intp, types.intp, flat_type(types.intp))
    number = types.int64 if loops.dtype.kind == "i" else types.float64
    return entry_of(
        loops.loop(source, kinds, is_small=True),
        (
            *(geometry if source is nested_source else ()),
            *(number if k == "s" else arrays[i in bools] for i, k in enumerate(kinds)),
            *[flat_type(from_dtype(loops.result))] * loops.results,
        ),
    )
