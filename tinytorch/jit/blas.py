"""The BLAS library that NumPy multiplies with, as C functions: its product, and its threads.

NumPy's wheels bring OpenBLAS, on macOS they link Apple's Accelerate, and conda's link Intel's MKL.
The library is loaded with NumPy, so its functions are found by their C names among what NumPy's own
extension module was linked with. The names tell how wide its integers are:

    cblas_sgemm                 32 bits
    cblas_sgemm64_, $ILP64      64 bits
    scipy_cblas_sgemm64_        the same, of the library in NumPy's wheels
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

NAMES = (
    ("scipy_cblas_{}gemm64_", 8),
    ("cblas_{}gemm64_", 8),
    ("cblas_{}gemm$NEWLAPACK$ILP64", 8),
    ("scipy_cblas_{}gemm", 4),
    ("cblas_{}gemm$NEWLAPACK", 4),
    ("cblas_{}gemm", 4),
)
"""Of the product, and the bytes of an integer; the plain name last, as others are beside it."""

THREADS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


@dataclass
class Blas:
    """A library with a matrix product.

    Args:
        name: and version, as NumPy was built with it.
        index_bytes: of its integers.
        gemm: addresses of `cblas_sgemm` and `cblas_dgemm`, by the bytes of an element.
        get_threads, set_threads: how many threads its products take; None where it has no such
            function, and takes as many as there are cores.
    """

    name: str
    index_bytes: int
    gemm: dict[int, int]
    get_threads: Callable[[], int] | None = None
    set_threads: Callable[[int], Any] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _inside: int = 0
    _before: int = 0

    @contextmanager
    def limited(self, count: int) -> Iterator[None]:
        """Let products inside take `count` threads; afterwards NumPy has as many as before.

        The number is the library's, not a thread's: of blocks that overlap in time the first
        chooses, and the last restores.
        """
        if self.get_threads is None or self.set_threads is None:
            yield
            return
        with self._lock:
            if not self._inside:
                self._before = self.get_threads()
                if self._before != count:
                    self.set_threads(count)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside and self.get_threads() != self._before:
                    self.set_threads(self._before)


@cache
def find_blas() -> Blas | None:
    """The library of this process's NumPy; None where its C functions cannot be reached.

    On Windows they cannot: there a module does not lead to what it was linked with.
    """
    built_with = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return look_in(ctypes.CDLL(_extension()), f"{built_with['name']} {built_with['version']}")


def _extension() -> str:
    path = import_module("numpy._core._multiarray_umath").__file__
    assert path is not None
    return path


def look_in(library: Any, name: str) -> Blas | None:
    """The functions of a loaded library, or of those that it was linked with."""
    for pattern, index_bytes in NAMES:
        found = [_function(library, pattern.format(letter)) for letter in "sd"]
        if all(found):
            addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found]
            blas = Blas(name, index_bytes, dict(zip((4, 8), addresses, strict=True)))
            for get, set_ in THREADS:
                if (getter := _function(library, get)) and (setter := _function(library, set_)):
                    getter.restype, setter.restype = ctypes.c_int, None
                    setter.argtypes = [ctypes.c_int]
                    blas.get_threads, blas.set_threads = getter, setter
                    break
            return blas
    return None


def _function(library: Any, name: str) -> Any:
    """A C function, or None."""
    return getattr(library, name, None)
