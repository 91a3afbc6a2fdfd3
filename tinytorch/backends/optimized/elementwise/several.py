"""A loop with several results: what their definitions have in common is read and computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinytorch.backends.base import Slice
from tinytorch.backends.optimized.elementwise.nest import Shape
from tinytorch.backends.optimized.elementwise.specialized import loop_along_rows, specialize
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import in_order
from tinytorch.program import Program

Several = Callable[..., tuple[Array, ...]]


def specialize_several(
    program: Program,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int],
    slices: Mapping[int, Slice],
) -> Several | None:
    """As `specialized.specialize_slices`, for a program with several results, and perhaps without
    slices."""
    loop = loop_along_rows(program, dtype, shapes, bools, slices)
    if loop is None:
        return None
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    empty, each = buffers.allocator(shape, dtype), range(len(program.results))

    def run(*operands: Any) -> tuple[Array, ...]:
        outs = tuple([empty(shape, dtype) for _ in each])
        try:
            loop(*operands, *outs)
        except BufferError:  # an array is in another order, or not aligned
            loop(*[in_order(x) if isinstance(x, np.ndarray) else x for x in operands], *outs)
        return outs

    return run


def one_by_one(
    program: Program,
    dtype: np.dtype[Any],
    shapes: tuple[Shape | None, ...],
    bools: frozenset[int],
) -> Several:
    """A loop for each result of a program, where one of all would be none of ours."""
    programs = [Program(program.inputs, program.steps, name, False) for name in program.results]
    kernels = [specialize(each, dtype, shapes, bools) for each in programs]
    return lambda *operands: tuple([kernel(*operands) for kernel in kernels])
