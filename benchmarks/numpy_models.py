"""Training steps written by hand in NumPy, as well as one would without a framework.

Weights are in PyTorch's order and layout, float32; each step changes them in place and returns the
loss.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def mlp_step(weights, x, y, lr):
    """784-128-10 with ReLU: forward, cross entropy, backward and SGD."""
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1.T + b1, 0)
    loss, error = cross_entropy(hidden @ w2.T + b2, y)
    hidden_error = (error @ w2) * (hidden > 0)
    descend(weights, linear_gradients(hidden_error, x) + linear_gradients(error, hidden), lr)
    return loss


def lenet_step(weights, x, y, lr):
    """LeNet-5 with ReLU and maximum pooling: forward, cross entropy, backward and SGD."""
    c1, d1, c2, d2, w3, b3, w4, b4, w5, b5 = weights
    x1 = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    a1, columns1 = convolve(x1, c1, d1)
    p1, best1 = max_pool(np.maximum(a1, 0))
    a2, columns2 = convolve(p1, c2, d2)
    p2, best2 = max_pool(np.maximum(a2, 0))
    flat = p2.reshape(len(x), -1)
    h3 = np.maximum(flat @ w3.T + b3, 0)
    h4 = np.maximum(h3 @ w4.T + b4, 0)
    loss, e5 = cross_entropy(h4 @ w5.T + b5, y)

    e4 = (e5 @ w5) * (h4 > 0)
    e3 = (e4 @ w4) * (h3 > 0)
    e2 = max_unpool((e3 @ w3).reshape(p2.shape), best2) * (a2 > 0)
    e1 = max_unpool(convolve_transposed(e2, c2), best1) * (a1 > 0)
    gradients = (
        *conv_gradients(e1, columns1, c1),
        *conv_gradients(e2, columns2, c2),
        *linear_gradients(e3, flat),
        *linear_gradients(e4, h3),
        *linear_gradients(e5, h4),
    )
    descend(weights, gradients, lr)
    return loss


def cross_entropy(scores, y):
    """The mean loss and its gradient for the scores (n, classes)."""
    rows = np.arange(len(y))
    shifted = scores - scores.max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    sums = odds.sum(axis=1, keepdims=True)
    loss = np.mean(np.log(sums[:, 0]) - shifted[rows, y])
    odds /= sums
    odds[rows, y] -= 1
    odds /= len(y)
    return loss, odds


def linear_gradients(error, x):
    """For weight and bias of x @ w.T + b."""
    return error.T @ x, error.sum(axis=0)


def descend(weights, gradients, lr):
    """weights -= lr * gradients"""
    for w, g in zip(weights, gradients, strict=True):
        w -= lr * g


def convolve(x, w, b):
    """By im2col: the result (n, o, oh, ow), and the columns that the gradient needs."""
    outputs, channels, kh, kw = w.shape
    windows = sliding_window_view(x, (kh, kw), axis=(2, 3))  # n, c, oh, ow, kh, kw
    n, _, oh, ow = windows.shape[:4]
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, channels * kh * kw)
    result = columns @ w.reshape(outputs, -1).T + b
    return result.reshape(n, oh, ow, outputs).transpose(0, 3, 1, 2), columns


def conv_gradients(error, columns, w):
    """For filters and bias."""
    flat = error.transpose(0, 2, 3, 1).reshape(-1, w.shape[0])
    return (flat.T @ columns).reshape(w.shape), flat.sum(axis=0)


def convolve_transposed(error, w):
    """The gradient for the input of `convolve`: the error convolved with the turned filters."""
    kh, kw = w.shape[2:]
    padded = np.pad(error, ((0, 0), (0, 0), (kh - 1, kh - 1), (kw - 1, kw - 1)))
    turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return convolve(padded, turned, np.float32(0))[0]


def max_pool(x):
    """2x2: the result, and for each window where in it the maximum was first."""
    n, c, h, w = x.shape
    windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    windows = windows.reshape(n, c, h // 2, w // 2, 4)
    best = windows.argmax(axis=-1)[..., None]
    return np.take_along_axis(windows, best, axis=-1)[..., 0], best


def max_unpool(error, best):
    """The gradient for the input of `max_pool`."""
    n, c, h, w = error.shape
    windows = np.zeros((n, c, h, w, 4), error.dtype)
    np.put_along_axis(windows, best, error[..., None], axis=-1)
    return windows.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)
