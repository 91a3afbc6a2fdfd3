"""The tile of a product of codes: a tile of C, in 32 bits, that stays in vector registers.

It is the float tile (`gemm.micro_kernel`) with another multiply-add. There is one size for each
form of codes: scratch memory is as large as whole tiles, so that one loop is compiled and none is
masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.micro_kernel import emit_tile
from tinytorch.backends.optimized.quantized.dots import (
    OF_BYTES,
    DotEmitter,
    Form,
    form,
    products,
)
from tinytorch.jit.cpu import VectorUnit, host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import Value, VectorEmitter, memory, vector_intrinsic
from tinytorch.jit.operands import ROWS, SIZE, Rows
from tinytorch.shapes_quantized import MOST_DYNAMIC, MOST_STATIC

_UNIT = host_vector_unit()
BLOCK = 64  # columns: a loop of fewer sums takes about as long


def tile_size(form: Form, unit: VectorUnit = _UNIT) -> tuple[int, int]:
    """Rows and vectors of a tile.

    Where there are 16 registers, what takes several instructions needs one for products and one for
    ones; and of two vectors a step, a panel for 2048 columns is in a cache of 32 KiB.
    """
    if unit.registers >= 32:
        vectors = unit.tile_vectors[-1]
        return unit.tile_rows(vectors), vectors
    return unit.tile_rows(2) - (form is not OF_BYTES), 2


def emit_code_tile(
    e: VectorEmitter, form: Form, size: tuple[int, int], steps: Value, a: Rows, b: Value, c: Rows
) -> None:
    """A whole tile of `size`; the operands are those of `CodeTile.run`."""
    rows, vectors = size
    e = DotEmitter(e.builder, e.dtype, e.register_bytes)
    e.form = form
    start, right, to = (e.pointer(address) for address in (a.address, b, c.address))
    nbytes = vectors * e.register_bytes

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        place, right = walk
        row = [e.load(e.at(right, j * e.register_bytes)) for j in range(vectors)]
        return place, row, [e.at(place, 4), e.at(right, nbytes)]

    zeros = [e.zeros] * (rows * vectors)
    sums = emit_tile(e, steps, a.stride, rows, [start, right], zeros, operands)[2:]
    for i, value in enumerate(sums):
        r, j = divmod(i, vectors)
        e.store(value, e.at(e.at(to, e.mul(c.stride, r)), j * e.register_bytes))


class CodeTile(NamedTuple):
    """A tile for one form of codes.

    Attributes:
        form: of its codes.
        rows, columns: its size.
        block_columns: of the tiles side by side whose sums become floats in one loop.
        run: run(steps, a, b, c) computes C[r, t] = the sum over p of A[r, p] * B[t, p] for all of
            its elements, in 32 bits. A row has `steps` codes by `per_lane`; b is the address of B
            packed: for each step `per_lane` codes of each column, in 4 bytes.
    """

    form: Form
    rows: int
    columns: int
    block_columns: int
    run: Callable[[int, Rows, int, Rows], None]


def _make_tile(form: Form) -> CodeTile:
    rows, vectors = size = tile_size(form)
    columns, per_lane = vectors * _UNIT.register_bytes // 4, form.per_lane

    def twin(dtype: type, steps: int, a: Rows, b: int, c: Rows) -> None:
        left = memory(form.code, a.address, (rows, steps * per_lane), (a.stride,))
        packed = memory(form.signed, b, (steps, columns, per_lane), (4 * columns, 4))
        right = packed.swapaxes(0, 1).reshape(columns, steps * per_lane)
        memory(np.int32, c.address, (rows, columns), (c.stride,))[...] = products(left, right)

    @vector_intrinsic(twin)
    def tile(e: VectorEmitter, steps: Value, a: Rows, b: Value, c: Rows) -> None:
        emit_code_tile(e, form, size, steps, a, b, c)

    @export(f"tinytorch_{form.name}_tile", types.void(SIZE, ROWS, SIZE, ROWS))
    def code_tile(steps: int, a: Rows, b: int, c: Rows) -> None:
        tile(np.float32, steps, a, b, c)

    return CodeTile(form, rows, columns, max(1, BLOCK // columns) * columns, code_tile)


DYNAMIC = _make_tile(form(MOST_DYNAMIC))
STATIC = DYNAMIC if form(MOST_STATIC) is DYNAMIC.form else _make_tile(form(MOST_STATIC))
"""Those of rows rounded by their own range, and by one that is given."""
