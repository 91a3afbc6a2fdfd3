"""NumPy's BLAS in place of these kernels, where it is faster: which products, and how it is called.

A library may reach what no vector code does (Apple's Accelerate a matrix unit), or be tuned better
for a processor than these kernels (MKL on Intel's). So large products fall into a few classes, by
type, layout, size and number of threads, and for each the two are timed once on one shape: at the
first product of that class in a process on this machine, which then takes a few dozen milliseconds
longer, or for all classes by `tito cache warm`. The times are kept beside the compiled kernels:
under a key of the processor, the versions and the sources of these kernels, for the library's name
and version. Within a process a choice is never changed, so that products of the same shape are
computed in the same way; `tito doctor` shows all choices.

These kernels are kept where the library is not clearly faster (`MARGIN`), where its number of
threads cannot be set and is another, or can be set and they wait busily (`fits`), for products that
are not large (`LARGE`), for layouts that BLAS does not know, and in
`OptimizedBackend(own_kernels_only=True)`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numba import types

from tinytorch.dtypes import Array
from tinytorch.files import atomic_write
from tinytorch.jit import threads
from tinytorch.jit.blas import find_blas
from tinytorch.jit.buffers import empty
from tinytorch.jit.cache_folder import directory
from tinytorch.jit.library import JIT, export, exports
from tinytorch.jit.views import view

LARGE = 1 << 24
"""Multiply-adds from which a product is worth a choice: below, a call of the library, and the
threads that it wakes, are a part of the time."""

MARGIN = 1.05
"""How many times faster the library has to be: a smaller difference may be noise."""

SHAPES = {
    "few rows": (32, 1024, 2048),
    "shallow": (1024, 1024, 64),
    "medium": (512, 512, 512),
    "large": (768, 768, 768),
}
"""The shape (m, n, k) on which each class of size is timed."""

LAYOUTS = ("NN", "NT", "TN", "TT")
FEW = 64  # rows or columns of C, or terms of its sums
FEWEST = 8  # below, reading an operand from memory is the limit, for everybody
LARGEST = 1 << 28  # multiply-adds from which blocks of both operands are in no cache
ROUNDS = 5
STEADY = 1.25
"""How far apart the rounds may be in how the two compare, the highest and the lowest left out: on a
busy machine the library may seem to be faster, or slower, by any factor. Then these kernels are
taken, and the next process looks again. A clock that changes from round to round is no matter."""

MOST_UNSTEADY = 3
"""Classes that may be so before a process times no others: one that is read from memory says little
of those that stay in a cache, and to time all on a busy machine would take long."""

ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # of CBLAS
FILE = "products.json"


class ProductClass(NamedTuple):
    """What products have in common that are computed in the same way.

    Attributes:
        itemsize: bytes of an element.
        layout: of A and of B: N has contiguous rows, T contiguous columns.
        size: one of `SHAPES`.
        threads: how many take part.
    """

    itemsize: int
    layout: str
    size: str
    threads: int

    def __str__(self) -> str:
        return f"float{8 * self.itemsize} {self.layout} {self.size}, {self.threads} threads"


def class_of(
    shape: tuple[int, int, int],
    a_strides: tuple[int, ...],
    b_strides: tuple[int, ...],
    itemsize: int,
    count: int,
) -> ProductClass | None:
    """The class of a product of (m, k) and (k, n); None where there is no choice.

    Args:
        shape: m, n, k.
        a_strides, b_strides: in bytes.
        itemsize: bytes of an element.
        count: threads.
    """
    m, n, k = shape
    work = m * n * k
    if work < LARGE or min(m, n) < FEWEST:
        return None
    layout = _layout(m, k, a_strides, itemsize) + _layout(k, n, b_strides, itemsize)
    if len(layout) != 2:
        return None
    if min(m, n) <= FEW:
        return ProductClass(itemsize, layout, "few rows", count)
    size = "shallow" if k <= FEW else "medium" if work < LARGEST else "large"
    return ProductClass(itemsize, layout, size, count)


def _layout(rows: int, columns: int, strides: tuple[int, ...], itemsize: int) -> str:
    """N or T; nothing where BLAS cannot say where the elements are."""
    row, column = strides
    if column == itemsize and row >= columns * itemsize and row % itemsize == 0:
        return "N"
    if row == itemsize and column >= rows * itemsize and column % itemsize == 0:
        return "T"
    return ""


def all_classes() -> list[ProductClass]:
    """Those that `tito cache warm` times: float32, on one thread and on all that there are."""
    counts = sorted({1, threads.get_num_threads()})
    return [ProductClass(4, x, s, count) for count in counts for s in SHAPES for x in LAYOUTS]


# -- the product -----------------------------------------------------------------------------------


@cache
def library_gemm(itemsize: int) -> Any:
    """The library's product as a symbol with the arguments of `loops.gemm_f32`.

    For operands that have a layout (`class_of`); the number of threads is the library's.

    Raises:
        RuntimeError: there is no such library.
    """
    blas = find_blas()
    if blas is None:
        raise RuntimeError("the BLAS of this NumPy cannot be called; take these kernels' product")
    real: Any = (np.float32, np.float64)[itemsize // 8]
    number = (types.float32, types.float64)[itemsize // 8]
    enum = types.int32
    index = types.int64 if blas.index_bytes == 8 else types.int32
    symbol = f"tinytorch_cblas_gemm_f{8 * itemsize}_i{8 * blas.index_bytes}"
    llvm.add_symbol(symbol, blas.gemm[itemsize])
    signature = types.void(
        *(types.int32, types.int32, types.int32, index, index, index, number, types.intp, index),
        *(types.intp, index, number, types.intp, index),
    )
    cblas_gemm: Any = types.ExternalFunction(symbol, signature)

    @export(f"tinytorch_gemm_library_f{8 * itemsize}", types.void(*[types.intp] * 15))
    def gemm(
        m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
        ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> None:  # fmt: skip
        """C = start + A @ B: what C starts from is copied into it, and added to."""
        if start != 0 and start != c:
            for i in range(m):
                row, first = view(real, c + i * ldc, (n,)), view(real, start + i * ld_start, (n,))
                for j in range(n):
                    row[j] = first[j]
        a_turned, b_turned = csa != itemsize, csb != itemsize
        cblas_gemm(
            enum(ROW_MAJOR), enum(TRANSPOSED if a_turned else AS_IT_IS),
            enum(TRANSPOSED if b_turned else AS_IT_IS), index(m), index(n), index(k), number(1),
            a, index((csa if a_turned else rsa) // itemsize),
            b, index((csb if b_turned else rsb) // itemsize), number(1 if start != 0 else 0),
            c, index(ldc // itemsize),
        )  # fmt: skip
        if relu != 0:
            for i in range(m):
                row = view(real, c + i * ldc, (n,))
                for j in range(n):
                    row[j] = number(0) if row[j] < 0 else row[j]

    return gemm


def library_affine(a: Array, b: Array, bias: Array, count: int) -> Array:
    """a @ b + bias by the library, on `count` threads; for operands that have a layout."""
    (m, k), n, itemsize = a.shape, b.shape[1], a.itemsize
    out = empty((m, n), a.dtype)
    exported = exports[library_gemm(itemsize).symbol]
    exported.register()
    blas = find_blas()
    assert blas is not None
    with blas.limited(count):
        exported.callback.ctypes(
            m, n, k, a.ctypes.data, *a.strides, b.ctypes.data, *b.strides, out.ctypes.data,
            out.strides[0], bias.ctypes.data if bias.size else 0, 0, 0, 0,
        )  # fmt: skip
    return out


# -- the choice ------------------------------------------------------------------------------------

Affine = Callable[[Array, Array, Array], Array]
Contestant = Callable[[Array, Array, Array, int], Array]
Clock = Callable[[], float]
Times = tuple[float, float]  # seconds of these kernels and of the library


class Choices:
    """Which classes of products the library computes.

    Args:
        own: a @ b + bias by these kernels, on a number of threads.
        library: the same by the library.
        fits: whether there is a library that takes so many threads.
        name: of the library, with its version.
        folders: where times are looked for, and the one to write to, or None.
        clocks: give seconds; the first, of this thread's work, for products on one thread.
    """

    def __init__(
        self,
        own: Contestant,
        library: Contestant,
        fits: Callable[[int], bool],
        name: str,
        folders: Callable[[], tuple[list[Path], Path | None]],
        clocks: tuple[Clock, Clock] = (time.thread_time, time.perf_counter),
    ) -> None:
        self.name = name
        self._own, self._library, self._fits = own, library, fits
        self._folders, self._clocks = folders, clocks
        self._chosen: dict[ProductClass, bool] = {}
        self._unsteady = 0  # classes that could not be timed
        self._lock = threading.RLock()

    def prefers_library(self, product: ProductClass) -> bool:
        """Whether the library computes it; what is not known yet is measured."""
        chosen = self._chosen.get(product)
        return self._choose(product) if chosen is None else chosen

    def _choose(self, product: ProductClass) -> bool:
        with self._lock:
            if product in self._chosen:  # another thread was quicker
                return self._chosen[product]
            if not self._fits(product.threads):
                return self._chosen.setdefault(product, False)
            times = self.known().get(str(product))
            if times is None and self._unsteady >= MOST_UNSTEADY:
                return self._chosen.setdefault(product, False)
            if times is None:
                times = self._measure(product)
                if times is None:
                    self._unsteady += 1
                    return self._chosen.setdefault(product, False)
                self._keep(product, times)
            own, library = times
            return self._chosen.setdefault(product, own > MARGIN * library)

    def known(self) -> dict[str, Times]:
        """Seconds of these kernels and of the library, for each class that was measured."""
        return self._read().get(self.name, {})

    def _read(self) -> dict[str, dict[str, Times]]:
        """The times of all libraries, by name; of a damaged file none: they are taken anew."""
        for folder in self._folders()[0]:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                return {
                    name: {
                        product: (float(own), float(other)) for product, (own, other) in t.items()
                    }
                    for name, t in json.loads((folder / FILE).read_text()).items()
                }
        return {}

    def _measure(self, product: ProductClass) -> Times | None:
        """The least time of these kernels, and of the library what that is by the median of the
        rounds' ratios; infinite for a library with wrong results. None where these differ too much,
        since other programs use the cores."""
        a, b = operands(product)
        given = (a, b, np.empty(0, a.dtype), product.threads)
        mine, theirs = self._own(*given), self._library(*given)
        if not np.allclose(mine, theirs, rtol=1e-3, atol=1e-2):
            return 0.0, float("inf")
        clock = self._clocks[product.threads > 1]
        spent: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            begin = clock()
            self._own(*given)
            middle = clock()
            self._library(*given)
            spent.append((middle - begin, clock() - middle))
        ratios = sorted(theirs / own for own, theirs in spent)
        if ratios[-2] > STEADY * ratios[1]:
            return None
        own = min(own for own, _ in spent)
        return own, own * ratios[ROUNDS // 2]

    def _keep(self, product: ProductClass, times: Times) -> None:
        folder = self._folders()[1]
        if folder is not None:
            content = {**self._read(), self.name: {**self.known(), str(product): times}}
            with suppress(OSError), atomic_write(folder / FILE, sync=False) as stream:
                stream.write(json.dumps(content, indent=1).encode())


def operands(product: ProductClass) -> tuple[Array, Array]:
    """Two matrices of the class, of the shape on which it is timed."""
    m, n, k = SHAPES[product.size]
    rng = np.random.default_rng(0)
    dtype = np.dtype(np.float32 if product.itemsize == 4 else np.float64)
    a, b = (
        rng.standard_normal(shape if layout == "N" else shape[::-1]).astype(dtype)
        for shape, layout in zip(((m, k), (k, n)), product.layout, strict=True)
    )
    return a if product.layout[0] == "N" else a.T, b if product.layout[1] == "N" else b.T


def fits(count: int) -> bool:
    """Whether there is a library that takes as many threads as it should, and lets them rest.

    Where the number can be set, in OpenBLAS and MKL, threads wait in a busy loop for a tenth of a
    second after each product, and so long keep a core from whatever runs on several threads next.
    """
    blas = find_blas() if JIT else None
    return blas is not None and count == (1 if blas.set_threads is not None else threads.cores())


def kernel_folders() -> tuple[list[Path], Path | None]:
    """Where times are kept: with the compiled kernels."""
    writable = directory.writable()
    return directory.readable(), writable
