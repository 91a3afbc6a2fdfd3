# tito: event = cnn_step
"""A backend for LeNet's training step. Write the heavy kernels; what is missing is NumPy's.

The four methods below are what the step calls most. Others can be added: `max_pool2d`, `relu`,
whatever `tito bench` shows. Each takes float32 arrays and returns a new one.
"""

import numpy as np
from numba import njit


@njit(fastmath=True)
def multiply(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


@njit
def columns_of(x, kernel, stride, padding, oh, ow):
    """im2col: a row for each input channel and tap, a column for each window."""
    n, c, h, w = x.shape
    kh, kw = kernel
    columns = np.zeros((c * kh * kw, n * oh * ow), x.dtype)
    for channel in range(c):
        for i in range(kh):
            for j in range(kw):
                row = (channel * kh + i) * kw + j
                for image in range(n):
                    for p in range(oh):
                        y = p * stride + i - padding
                        if y < 0 or y >= h:
                            continue
                        for q in range(ow):
                            z = q * stride + j - padding
                            if 0 <= z < w:
                                columns[row, (image * oh + p) * ow + q] = x[image, channel, y, z]
    return columns


@njit
def image_of(columns, x, kernel, stride, padding, oh, ow):
    """col2im: every column's entries are added where they came from."""
    n, c, h, w = x.shape
    kh, kw = kernel
    for channel in range(c):
        for i in range(kh):
            for j in range(kw):
                row = (channel * kh + i) * kw + j
                for image in range(n):
                    for p in range(oh):
                        y = p * stride + i - padding
                        if y < 0 or y >= h:
                            continue
                        for q in range(ow):
                            z = q * stride + j - padding
                            if 0 <= z < w:
                                x[image, channel, y, z] += columns[row, (image * oh + p) * ow + q]


def product(a, b):
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    multiply(np.ascontiguousarray(a), np.ascontiguousarray(b), c)
    return c


class Step:
    def matmul(self, a, b):
        return product(a, b)

    def conv2d(self, x, w, b=None, *, stride, padding, dilation, groups):
        n, o, (kh, kw) = x.shape[0], w.shape[0], w.shape[2:]
        oh = (x.shape[2] + 2 * padding[0] - kh) // stride[0] + 1
        ow = (x.shape[3] + 2 * padding[1] - kw) // stride[1] + 1
        columns = columns_of(x, (kh, kw), stride[0], padding[0], oh, ow)
        y = product(w.reshape(o, -1), columns).reshape(o, n, oh, ow).transpose(1, 0, 2, 3)
        return np.ascontiguousarray(y if b is None else y + b[:, None, None])

    def conv2d_input(self, g, w, *, input_size, stride, padding, dilation, groups):
        n, o, oh, ow = g.shape
        flat = np.ascontiguousarray(g.transpose(1, 0, 2, 3)).reshape(o, -1)
        columns = product(w.reshape(o, -1).T, flat)
        x = np.zeros((n, w.shape[1], *input_size), g.dtype)
        image_of(columns, x, w.shape[2:], stride[0], padding[0], oh, ow)
        return x

    def conv2d_weight(self, x, g, *, kernel_size, stride, padding, dilation, groups):
        o, oh, ow = g.shape[1:]
        columns = columns_of(x, kernel_size, stride[0], padding[0], oh, ow)
        flat = np.ascontiguousarray(g.transpose(1, 0, 2, 3)).reshape(o, -1)
        return product(flat, columns.T).reshape(o, x.shape[1], *kernel_size)
