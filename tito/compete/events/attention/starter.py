# tito: event = attention
"""A backend for attention, forward and backward: two ops, one row of weights after the other.

    scaled_dot_product_attention(query, key, value, *, is_causal, scale, dropout_p)
    scaled_dot_product_attention_backward(grad, query, key, value, *, is_causal, scale, dropout_p)

A method has the name of an op of TinyTorch, takes float32 arrays and returns a new one. The second
returns the gradients of query (..., l, e), key (..., s, e) and value (..., s, v), one after the
other, in one flat array. `dropout_p` is 0 in this event. An entry without these two needs `matmul`
instead: then they are products, a softmax and its gradient.
"""

import math

import numpy as np
from numba import njit


@njit(fastmath=True)
def weigh(w, q, k, scale, seen):
    """w = softmax(q k.T scale) over the keys that are seen."""
    largest, total = np.float32(-1e30), np.float32(0)
    for j in range(seen):
        w[j] = 0
        for e in range(q.size):
            w[j] += scale * q[e] * k[j, e]
        largest = max(largest, w[j])
    for j in range(seen):
        w[j] = math.exp(w[j] - largest)
        total += w[j]
    for j in range(seen):
        w[j] /= total


@njit(fastmath=True)
def forward(q, k, v, scale, is_causal, out):
    w = np.empty(k.shape[1], np.float32)
    for n in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = i + 1 if is_causal else k.shape[1]
            weigh(w, q[n, i], k[n], scale, seen)
            for j in range(seen):
                for e in range(v.shape[2]):
                    out[n, i, e] += w[j] * v[n, j, e]


@njit(fastmath=True)
def backward(g, q, k, v, scale, is_causal, dq, dk, dv):
    w, dw = np.empty(k.shape[1], np.float32), np.empty(k.shape[1], np.float32)
    for n in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = i + 1 if is_causal else k.shape[1]
            weigh(w, q[n, i], k[n], scale, seen)
            mean = np.float32(0)
            for j in range(seen):
                dw[j] = 0
                for e in range(v.shape[2]):
                    dw[j] += g[n, i, e] * v[n, j, e]
                    dv[n, j, e] += w[j] * g[n, i, e]
                mean += w[j] * dw[j]
            for j in range(seen):
                ds = scale * w[j] * (dw[j] - mean)
                for e in range(q.shape[2]):
                    dq[n, i, e] += ds * k[n, j, e]
                    dk[n, j, e] += ds * q[n, i, e]


def stacked(x):
    """x (..., r, c) as (n, r, c)."""
    return np.ascontiguousarray(x).reshape(-1, *x.shape[-2:])


class Attention:
    def scaled_dot_product_attention(self, q, k, v, *, is_causal, scale, dropout_p):
        out = np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
        forward(stacked(q), stacked(k), stacked(v), np.float32(scale), is_causal, stacked(out))
        return out

    def scaled_dot_product_attention_backward(self, g, q, k, v, *, is_causal, scale, dropout_p):
        dq, dk, dv = np.zeros_like(stacked(q)), np.zeros_like(stacked(k)), np.zeros_like(stacked(v))
        arrays = stacked(g), stacked(q), stacked(k), stacked(v)
        backward(*arrays, np.float32(scale), is_causal, dq, dk, dv)
        return np.concatenate([dq.ravel(), dk.ravel(), dv.ravel()])
