# tito: event = matmul
"""A matrix product of your own. One class; NumPy (without its products), numba and math are yours.

a is (m, k) and b is (k, n), float32; either may be the transpose of what lies in memory. Return a
new float32 array (m, n). The first call of each dtype and layout compiles; that is not timed.
"""

import numpy as np
from numba import njit


@njit(fastmath=True)
def multiply(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


class Matmul:
    def matmul(self, a, b):
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        multiply(np.ascontiguousarray(a), np.ascontiguousarray(b), c)
        return c
