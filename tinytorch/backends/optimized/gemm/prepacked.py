"""Products with a weight that is packed once and then used for many products.

    y = function(x @ w.T + b + other)          x (M, K), w (N, K), b (N,), y and other (M, N)

The weight is stored in the order in which its tiles are read, from the outside in: blocks of NC
columns of y, blocks of DC steps of k, panels as wide as a tile, rows of a panel. So it is read in
one stream, and every tile asks for a part of the panel that follows (`micro_kernel`): a model whose
weights are larger than the caches does not wait for memory where M is ten rows or more, as the time
that a panel takes to be multiplied is longer than that to be read.

What follows the sum is done to a panel of y as soon as its last block of k is, while it is in L2.

Source: Goto and van de Geijn (2008), as for `tiles`; Intel, "oneDNN developer guide", "Memory
format propagation" and "Post-ops".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.gemm.blocking import DC_BYTES, KC_BYTES, NC, balanced
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32, gemm_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    TILE_VECTORS,
    even_tiles,
    make_pack_block,
    panel_columns,
    row_bytes,
    rows_of_block,
)
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import workspace
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import Entries, array_type, flat_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import SIZE, Matrix, Rows, Stack


def _make_entries(dtype: np.dtype[Any], function: Callable[..., Any] | None) -> Entries:
    """The kernels for one dtype and one function of the sum."""
    item = dtype.itemsize
    tile, pack = (gemm_tile_f32, pack_f32) if item == 4 else (gemm_tile_f64, pack_f64)
    pack_block, lanes = make_pack_block(pack, item), REGISTER_BYTES // item
    widest, has_function = TILE_VECTORS * lanes, function is not None

    @kernel(force_inline=True)
    def itself(x: Any) -> Any:
        return x

    apply = itself if function is None else function

    @kernel(inner=True)
    def steps_of(k: int) -> int:
        """The length of the blocks of k."""
        return max(balanced(k, DC_BYTES // item), 1)

    @kernel
    def packed(w: Array, panels: Array) -> None:
        n, k = w.shape
        depth, to = steps_of(k), address(panels)
        for jc in range(0, n, NC):
            block = min(NC, n - jc)
            for pc in range(0, k, depth):
                steps = min(depth, k - pc)
                at = address(w) + jc * w.strides[0] + pc * w.strides[1]
                pack_block(block, steps, Matrix(at, w.strides[1], w.strides[0]), to, 0, 0)
                to += steps * row_bytes(block, lanes)

    @kernel(inner=True, refcounts=False)
    def finish(out: Array, other: Array, begin: int, columns: int) -> None:
        """Add what is added, and apply the function, to a part of a row."""
        row = out[begin : begin + columns]
        if other.size:
            added = other[begin : begin + columns]
            for c in range(columns):
                row[c] += added[c]
        if has_function:
            for c in range(columns):
                row[c] = apply(row[c])

    @kernel(inner=True, refcounts=False)
    def share(
        t: int, count: int, m: int, x: Array, panels: Array, bias: Array, other: Array, out: Array
    ) -> None:
        """The panels that begin in every `count`-th part of each block, for all rows."""
        n, k = out.size // m, x.size // m
        depth, place, mc = steps_of(k), address(panels), rows_of_block(m)
        for jc in range(0, n, NC):
            block = min(NC, n - jc)
            step = balanced(block, (block + count - 1) // count)
            step = (step + widest - 1) // widest * widest
            end, begin = min((t + 1) * step, block), max(min(t * step, block) - widest, 0)
            while begin < t * step and begin < block:  # the last panels may be narrower
                begin += panel_columns(block - begin, lanes)
            for pc in range(0, k, depth):
                steps = min(depth, k - pc)
                is_last = pc + steps == k
                sums = (steps * item + KC_BYTES - 1) // KC_BYTES
                for ic in range(0, m, mc):
                    height = min(mc, m - ic)
                    panel, j = place + begin * steps * item, begin
                    while j < end:
                        columns = panel_columns(block - j, lanes)
                        ld = row_bytes(columns, lanes)
                        rows, longer = even_tiles(height, ld // REGISTER_BYTES)
                        asked = (steps + height * sums - 1) // (height * sums)
                        ahead = Stack(panel + steps * ld, ld, asked * ld)
                        i = 0
                        while i < height:
                            now = min(rows if i < longer else rows - 1, height - i)
                            to = address(out) + ((ic + i) * n + jc + j) * item
                            start = Rows(to, n * item)
                            if pc == 0:
                                at = address(bias) + (jc + j) * item if bias.size else 0
                                start = Rows(at, 0)
                            left = Matrix(address(x) + ((ic + i) * k + pc) * item, k * item, item)
                            right, result = Rows(panel, ld), Rows(to, n * item)
                            tile(now, columns, steps, left, right, start, result, 0, ahead, asked)
                            skip = now * sums * ahead.step
                            ahead = Stack(ahead.address + skip, ahead.stride, ahead.step)
                            i += now
                        if is_last and (has_function or other.size):
                            for i in range(ic, ic + height):
                                finish(out, other, i * n + jc + j, columns)
                        panel += steps * ld
                        j += columns
                place += steps * row_bytes(block, lanes)

    @kernel
    def product(m: int, x: Array, panels: Array, bias: Array, other: Array, out: Array) -> None:
        share(0, 1, m, x, panels, bias, other, out)

    @kernel(parallel=True)
    def product_parallel(
        count: int, m: int, x: Array, panels: Array, bias: Array, other: Array, out: Array
    ) -> None:
        for t in prange(count):
            share(t, count, m, x, panels, bias, other, out)

    element: types.Type = from_dtype(dtype)
    arguments = (SIZE, *[flat_type(element)] * 5)
    return Entries(
        packed=(packed, array_type(element, 2), flat_type(element)),
        product=(product, *arguments),
        product_parallel=(product_parallel, SIZE, *arguments),
    )


_entries = cache(_make_entries)


class PrepackedWeight:
    """A weight packed for products with it.

    Args:
        w: (N, K), float32 or float64, with any strides; neither size is 0.
        bias: (N,) in the same dtype, or None.
        function: of each element of the sum: a scalar definition as a kernel
            (`elementwise.scalars.compile_scalar`), or None.
        allocate: makes the array of the packed weight, from its shape and dtype. The default takes
            from the pool, for a weight that is soon dropped.

    Raises:
        ValueError: the weight is no matrix of floats or is empty, or the bias does not fit it.

    Example:
        >>> w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> y = np.empty((1, 3))
        >>> PrepackedWeight(w, np.ones(3)).multiply(np.array([[1.0, 10.0]]), y)
        >>> y
        array([[22., 44., 66.]])
    """

    def __init__(
        self,
        w: Array,
        bias: Array | None = None,
        *,
        function: Callable[..., Any] | None = None,
        allocate: Callable[[tuple[int, ...], np.dtype[Any]], Array] = workspace,
    ) -> None:
        if w.ndim != 2 or not w.size or w.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"only a matrix of float32 or float64 that is not empty can be packed, not one of "
                f"shape {w.shape} and dtype {w.dtype}"
            )
        n, k = w.shape
        if bias is not None and (bias.shape != (n,) or bias.dtype != w.dtype):
            raise ValueError(
                f"a weight of shape {w.shape} and dtype {w.dtype} needs a bias of shape ({n},) and "
                f"that dtype, not of shape {bias.shape} and dtype {bias.dtype}"
            )
        self.shape, self.dtype = w.shape, w.dtype
        self._nothing = np.empty(0, w.dtype)
        self._bias = self._nothing if bias is None else in_order(bias)
        self._entries = _entries(w.dtype, function)
        lanes = REGISTER_BYTES // w.itemsize
        self._panel_count = -(-n // (TILE_VECTORS * lanes))
        self._panels = allocate((k * (-(-n // lanes) * lanes),), w.dtype)
        self._entries.packed(w, self._panels)

    def for_rows(self, m: int) -> Callable[[Array, Array], None]:
        """`multiply` for m rows on this thread, with nothing else between the call and the kernel.

        It takes x and out as `multiply` does, whose shapes and dtypes the caller answers for, and
        raises BufferError where one is not in C order, or not aligned.
        """
        product, weight = self._entries.product, (self._panels, self._bias, self._nothing)
        return lambda x, out: product(m, x, *weight, out)

    def multiply(
        self, x: Array, out: Array, other: Array | None = None, most_threads: int | None = None
    ) -> None:
        """Write function(x @ w.T + bias + other) into `out`.

        Args:
            x: (..., K), in the dtype of the weight as all others.
            out: (..., N), in C order, and of memory of its own.
            other: (..., N) or None.
            most_threads: fewer than `threads` would take; None for these.

        Raises:
            ValueError: a shape or a dtype does not fit, or `out` is not in C order.
        """
        # A model calls this with all of it out of the caches: few steps, each a cheap one.
        (n, k), shape, dtype = self.shape, out.shape, self.dtype
        added = self._nothing if other is None else other
        fits = shape == (*x.shape[:-1], n) and x.shape[-1:] == (k,)
        fits = fits and (other is None or other.shape == shape)
        if not (fits and x.dtype == dtype and out.dtype == dtype and added.dtype == dtype):
            raise ValueError(
                f"a weight of shape {self.shape} and dtype {self.dtype} multiplies (..., {k}) into "
                f"(..., {n}), not {x.shape} {x.dtype} into {out.shape} {out.dtype}"
                + ("" if other is None else f", adding {other.shape} {other.dtype}")
            )
        if not out.flags.c_contiguous or not out.flags.aligned:
            raise ValueError(f"a product is written in C order, not with strides {out.strides}")
        m = out.size // n
        if not m:
            return
        count = threads.threads_for(m * n * k)
        if most_threads is not None:
            count = min(count, most_threads)
        count = min(count, self._panel_count)
        x, added = in_order(x), in_order(added)
        self._entries.run("product", count, m, x, self._panels, self._bias, added, out)
