"""Attention of arrays, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
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
from tinytorch.jit.buffers import address_of, empty, workspace

Mask = Any  # an array; None or True for none

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
    out: Array | None = None,
    most_threads: int | None = None,
) -> Array:
    """dropout(softmax(q @ k.T * scale + mask)) @ v, a block at a time.

    Args:
        q: (..., heads, l, e), float32 or float64; k, v: (..., kv heads, s, e) and (..., s, v).
        mask: broadcasts to (..., heads, l, s); bool, or of q's dtype.
        seed: 0-d int64.
        out: the array to write, of four dimensions, the elements of a row being adjacent; None for
            a new one.
        most_threads: fewer than `threads` would take; None for these.

    Returns:
        (..., heads, l, v)
    """
    if out is None:
        out = empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    if not out.size:
        return out
    if not k.shape[-2] or dropout_p == 1:
        out[...] = 0
        return out
    x, kind = _operands(q, k, v, mask)
    plan = _plan(forward_plan, x, kind, is_causal, scale, dropout_p, seed)
    _run("forward", *plan, x, x, _of_heads(out), most_threads=most_threads)
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
    x, kind = _operands(q, k, v, mask)
    plan = _plan(backward_plan, x, kind, is_causal, scale, dropout_p, seed)
    gradients = Gradients(*map(_of_heads, (dq, dk, dv)))
    _run("backward", *plan, x, _of_heads(g), x, gradients)
    return flat


def _run(
    name: str, s: Sizes, room: int, x: Operands, *arrays: Any, most_threads: int | None = None
) -> None:
    """Call a kernel on as many threads as there is work and heads for."""
    (batch, heads), query_heads = x.k.shape[:2], x.q.shape[1]
    work = batch * query_heads * s.queries * s.keys * (s.e + s.v)
    count = min(threads.threads_for(work), batch * heads, most_threads or batch * heads)
    of_dtype, scratch = entries(x.q.itemsize), workspace((room * count,), _BYTES)
    rest = (s, 0, batch * heads, *arrays, address_of(scratch))
    if count == 1:
        getattr(of_dtype, name)(*rest)
        return
    serial, parallel = getattr(of_dtype, name), getattr(of_dtype, f"{name}_parallel")
    threads.run_parallel(lambda *_: parallel(count, room, *rest), lambda *_: serial(*rest), count)


def _of_heads(x: Array) -> Array:
    """As (batch, heads, rows, columns), the elements of a row being adjacent."""
    if x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x)
    if x.ndim == 4:
        return x
    if x.ndim < 4:
        return x.reshape((1,) * (4 - x.ndim) + x.shape)
    return x.reshape((math.prod(x.shape[:-3]), *x.shape[-3:]))


def _operands(q: Array, k: Array, v: Array, mask: Mask) -> tuple[Operands, int]:
    """The operands of a kernel, and which mask is used: the other one is nowhere."""
    query, keys, values = _of_heads(q), _of_heads(k), _of_heads(v)
    shape = (*query.shape[:-1], keys.shape[-2])
    no_bool, no_float = _nowhere(shape, q.dtype)
    if not isinstance(mask, np.ndarray):
        return Operands(query, keys, values, no_bool, no_float), NO_MASK
    if mask.dtype == np.bool_:
        hides = _full_mask(mask.view(np.uint8), q.shape[:-1], shape)
        return Operands(query, keys, values, hides, no_float), BOOL_MASK
    adds = _full_mask(mask, q.shape[:-1], shape)
    return Operands(query, keys, values, no_bool, adds), FLOAT_MASK


@lru_cache(maxsize=1024)
def _nowhere(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """A mask of bool and one of floats that repeat a zero, for kernels that do not read them."""
    hides, adds = (np.broadcast_to(np.zeros((), t), shape) for t in (np.uint8, dtype))
    return hides, adds


def _plan(
    plan: Callable[[Sizes, int], tuple[Sizes, int]],
    x: Operands,
    kind: int,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: Any,
) -> tuple[Sizes, int]:
    """What a kernel reads beside the operands, and the bytes that a thread needs."""
    (queries, e), (keys, v) = x.q.shape[2:], x.v.shape[2:]
    lengths = Sizes(queries, keys, e, v, is_causal, kind, scale, dropout_p, 0, 0, 0)
    sizes, room = plan(lengths, x.q.itemsize)
    return (sizes._replace(seed=int(seed)) if dropout_p else sizes), room


def _full_mask(mask: Array, front: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """The mask as (batch, heads, l, s), of which the elements of a row are adjacent.

    Args:
        front: the dimensions of the query but its last.
        shape: of the result.
    """
    size = shape[-1]
    if mask.shape == shape and mask.strides[-1] == mask.itemsize:
        return mask
    if mask.shape[-1:] != (size,) or mask.strides[-1] != mask.itemsize:
        mask = np.array(np.broadcast_to(mask, (*mask.shape[:-1], size)), order="C")
    return np.broadcast_to(mask, (*front, size)).reshape(shape)
