# tito: event = attention
"""A backend for attention, forward and backward. Write its kernels; what is missing is NumPy's.

A method has the name of an op of TinyTorch, takes float32 arrays and returns a new one. The whole
of it is two ops, which are called where a class has them:

    scaled_dot_product_attention(query, key, value, *, is_causal, scale, dropout_p)
    scaled_dot_product_attention_backward(grad, query, key, value, *, is_causal, scale, dropout_p)

(`dropout_p` is 0 in this event; the second returns the three gradients in one flat array). Without
them it is products, a softmax and its gradient. `matmul` has to be there, as NumPy's own is hidden
in this division.
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
