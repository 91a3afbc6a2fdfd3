"""The tile of a product of codes: a tile of C, in 32 bits, that stays in vector registers.

It is the float tile (`gemm.micro_kernel`) with another multiply-add. There is one size: scratch
memory is as large as whole tiles, so that one loop is compiled and none is masked.
"""

from __future__ import annotations

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.micro_kernel import emit_tile
from tinytorch.backends.optimized.quantized.dots import CODE, CODES_PER_LANE, DotEmitter, products
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import Value, VectorEmitter, memory, vector_intrinsic
from tinytorch.jit.operands import ROWS, SIZE, Rows

_UNIT = host_vector_unit()
LANES = _UNIT.register_bytes // 4
# Words are multiplied first and added then: products need registers, too, where there are 16.
VECTORS, TILE_ROWS = (
    (2, 5)
    if _UNIT.registers < 32
    else (_UNIT.tile_vectors[-1], _UNIT.tile_rows(_UNIT.tile_vectors[-1]))
)
COLUMNS = VECTORS * LANES
SIGNED = np.int8 if CODES_PER_LANE == 4 else np.int16


def _twin(dtype: type, steps: int, a: Rows, b: int, c: Rows) -> None:
    left = memory(CODE, a.address, (TILE_ROWS, steps * CODES_PER_LANE), (a.stride,))
    packed = memory(SIGNED, b, (steps, COLUMNS, CODES_PER_LANE), (4 * COLUMNS, 4))
    right = packed.swapaxes(0, 1).reshape(COLUMNS, steps * CODES_PER_LANE)
    memory(np.int32, c.address, (TILE_ROWS, COLUMNS), (c.stride,))[...] = products(left, right)


@vector_intrinsic(_twin)
def _tile(e: VectorEmitter, steps: Value, a: Rows, b: Value, c: Rows) -> None:
    e = DotEmitter(e.builder, e.dtype, e.register_bytes)
    start, right, to = (e.pointer(address) for address in (a.address, b, c.address))

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        place, right = walk
        row = [e.load(e.at(right, j * e.register_bytes)) for j in range(VECTORS)]
        return place, row, [e.at(place, 4), e.at(right, 4 * COLUMNS)]

    zeros = [e.zeros] * (TILE_ROWS * VECTORS)
    sums = emit_tile(e, steps, a.stride, TILE_ROWS, [start, right], zeros, operands)[2:]
    for i, value in enumerate(sums):
        r, j = divmod(i, VECTORS)
        e.store(value, e.at(e.at(to, e.mul(c.stride, r)), j * e.register_bytes))


@export("tinytorch_byte_tile", types.void(SIZE, ROWS, SIZE, ROWS))
def byte_tile(steps: int, a: Rows, b: int, c: Rows) -> None:
    """C[r, t] = the sum over p of A[r, p] * B[t, p], for TILE_ROWS x COLUMNS elements, in 32 bits.

    Args:
        steps: codes of a row, by CODES_PER_LANE.
        a: codes of the type CODE.
        b: address of B packed: for each step CODES_PER_LANE codes of each column, in 4 bytes.
        c: the result, 32 bits each.
    """
    _tile(np.float32, steps, a, b, c)
