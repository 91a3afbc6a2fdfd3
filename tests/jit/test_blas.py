from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tinytorch.jit.blas import Blas, find_blas, look_in

FUNCTION = ctypes.CFUNCTYPE(None)
GET, SET = ctypes.CFUNCTYPE(ctypes.c_int), ctypes.CFUNCTYPE(None, ctypes.c_int)


class Counting:
    """A library's number of threads, and how often it was set."""

    def __init__(self, count: int) -> None:
        self.count, self.sets = count, 0

    def set(self, count: int) -> None:
        self.count, self.sets = count, self.sets + 1

    def blas(self) -> Blas:
        return Blas("counting 1", 8, {}, lambda: self.count, self.set)


@pytest.mark.skipif(sys.platform == "win32", reason="a module does not lead to its libraries")
def test_the_library_of_this_numpy_is_found() -> None:
    blas = find_blas()
    assert blas is not None and all(blas.gemm.values()) and blas.index_bytes in (4, 8)


def library_of(*names: str) -> Any:
    return SimpleNamespace(**{name: FUNCTION(lambda: None) for name in names})


@pytest.mark.parametrize(
    ("names", "index_bytes"),
    [
        (("scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_"), 8),
        (("cblas_sgemm", "cblas_dgemm"), 4),
        (("cblas_sgemm", "cblas_dgemm", "cblas_sgemm$NEWLAPACK$ILP64",
          "cblas_dgemm$NEWLAPACK$ILP64"), 8),
    ],
)  # fmt: skip
def test_the_name_tells_how_wide_integers_are(names: tuple[str, ...], index_bytes: int) -> None:
    blas = look_in(library_of(*names), "mine 1.0")
    assert blas is not None and blas.name == "mine 1.0" and blas.index_bytes == index_bytes
    assert blas.gemm[4] != blas.gemm[8] and blas.set_threads is None


def test_half_a_library_is_none() -> None:
    assert look_in(library_of("cblas_sgemm"), "half") is None


def test_its_threads_are_found() -> None:
    state = Counting(4)
    library = SimpleNamespace(
        cblas_sgemm=FUNCTION(lambda: None),
        cblas_dgemm=FUNCTION(lambda: None),
        MKL_Get_Max_Threads=GET(lambda: state.count),
        MKL_Set_Num_Threads=SET(state.set),
    )
    blas = look_in(library, "MKL")
    assert blas is not None
    with blas.limited(2):
        assert state.count == 2
    assert state.count == 4


def test_numpy_has_its_threads_back() -> None:
    state = Counting(8)
    blas = state.blas()
    with pytest.raises(KeyError), blas.limited(1):
        assert state.count == 1
        with blas.limited(2):  # at the same time in another thread: the first has chosen
            assert state.count == 1
        assert state.count == 1
        raise KeyError
    assert state.count == 8
    with blas.limited(8):
        assert state.sets == 2  # nothing to set


def test_a_library_without_that_function_is_left_alone() -> None:
    with Blas("plain", 4, {}).limited(1):
        pass
