# tito: event = conv2d
"""Convolutions of your own: forward, and the gradients of input and weight. All float32.

x (n, c, h, w), weight (o, c, kh, kw), result and its gradient g (n, o, oh, ow). `groups` is 1 and
`dilation` (1, 1) in this event; `stride` and `padding` are pairs. Return new arrays.
"""

import numpy as np
from numba import njit


@njit(fastmath=True)
def taps(x, w, y, stride, padding):
    """y[n, o] += x[n, c] shifted by each tap, times the tap."""
    for n in range(x.shape[0]):
        for o in range(w.shape[0]):
            for c in range(w.shape[1]):
                for i in range(w.shape[2]):
                    for j in range(w.shape[3]):
                        weight = w[o, c, i, j]
                        for p in range(y.shape[2]):
                            row = p * stride + i - padding
                            if row < 0 or row >= x.shape[2]:
                                continue
                            for q in range(y.shape[3]):
                                column = q * stride + j - padding
                                if 0 <= column < x.shape[3]:
                                    y[n, o, p, q] += weight * x[n, c, row, column]


@njit(fastmath=True)
def taps_of_input(g, w, x, stride, padding):
    for n in range(g.shape[0]):
        for o in range(w.shape[0]):
            for c in range(w.shape[1]):
                for i in range(w.shape[2]):
                    for j in range(w.shape[3]):
                        weight = w[o, c, i, j]
                        for p in range(g.shape[2]):
                            row = p * stride + i - padding
                            if row < 0 or row >= x.shape[2]:
                                continue
                            for q in range(g.shape[3]):
                                column = q * stride + j - padding
                                if 0 <= column < x.shape[3]:
                                    x[n, c, row, column] += weight * g[n, o, p, q]


@njit(fastmath=True)
def taps_of_weight(x, g, w, stride, padding):
    for o in range(w.shape[0]):
        for c in range(w.shape[1]):
            for i in range(w.shape[2]):
                for j in range(w.shape[3]):
                    for n in range(x.shape[0]):
                        for p in range(g.shape[2]):
                            row = p * stride + i - padding
                            if row < 0 or row >= x.shape[2]:
                                continue
                            total = np.float32(0)
                            for q in range(g.shape[3]):
                                column = q * stride + j - padding
                                if 0 <= column < x.shape[3]:
                                    total += x[n, c, row, column] * g[n, o, p, q]
                            w[o, c, i, j] += total


class Conv2d:
    def conv2d(self, x, w, b=None, *, stride, padding, dilation, groups):
        sizes = [
            (x.shape[2 + d] + 2 * padding[d] - w.shape[2 + d]) // stride[d] + 1 for d in range(2)
        ]
        y = np.zeros((x.shape[0], w.shape[0], *sizes), np.float32)
        taps(x, w, y, stride[0], padding[0])
        return y

    def conv2d_input(self, g, w, *, input_size, stride, padding, dilation, groups):
        x = np.zeros((g.shape[0], w.shape[1], *input_size), np.float32)
        taps_of_input(g, w, x, stride[0], padding[0])
        return x

    def conv2d_weight(self, x, g, *, kernel_size, stride, padding, dilation, groups):
        w = np.zeros((g.shape[1], x.shape[1], *kernel_size), np.float32)
        taps_of_weight(x, g, w, stride[0], padding[0])
        return w
