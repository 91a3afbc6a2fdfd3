# tito: event = attention
"""A backend for attention, forward and backward. Write its kernels; what is missing is NumPy's.

What is called is `F.scaled_dot_product_attention`. A method has the name of an op of TinyTorch,
takes float32 arrays and returns a new one: `matmul`, `softmax` and `softmax_backward` are most of
the work. `matmul` has to be there, as NumPy's own is hidden in this division.
"""

import numpy as np
from numba import njit


@njit(fastmath=True)
def multiply(a, b, c):
    for n in range(a.shape[0]):
        for i in range(a.shape[1]):
            for k in range(a.shape[2]):
                for j in range(b.shape[2]):
                    c[n, i, j] += a[n, i, k] * b[n, k, j]


def stacked(x, front):
    """x (..., r, c), repeated to the dimensions in front, as (n, r, c)."""
    matrix = x.shape[-2:]
    return np.ascontiguousarray(np.broadcast_to(x, (*front, *matrix))).reshape(-1, *matrix)


class Attention:
    def matmul(self, a, b):
        front = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left, right = stacked(a, front), stacked(b, front)
        c = np.zeros((len(left), a.shape[-2], b.shape[-1]), np.float32)
        multiply(left, right, c)
        return c.reshape(*front, a.shape[-2], b.shape[-1])
