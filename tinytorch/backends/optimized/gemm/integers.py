"""The product of matrices of int64 whose sums float64 may not have, which no BLAS has.

A row of C takes in eight rows of B at a time, so it is read and written once for eight products of
each element; those rows of B stay in L1 while the rows of a block of C, which stays in L2, pass by.
Sums wrap around, as NumPy's.
"""

from __future__ import annotations

import math

import numpy as np

from tinytorch.backends import reference
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

COLUMNS = 256  # of B at a time: eight rows of them are 16 KiB
ROWS = 64  # of C at a time: 128 KiB
FEWEST = 8  # columns that are worth vectors


@kernel
def _product(a: Array, b: Array, out: Array) -> None:
    (m, k), n = a.shape, b.shape[1]
    out[:] = 0
    for left in range(0, n, COLUMNS):
        right = min(left + COLUMNS, n)
        for top in range(0, m, ROWS):
            bottom = min(top + ROWS, m)
            for p in range(0, k - 7, 8):
                rows = b[p : p + 8, left:right]
                b0, b1, b2, b3 = rows[0], rows[1], rows[2], rows[3]
                b4, b5, b6, b7 = rows[4], rows[5], rows[6], rows[7]
                for i in range(top, bottom):
                    c, few = out[i, left:right], a[i, p : p + 8]
                    a0, a1, a2, a3 = few[0], few[1], few[2], few[3]
                    a4, a5, a6, a7 = few[4], few[5], few[6], few[7]
                    for j in range(c.size):
                        low = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]
                        high = a4 * b4[j] + a5 * b5[j] + a6 * b6[j] + a7 * b7[j]
                        c[j] += low + high
            for p in range(k // 8 * 8, k):
                for i in range(top, bottom):
                    c, one, row = out[i, left:right], a[i, p], b[p, left:right]
                    for j in range(c.size):
                        c[j] += one * row[j]


@kernel
def _products(a: Array, b: Array, out: Array) -> None:
    for i in range(a.shape[0]):
        _product(a[i], b[i], out[i])


_of_two, _of_batch = shared(_product, "a[:], b, out[:]"), shared(_products, "a[:], b[:], out[:]")


def matmul(a: Array, b: Array) -> Array:
    """a @ b of int64 over the last two dimensions; the dimensions before them broadcast.

    Args:
        a: (..., m, k), any strides.
        b: (..., k, n).

    Returns:
        (..., m, n).
    """
    m, k, n = *a.shape[-2:], b.shape[-1]
    if n < FEWEST:
        return reference.matmul(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    out = buffers.empty((*batch, m, n), a.dtype)
    if not out.size:
        return out
    if b.ndim == 2:  # one tall matrix
        tall = contiguous(a).reshape(count * m, k)
        _of_two(out.size * k, tall, contiguous(b), out.reshape(count * m, n))
        return out
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    a, b = (contiguous(x).reshape(count, *x.shape[-2:]) for x in (a, b))
    _of_batch(out.size * k, a, b, out.reshape(count, m, n))
    return out
