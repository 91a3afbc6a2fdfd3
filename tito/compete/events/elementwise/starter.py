# tito: event = elementwise
"""t = x w + b; y = mask t / (1 + exp(-t)), all float32, in one loop instead of five.

x and mask are (rows, columns), w and b (columns). Return a new float32 array.
"""

import math

import numpy as np
from numba import njit


@njit
def fill(x, w, b, mask, y):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            t = x[i, j] * w[j] + b[j]
            y[i, j] = mask[i, j] * t / (np.float32(1) + math.exp(-t))


class MaskedSilu:
    def masked_silu(self, x, w, b, mask):
        y = np.empty_like(x)
        fill(x, w, b, mask, y)
        return y
