# tito: event = matmul_parallel
"""A matrix product on all cores. One class; NumPy (without its products), numba and math are yours.

a is (m, k) and b is (k, n), float32; either may be the transpose of what lies in memory. Return a
new float32 array (m, n). Wall time counts: rows of c are shared out among the cores, and the
slowest one is waited for. With few rows there are not many to share out.
"""

import numpy as np
from numba import njit, prange


@njit(fastmath=True, parallel=True)
def multiply(a, b, c):
    for i in prange(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


class Matmul:
    def matmul(self, a, b):
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        multiply(np.ascontiguousarray(a), np.ascontiguousarray(b), c)
        return c
