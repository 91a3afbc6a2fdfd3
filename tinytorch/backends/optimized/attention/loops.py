"""Attention a block at a time: the loops over heads, and over blocks of queries and keys.

    forward                                      backward
      for each head of the keys                    for each head of the keys
        pack keys.T                                  pack keys.T and values.T
        for its query heads                          for its query heads
          for blocks of BLOCK queries                  for blocks of queries
            for blocks of KEYS keys                      weights   = softmax(query @ keys.T)
              scores = query @ keys.T                    change    = g @ values.T
              weights = exp(scores - maximum)            scores'   = weights (change - sum)
              out = out * shrink + weights @ values      dquery    = scores' @ keys
            out /= sum of the weights                    dkeys    += scores'.T @ query
                                                         dvalues  += weights.T @ g

Few queries, such as the one of a new token, do not pay for packing: their scores are dot products
with the keys as these are stored.

The scores (T, T) of a head are nowhere: the forward has a block of BLOCK x KEYS of them, the
backward whole rows of a few queries, so that neither the sums of the softmax nor the result must be
kept for it. Memory is O(T). With causal order, what no query of a tile sees is not computed; blocks
of keys that a mask hides from all queries of a block are left out.

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
IO-awareness", 2022, algorithms 1 and 4; M. Rabe, C. Staats, "Self-attention does not need O(n^2)
memory", 2021.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.attention.products import KEYS, Products
from tinytorch.backends.optimized.attention.row_kernels import ROOM
from tinytorch.backends.optimized.attention.weights import BOOL_MASK, NO_MASK, Running, Weights
from tinytorch.dtypes import Array
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import NOWHERE, SIZE, Matrix, Rows
from tinytorch.jit.views import view

inner = kernel(inner=True, refcounts=False)

BLOCK = 96  # queries at a time
BACKWARD_BYTES = 400 * 1024  # of rows of weights and of their gradients: half of an L2 cache
LEAST_BLOCK = 24
SPAN = KEYS // 4  # keys of a mask that are looked at together; none is in two blocks
UNPACKED = 6  # queries of a head of the keys, at most, that do not pay for packing
PAD = 64  # bytes: what begins at a multiple is in as few lines as possible


class Sizes(NamedTuple):
    """Lengths, and what else is the same for all heads.

    Attributes:
        queries, keys, e, v: lengths; e of a query and a key, v of a value.
        is_causal: query i sees the keys 0 to i.
        mask: NO_MASK, BOOL_MASK or FLOAT_MASK.
        scale: of the scores.
        dropout_p, seed: weights are dropped where `uniform` of the seed is below.
        block: queries at a time.
        pitch: bytes from the scores of one query to those of the next.
    """

    queries: int
    keys: int
    e: int
    v: int
    is_causal: bool
    mask: int
    scale: float
    dropout_p: float
    seed: int
    block: int
    pitch: int


class Operands(NamedTuple):
    """Query, key, value, and the mask as one of bool and as one of floats.

    Attributes:
        q: (batch, query heads, queries, e); k, v: (batch, heads, keys, e or v). Each head of the
            keys has a group of query heads, which are next to each other.
        hides, adds: (batch, query heads, queries, keys).
    """

    q: Array
    k: Array
    v: Array
    hides: Array
    adds: Array


class Gradients(NamedTuple):
    """The gradients of query, key and value, of their shapes; elements of a row are adjacent."""

    q: Array
    k: Array
    v: Array


_named_tuple: Any = types.NamedTuple
SIZES = _named_tuple(
    (*[SIZE] * 4, types.boolean, SIZE, *[types.float64] * 2, types.int64, SIZE, SIZE), Sizes
)


def _row_bytes(columns: int, itemsize: int) -> int:
    """Of a row of scores. What is beyond its end also keeps rows of 4096 bytes from sharing a set
    of the L1 cache."""
    return (columns * itemsize + PAD - 1) // PAD * PAD + ROOM


@lru_cache(maxsize=1024)
def forward_plan(s: Sizes, itemsize: int) -> tuple[Sizes, int]:
    """The sizes with block and pitch of the forward, and the bytes that a thread needs."""
    pitch = _row_bytes(min(KEYS, s.keys), itemsize)
    numbers = s.keys * s.e + BLOCK * (s.e + len(Running._fields))
    sizes = s._replace(block=BLOCK, pitch=pitch)
    return sizes, numbers * itemsize + BLOCK * pitch + 4 * (PAD + ROOM)


@lru_cache(maxsize=1024)
def backward_plan(s: Sizes, itemsize: int) -> tuple[Sizes, int]:
    """The sizes with block and pitch of the backward, and the bytes that a thread needs."""
    pitch = _row_bytes(s.keys, itemsize)
    block = max(LEAST_BLOCK, min(BLOCK, BACKWARD_BYTES // (2 * pitch)))
    numbers = s.keys * (s.e + s.v) + block * (s.e + s.v + len(Running._fields))
    sizes = s._replace(block=block, pitch=pitch)
    return sizes, numbers * itemsize + 2 * block * pitch + 4 * (PAD + ROOM)


@inner
def _aligned(at: int) -> int:
    return (at + PAD - 1) // PAD * PAD


@inner
def _running(at: int, nbytes: int) -> Running:
    """Arrays of so many bytes, one after the other, each with ROOM after it."""
    first, step = _aligned(at), nbytes + ROOM
    return Running(first, first + step, first + 2 * step, first + 3 * step)


@inner
def _head(x: Operands, b: int, h: int, n: int) -> Operands:
    """The matrices of query head n, which is one of those that share head h of the keys."""
    return Operands(x.q[b, n], x.k[b, h], x.v[b, h], x.hides[b, n], x.adds[b, n])


@inner
def _mask(s: Sizes, i: int, j: int, x: Operands) -> tuple[int, int]:
    """The address of element (i, j) of the mask that is used, and the bytes from row to row."""
    if s.mask == BOOL_MASK:
        hides = x.hides
        return address(hides) + i * hides.strides[0] + j * hides.strides[1], hides.strides[0]
    adds = x.adds
    return address(adds) + i * adds.strides[0] + j * adds.strides[1], adds.strides[0]


def _make_shown(real: Any) -> Any:
    """`shown(s, i0, m, x)`: from which key on, in whole blocks, and before which key the m queries
    from i0 on see any; and before which the first of them does, if each may see one more than the
    one before. A cache that is longer than its content, padding and windows hide whole blocks of
    keys; what causal order that is written as a mask hides is left out as with the argument.
    """

    @inner
    def sees(s: Sizes, i: int, first: int, n: int, x: Operands) -> bool:
        """Whether query i sees any of n keys; without a branch, so that vectors are compared."""
        at, _ = _mask(s, i, first, x)
        found = False
        if s.mask == BOOL_MASK:
            shown = view(np.uint8, at, n)
            for j in range(n):
                found |= shown[j] != 0
        else:
            added = view(real, at, n)
            for j in range(n):
                found |= added[j] != -np.inf
        return found

    @inner
    def diagonal(s: Sizes, i0: int, m: int, end: int, x: Operands) -> int:
        """The least `seen` so that query i0 + r of m sees no key from seen + r on, before `end`."""
        seen = 0
        for r in range(m):
            first = seen + r
            if first < end and sees(s, i0 + r, first, end - first, x):
                j = end
                while j >= first + SPAN and not sees(s, i0 + r, j - SPAN, SPAN, x):
                    j -= SPAN
                while not sees(s, i0 + r, j - 1, 1, x):
                    j -= 1
                seen = j - r
        return seen

    @inner
    def shown(s: Sizes, i0: int, m: int, x: Operands) -> tuple[int, int, int]:
        last, seen = (min(s.keys, i0 + m), i0 + 1) if s.is_causal else (s.keys, s.keys)
        if s.mask == NO_MASK:
            return 0, last, seen
        begin, end = last, 1
        for i in range(i0 + m - 1, i0 - 1, -1):  # the last query often sees the most
            j = last
            while j >= end + SPAN and not sees(s, i, j - SPAN, SPAN, x):
                j -= SPAN
            while j > end and not sees(s, i, j - 1, 1, x):
                j -= 1
            end, j = j, 0
            while j + SPAN <= begin and not sees(s, i, j, SPAN, x):
                j += SPAN
            begin = min(begin, j)
        return min(begin, end - 1) // KEYS * KEYS, end, min(seen, diagonal(s, i0, m, end, x))

    return shown


def _make_forward(real: Any, products: Products, steps: Weights) -> Any:
    itemsize = np.dtype(real).itemsize
    pack, scores, sums, dots = products.pack, products.scores, products.sums, products.dots
    scaled, mask_rows, exponentials = steps.scaled, steps.mask_rows, steps.exponentials
    shrink_rows, divide = steps.shrink_rows, steps.divide
    drop, shown = steps.drop, _make_shown(real)

    @inner
    def block(
        s: Sizes, i0: int, x: Operands, panels: int, out: Array, number: int, scratch: int
    ) -> None:
        """The result for a block of queries of a head from i0 on; `number` is that of their first
        weight in the order of `uniform`. The keys are packed at `panels`, unless that is 0."""
        q, k, v, m = x.q, x.k, x.v, min(s.block, s.queries - i0)
        size, pitch, weights = s.block, s.pitch, scratch
        query = scratch + size * pitch
        running = _running(query + size * s.e * itemsize, size * itemsize)
        to, row_bytes = address(out) + i0 * out.strides[0], out.strides[0]
        of_weights = Rows(weights, pitch)
        width, q_bytes = s.e * itemsize, q.strides[0]
        scaled(m, s.e, address(q) + i0 * q_bytes, q_bytes, s.scale, query, width)
        begin, last, seen_first = shown(s, i0, m, x)
        for j0 in range(begin, last, KEYS):
            n, seen = min(KEYS, last - j0), seen_first - j0
            if panels:
                scores(m, j0, j0 + n, s.keys, s.e, Rows(query, width), panels, of_weights, seen)
            else:
                rows = Rows(address(k) + j0 * k.strides[0], k.strides[0])
                dots(m, n, s.e, Rows(query, width), rows, NOWHERE, of_weights, 0)
            if s.mask != NO_MASK:
                mask, mask_bytes = _mask(s, i0, j0, x)
                mask_rows(of_weights, m, n, seen, s.mask, Rows(mask, mask_bytes))
            exponentials(of_weights, m, n, seen, int(j0 == begin), running)
            if s.dropout_p > 0:
                drop(of_weights, m, n, seen, s.dropout_p, s.seed, number + j0, s.keys)
            if j0 > begin:
                shrink_rows(m, s.v, to, row_bytes, running.shrink)
            values = Rows(address(v) + j0 * v.strides[0], v.strides[0])
            sums(m, s.v, n, of_weights, values, Rows(to, row_bytes), int(j0 > begin), seen)
        divide(m, s.v, to, row_bytes, running.totals)

    @kernel(refcounts=False)
    def forward(s: Sizes, begin: int, end: int, x: Operands, out: Array, scratch: int) -> None:
        """Heads of the keys number begin to end, with their query heads.

        Args:
            out: (batch, query heads, queries, v), the elements of a row being adjacent.
        """
        heads, group = x.k.shape[1], x.q.shape[1] // x.k.shape[1]
        for item in range(begin, end):
            b, h = item // heads, item % heads
            head = x.k[b, h]
            panels, rest = 0, _aligned(scratch)
            if group * s.queries > UNPACKED:
                panels, rest = rest, _aligned(rest + s.keys * s.e * itemsize)
                pack(s.keys, s.e, Matrix(address(head), *head.strides), panels)
            for n in range(h * group, (h + 1) * group):
                number = (b * heads * group + n) * s.queries
                for i0 in range(0, s.queries, s.block):
                    first = (number + i0) * s.keys
                    block(s, i0, _head(x, b, h, n), panels, out[b, n], first, rest)

    return forward


def _make_backward(real: Any, products: Products, steps: Weights) -> Any:
    itemsize = np.dtype(real).itemsize
    pack, scores, sums = products.pack, products.scores, products.sums
    transposed, shown = products.transposed, _make_shown(real)
    scaled, mask_rows, exponentials = steps.scaled, steps.mask_rows, steps.exponentials
    drop, score_gradients = steps.drop, steps.score_gradients

    @inner
    def block(
        s: Sizes,
        i0: int,
        upper: Array,
        x: Operands,
        panels: tuple[int, int],
        d: Gradients,
        number: int,
        scratch: int,
    ) -> None:
        """The gradients for a block of queries of a head from i0 on, and what they add to those of
        keys and values, which are packed at `panels`."""
        q, k, m = x.q, x.k, min(s.block, s.queries - i0)
        keys, values = panels
        size, pitch, weights = s.block, s.pitch, scratch
        change = weights + size * pitch
        query = change + size * pitch
        width, v_width, q_bytes = s.e * itemsize, s.v * itemsize, q.strides[0]
        g = query + size * width
        running = _running(g + size * v_width, size * itemsize)
        scaled(m, s.e, address(q) + i0 * q_bytes, q_bytes, s.scale, query, width)
        g_bytes = upper.strides[0]
        scaled(m, s.v, address(upper) + i0 * g_bytes, g_bytes, 1.0, g, v_width)
        begin, last, seen_first = shown(s, i0, m, x)
        n, seen = last - begin, seen_first - begin
        of_weights, of_change = Rows(weights, pitch), Rows(change, pitch)
        scores(m, begin, last, s.keys, s.e, Rows(query, width), keys, of_weights, seen)
        if s.mask != NO_MASK:
            mask, mask_bytes = _mask(s, i0, begin, x)
            mask_rows(of_weights, m, n, seen, s.mask, Rows(mask, mask_bytes))
        exponentials(of_weights, m, n, seen, 1, running)
        scores(m, begin, last, s.keys, s.v, Rows(g, v_width), values, of_change, seen)
        if s.dropout_p > 0:
            drop(of_change, m, n, seen, s.dropout_p, s.seed, number + begin, s.keys)
        score_gradients(of_weights, of_change, m, n, seen, running.totals)
        if s.dropout_p > 0:
            drop(of_weights, m, n, seen, s.dropout_p, s.seed, number + begin, s.keys)
        row_bytes = d.q.strides[0]
        rows = address(d.q) + i0 * row_bytes
        of_keys = Rows(address(k) + begin * k.strides[0], k.strides[0])
        sums(m, s.e, n, of_change, of_keys, Rows(rows, row_bytes), 0, seen)
        scaled(m, s.e, rows, row_bytes, s.scale, rows, row_bytes)
        of_k, of_v = d.k.strides[0], d.v.strides[0]
        dk, dv = Rows(address(d.k) + begin * of_k, of_k), Rows(address(d.v) + begin * of_v, of_v)
        transposed(n, s.e, m, of_change, Rows(query, width), dk, seen)
        transposed(n, s.v, m, of_weights, Rows(g, v_width), dv, seen)

    @kernel(refcounts=False)
    def backward(
        s: Sizes, begin: int, end: int, upper: Array, x: Operands, d: Gradients, scratch: int
    ) -> None:
        """As `forward`, for the gradients.

        Args:
            upper: the gradient of the result, (batch, query heads, queries, v).
        """
        heads, group = x.k.shape[1], x.q.shape[1] // x.k.shape[1]
        for item in range(begin, end):
            b, h = item // heads, item % heads
            keys = _aligned(scratch)
            values = _aligned(keys + s.keys * s.e * itemsize)
            rest = _aligned(values + s.keys * s.v * itemsize)
            head, other = x.k[b, h], x.v[b, h]
            pack(s.keys, s.e, Matrix(address(head), *head.strides), keys)
            pack(s.keys, s.v, Matrix(address(other), *other.strides), values)
            d.k[b, h] = 0
            d.v[b, h] = 0
            for n in range(h * group, (h + 1) * group):
                number = (b * heads * group + n) * s.queries
                for i0 in range(0, s.queries, s.block):
                    of_head = Gradients(d.q[b, n], d.k[b, h], d.v[b, h])
                    block(
                        s, i0, upper[b, n], _head(x, b, h, n), (keys, values), of_head,
                        (number + i0) * s.keys, rest,
                    )  # fmt: skip

    return backward


def _make_entries(real: Any, dtype: Any) -> Entries:
    parts = real, Products(real), Weights(real)
    forward, backward = _make_forward(*parts), _make_backward(*parts)

    @kernel(parallel=True)
    def forward_parallel(
        count: int, room: int, s: Sizes, begin: int, end: int, x: Operands, out: Array, scratch: int
    ) -> None:
        """On `count` threads, each with `room` bytes of scratch."""
        for t in prange(count):
            first, last = end * t // count, end * (t + 1) // count
            forward(s, first, last, x, out, scratch + t * room)

    @kernel(parallel=True)
    def backward_parallel(
        count: int,
        room: int,
        s: Sizes,
        begin: int,
        end: int,
        upper: Array,
        x: Operands,
        d: Gradients,
        scratch: int,
    ) -> None:
        """On `count` threads, each with `room` bytes of scratch."""
        for t in prange(count):
            first, last = end * t // count, end * (t + 1) // count
            backward(s, first, last, upper, x, d, scratch + t * room)

    four, hides = array_type(dtype, 4), array_type(types.uint8, 4)
    first, operands = (SIZES, SIZE, SIZE), _named_tuple((four, four, four, hides, four), Operands)
    of_forward = (*first, operands, four, SIZE)
    of_backward = (*first, four, operands, _named_tuple((four, four, four), Gradients), SIZE)
    return Entries(
        forward=(forward, *of_forward),
        forward_parallel=(forward_parallel, SIZE, SIZE, *of_forward),
        backward=(backward, *of_backward),
        backward_parallel=(backward_parallel, SIZE, SIZE, *of_backward),
    )


@cache
def entries(itemsize: int) -> Entries:
    """The kernels for elements of 4 or 8 bytes."""
    if itemsize == 4:
        return _make_entries(np.float32, types.float32)
    return _make_entries(np.float64, types.float64)
