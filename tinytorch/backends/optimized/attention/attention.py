"""Attention of arrays, and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.optimized.attention.loops import (
    Gradients,
    Operands,
    Sizes,
    backward_plan,
    entries,
    forward_plan,
)
from tinytorch.backends.optimized.attention.weights import BOOL_MASK, FLOAT_MASK, NO_MASK
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace

Mask = Any  # an array; None or True for none

_ZERO = np.zeros(1)
_BYTES = np.dtype(np.uint8)


def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask = None,
    seed: Any = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Array:
    """dropout(softmax(q @ k.T * scale + mask)) @ v, a block at a time.

    Args:
        q: (..., heads, l, e), float32 or float64; k, v: (..., kv heads, s, e) and (..., s, v).
        mask: broadcasts to (..., heads, l, s); bool, or of q's dtype.
        seed: 0-d int64.

    Returns:
        (..., heads, l, v)
    """
    out = empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    if not out.size:
        return out
    if not k.shape[-2] or dropout_p == 1:
        out[...] = 0
        return out
    keys, values = _of_heads(k), _of_heads(v)
    query, target = _of_groups(q, keys), _of_groups(out, keys)
    hides, adds, kind = _masks(mask, (*query.shape[:-1], keys.shape[-2]), q)
    x = Operands(query, keys, values, hides, adds)
    sizes = _sizes(x, is_causal, kind, scale, dropout_p, seed)
    _run("forward", *forward_plan(sizes, q.itemsize), query, x, target)
    return out


def scaled_dot_product_attention_backward(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Mask = None,
    seed: Any = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Array:
    """The gradients for q, k and v, flat, one after the other; see `decompositions_attention`."""
    flat = empty((q.size + k.size + v.size,), q.dtype)
    if not g.size or not k.size or not q.size or dropout_p == 1:
        flat[...] = 0
        return flat
    dq, dk, dv = (
        flat[start : start + x.size].reshape(x.shape)
        for x, start in ((q, 0), (k, q.size), (v, q.size + k.size))
    )
    keys, values = _of_heads(k), _of_heads(v)
    query = _of_groups(q, keys)
    hides, adds, kind = _masks(mask, (*query.shape[:-1], keys.shape[-2]), q)
    x = Operands(query, keys, values, hides, adds)
    sizes = _sizes(x, is_causal, kind, scale, dropout_p, seed)
    gradients = Gradients(_of_groups(dq, keys), _of_heads(dk), _of_heads(dv))
    _run("backward", *backward_plan(sizes, q.itemsize), query, _of_groups(g, keys), x, gradients)
    return flat


def _run(name: str, s: Sizes, room: int, query: Array, *arrays: Any) -> None:
    """Call a kernel on as many threads as there is work and heads for."""
    items = query.shape[0] * query.shape[1]
    work = items * query.shape[2] * s.queries * s.keys * (s.e + s.v)
    count = min(threads.threads_for(work), items)
    of_dtype, scratch = entries(query.itemsize), workspace((room * count,), _BYTES)
    rest = (s, 0, items, *arrays, scratch.ctypes.data)
    if count == 1:
        getattr(of_dtype, name)(*rest)
        return
    serial, parallel = getattr(of_dtype, name), getattr(of_dtype, f"{name}_parallel")
    threads.run_parallel(lambda *_: parallel(count, room, *rest), lambda *_: serial(*rest), count)


def _with_adjacent_elements(x: Array) -> Array:
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)


def _of_heads(x: Array) -> Array:
    """As (batch, heads, rows, columns), the elements of a row being adjacent."""
    x = _with_adjacent_elements(x)
    if x.ndim == 4:
        return x
    if x.ndim < 4:
        return x.reshape((1,) * (4 - x.ndim) + x.shape)
    return x.reshape((math.prod(x.shape[:-3]), *x.shape[-3:]))


def _of_groups(x: Array, keys: Array) -> Array:
    """As (batch, key heads, group, rows, columns), the elements of a row being adjacent."""
    x = _with_adjacent_elements(x)
    batch, heads = keys.shape[:2]
    group = math.prod(x.shape[:-2]) // (batch * heads)
    return x.reshape((batch, heads, group, *x.shape[-2:]))


def _sizes(
    x: Operands, is_causal: bool, kind: int, scale: float, dropout_p: float, seed: Any
) -> Sizes:
    (queries, e), (keys, v) = x.q.shape[-2:], x.v.shape[-2:]
    number = int(seed) if dropout_p else 0
    return Sizes(queries, keys, e, v, is_causal, kind, scale, dropout_p, number, 0, 0)


def _masks(mask: Mask, shape: tuple[int, ...], q: Array) -> tuple[Array, Array, int]:
    """A mask of bool, one of floats, and which is used: the other repeats a single zero."""
    hides, adds = (np.ndarray(shape, t, _ZERO, 0, (0,) * 5) for t in (np.uint8, q.dtype))
    if not isinstance(mask, np.ndarray):
        return hides, adds, NO_MASK
    if mask.dtype == np.bool_:
        return _full_mask(mask.view(np.uint8), q.shape[:-1], shape), adds, BOOL_MASK
    return hides, _full_mask(mask, q.shape[:-1], shape), FLOAT_MASK


def _full_mask(mask: Array, front: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """The mask as (batch, key heads, group, l, s), of which the elements of a row are adjacent.

    Args:
        front: the dimensions of the query but its last.
        shape: of the result.
    """
    size = shape[-1]
    if mask.shape[-1:] != (size,) or mask.strides[-1] != mask.itemsize:
        mask = np.array(np.broadcast_to(mask, (*mask.shape[:-1], size)), order="C")
    return np.broadcast_to(mask, (*front, size)).reshape(shape)
