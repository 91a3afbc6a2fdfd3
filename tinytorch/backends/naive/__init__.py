"""`NaiveBackend`: every op as plain Python loops over its definition. The backend to read.

A kernel turns its arrays into lists once, loops over Python numbers, and turns the result back
once. That is about ten times faster than indexing an array element by element, and as easy to read.
It computes in Python's floats (64 bits) and whole numbers (of any size), and rounds or wraps when
it stores. Ops that only move values stay NumPy views.
"""

from __future__ import annotations

import operator
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.backends.naive import alignments, convolution, indexing, pooling
from tinytorch.backends.naive.cost import NaiveCallWarning, warn_if_slow
from tinytorch.backends.naive.lists import lanes, scalar_of, to_array
from tinytorch.dtypes import Array, DType, Shape
from tinytorch.op import Op

__all__ = ["NaiveBackend", "NaiveCallWarning"]

_MASK = (1 << 64) - 1


class NaiveBackend(ComputeBackend):
    """Plain Python loops: fast enough for 8x8 images, and a warning where it is not."""

    trusted = True

    # -- the op's own scalar function, looped ------------------------------------------------------

    def elementwise(self, op: Op, *operands: Any) -> Array:
        """`op.scalar` of every element; operands that are smaller repeat (broadcast).

        Args:
            op: its `scalar` is a function of as many Python numbers as there are operands.
            operands: arrays of one dtype (a condition is bool); or Python numbers, which count as
                an array of that dtype would hold them (`scalar_of`).

        Returns:
            A new array of the common shape, in the operands' common dtype; bool for an op that
            answers with bool, such as `lt`.
        """
        assert op.scalar is not None
        dtype = np.result_type(*operands)
        numbers = [x if isinstance(x, np.ndarray) else scalar_of(x, dtype) for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in numbers))
        columns = [np.broadcast_to(x, shape).ravel().tolist() for x in numbers]
        warn_if_slow(op.name, "elements", len(columns[0]), shape)
        values = list(map(op.scalar, *columns))
        return to_array(values, shape, np.dtype(bool) if answers_bool(op) else dtype)

    def reduction(self, op: Op, a: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        """`op.scalar` folded over the elements along `dims`, from `op.initial` or the first on.

        Args:
            op: its `scalar(so_far, element)` is the new value; `initial` is None if there is none.
            a: of any shape.
            dims: dimensions to reduce, counted from the front; () reduces nothing.
            keepdim: whether they stay, with size 1.

        Returns:
            A new array of a's dtype.
        """
        assert op.scalar is not None
        warn_if_slow(op.name, "elements", a.size, a.shape)
        kept = [d for d in range(a.ndim) if d not in dims]
        shape = tuple(a.shape[d] for d in kept)
        size = int(np.prod([a.shape[d] for d in dims], dtype=np.int64))
        rows = a.transpose(*kept, *dims).reshape(int(np.prod(shape, dtype=np.int64)), size).tolist()
        start = [] if op.initial is None else [op.initial]
        values = [reduce(op.scalar, row, *start) for row in rows]
        if keepdim:
            shape = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        return to_array(values, shape, a.dtype)

    # -- contractions ------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array) -> Array:
        """c[i][j] = sum over k of a[i][k] * b[k][j], for each matrix of the batch.

        Args:
            a: (..., m, k)
            b: (..., k, n), of the same dtype; batch dimensions broadcast.

        Returns:
            A new array (..., m, n).
        """
        (m, k), n = a.shape[-2:], b.shape[-1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = int(np.prod(batch, dtype=np.int64))
        warn_if_slow("matmul", "multiply-adds", count * m * k * n, (*batch, m, k, n))
        lefts = np.broadcast_to(a, (*batch, m, k)).reshape(count, m, k).tolist()
        # transposed, so that a column of b is one list
        rights = np.broadcast_to(b, (*batch, k, n)).swapaxes(-1, -2).reshape(count, n, k).tolist()
        products = [
            [[sum(map(operator.mul, row, column)) for column in columns] for row in rows]
            for rows, columns in zip(lefts, rights, strict=True)
        ]
        return to_array(products, (*batch, m, n), np.result_type(a, b))

    def conv2d(self, x: Array, w: Array, b: Array | None = None, **params: Any) -> Array:
        return convolution.conv2d(x, w, b, **params)

    def conv2d_input(self, g: Array, w: Array, **params: Any) -> Array:
        return convolution.conv2d_input(g, w, **params)

    def conv2d_weight(self, x: Array, g: Array, **params: Any) -> Array:
        return convolution.conv2d_weight(x, g, **params)

    # -- pooling -----------------------------------------------------------------------------------

    def max_pool2d(self, x: Array, **params: Any) -> Array:
        return pooling.max_pool2d(x, **params)

    def max_pool2d_backward(self, g: Array, x: Array, **params: Any) -> Array:
        return pooling.max_pool2d_backward(g, x, **params)

    def max_pool2d_select(self, v: Array, x: Array, **params: Any) -> Array:
        return pooling.max_pool2d_select(v, x, **params)

    def avg_pool2d(self, x: Array, **params: Any) -> Array:
        return pooling.avg_pool2d(x, **params)

    def avg_pool2d_backward(self, g: Array, **params: Any) -> Array:
        return pooling.avg_pool2d_backward(g, **params)

    # -- along one dimension -----------------------------------------------------------------------

    def cumsum(self, a: Array, *, dim: int) -> Array:
        """Each element is the sum of those before it and itself."""
        sums = [list(accumulate(row)) for row in lanes(a, dim)]
        return _from_lanes(sums, a.shape, dim, a.dtype)

    def argmax(self, a: Array, *, dim: int, keepdim: bool) -> Array:
        """The position of the first largest element; NaN counts as larger than all."""
        return self._first_best(a, dim, keepdim, operator.gt)

    def argmin(self, a: Array, *, dim: int, keepdim: bool) -> Array:
        """The position of the first smallest element; NaN counts as smaller than all."""
        return self._first_best(a, dim, keepdim, operator.lt)

    def _first_best(self, a: Array, dim: int, keepdim: bool, better: Any) -> Array:
        places = [[indexing.first_best(row, better)] for row in lanes(a, dim)]
        out = _from_lanes(places, (*a.shape[:dim], 1, *a.shape[dim + 1 :]), dim, np.dtype(np.int64))
        return out if keepdim else out.squeeze(dim)

    def argsort(self, a: Array, *, dim: int, descending: bool) -> Array:
        """Positions in order of their elements; equal elements keep theirs, NaN is largest."""

        def order(row: list[Any]) -> list[int]:
            return sorted(
                range(len(row)), key=lambda i: (row[i] != row[i], row[i]), reverse=descending
            )

        return _from_lanes(list(map(order, lanes(a, dim))), a.shape, dim, np.dtype(np.int64))

    ctc_loss = staticmethod(alignments.ctc_loss)
    ctc_loss_backward = staticmethod(alignments.ctc_loss_backward)

    # -- rows by index, windows, random numbers ----------------------------------------------------

    def take(self, a: Array, index: Array) -> Array:
        return indexing.take(a, index)

    def scatter_add(self, a: Array, index: Array, *, length: int) -> Array:
        return indexing.scatter_add(a, index, length=length)

    def fold(self, a: Array, *, length: int, step: int) -> Array:
        return indexing.fold(a, length=length, step=step)

    def uniform(self, seed: Array, *, shape: Shape, dtype: DType) -> Array:
        """The outputs of SplitMix64 started at `seed`, as numbers in [0, 1).

        Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
        OOPSLA 2014, figure 17.
        """
        size = int(np.prod(shape, dtype=np.int64))
        warn_if_slow("uniform", "elements", size, shape)
        bits = 53 if dtype.name == "float64" else 24  # as many as the type's mantissa holds
        state = int(seed)
        values = []
        for _ in range(size):
            state = (state + 0x9E3779B97F4A7C15) & _MASK
            z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
            z ^= z >> 31
            values.append((z >> (64 - bits)) * 2.0**-bits)
        return to_array(values, shape, dtype.dtype)


def answers_bool(op: Op) -> bool:
    """Comparisons and logic answer bool; every other elementwise op its operands' dtype."""
    assert op.scalar is not None
    return isinstance(op.scalar(*[1] * len(op.inputs)), bool)


def _from_lanes(rows: list[list[Any]], shape: Shape, dim: int, dtype: np.dtype[Any]) -> Array:
    """The array whose `lanes` along `dim` are these."""
    moved = (*shape[:dim], *shape[dim + 1 :], shape[dim])
    return np.ascontiguousarray(np.moveaxis(to_array(rows, moved, dtype), -1, dim))
