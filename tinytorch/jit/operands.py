"""Operands of kernels that work on addresses: where one is, and how far apart its elements are.

All are records of int64, with strides in bytes, so any layout (transposed, reversed, broadcast,
unaligned) is just a number. A record with address 0 is no operand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types

Int = Any  # an int; a value of LLVM where instructions are emitted

SIZE = types.intp


class Rows(NamedTuple):
    """Rows of adjacent elements."""

    address: Int
    stride: Int  # from row to row; 0 repeats one row


class Matrix(NamedTuple):
    """A matrix with any strides."""

    address: Int
    row: Int  # from row to row
    column: Int  # from column to column


class Stack(NamedTuple):
    """Matrices at equal distances, whose rows are adjacent elements."""

    address: Int
    stride: Int  # from row to row
    step: Int  # from matrix to matrix


NOWHERE = Rows(0, 0)
"""No operand: what a sum that starts from zero starts from."""

NOTHING = Stack(0, 0, 0)
"""No matrices: what is asked for ahead where nobody knows what comes next."""

_record: Any = types.NamedUniTuple
ROWS, MATRIX, STACK = (_record(SIZE, len(kind._fields), kind) for kind in (Rows, Matrix, Stack))
"""Numba's types of these, for signatures."""
