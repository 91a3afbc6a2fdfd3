"""Vector code that is emitted as LLVM IR: what `VectorEmitter` stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import types

from tinytorch.jit import llvm
from tinytorch.jit.cpu import AVX2, AVX512, host_vector_unit
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.llvm import VectorEmitter, address, memory, vector_intrinsic

REALS = (np.float32, np.float64)


def _twin(dtype: Any, source: int, target: int, bits: int) -> None:
    lanes = host_vector_unit().register_bytes // np.dtype(dtype).itemsize
    chosen = [lane for lane in range(lanes) if bits >> lane & 1]
    memory(dtype, target, (lanes,))[chosen] = memory(dtype, source, (lanes,))[chosen]


def _emit(e: VectorEmitter, source: Any, target: Any, bits: Any) -> None:
    mask = e.builder.bitcast(e.builder.trunc(bits, ir.IntType(e.lanes)), e.mask)
    e.store(e.load(e.pointer(source)), e.pointer(target), mask)


_store_chosen = vector_intrinsic(_twin)(_emit)


@kernel
def store_chosen(x, y, at, bits):  # type: ignore[no-untyped-def]
    """The lanes of x whose bits are set, to y from an element on."""
    _store_chosen(x.dtype.type, address(x), address(y) + at * x.itemsize, bits)


@pytest.mark.parametrize("real", REALS)
def test_a_masked_store_writes_the_lanes_of_the_mask_and_no_others(real):
    lanes = host_vector_unit().register_bytes // np.dtype(real).itemsize
    x = np.arange(1, lanes + 1, dtype=real)
    rng = np.random.default_rng(0)
    masks = range(1 << lanes) if lanes <= 8 else [*rng.integers(0, 1 << lanes, 300), 0, 65535]
    for bits in masks:
        y = np.full(lanes + 2, -1.0, real)
        store_chosen(x, y, 1, int(bits))
        chosen = [bool(int(bits) >> lane & 1) for lane in range(lanes)]
        np.testing.assert_array_equal(y, [-1, *np.where(chosen, x, -1), -1])


def _first_twin(dtype: Any, source: int, target: int, stride: int, n: int) -> None:
    item = np.dtype(dtype).itemsize
    lanes = host_vector_unit().register_bytes // item
    rows = memory(dtype, target, (3, lanes), (stride, item))
    rows[:, :n] = memory(dtype, source, (3, lanes), (lanes * item, item))[:, :n]


def _emit_first(e: VectorEmitter, source: Any, target: Any, stride: Any, n: Any) -> None:
    rows = [e.load(e.at(e.pointer(source), r * e.register_bytes)) for r in range(3)]
    e.store_first(rows, e.pointer(target), stride, n)


_store_first = vector_intrinsic(_first_twin)(_emit_first)


@kernel
def store_first(x, y, n):  # type: ignore[no-untyped-def]
    """The first n lanes of three vectors to the rows of y."""
    _store_first(x.dtype.type, address(x), address(y), y.strides[0], n)


@pytest.mark.parametrize("real", REALS)
def test_the_first_lanes_of_rows_are_stored_and_no_others(real):
    lanes = host_vector_unit().register_bytes // np.dtype(real).itemsize
    x = np.arange(1, 3 * lanes + 1, dtype=real).reshape(3, lanes)
    for n in range(1, lanes + 1):
        y = np.full((3, lanes + 3), -1, real)
        store_first(x, y, n)
        np.testing.assert_array_equal(y[:, :n], x[:, :n])
        assert (y[:, n:] == -1).all()


def text_of_store(mask: bool, past_caches: bool = False) -> str:
    """The LLVM IR of a function that stores a vector of 32 bytes, with a mask or without."""
    module = ir.Module("store")
    kind = ir.FunctionType(ir.VoidType(), [llvm.I64, ir.IntType(8)])
    function = ir.Function(module, kind, "f")
    e = VectorEmitter(ir.IRBuilder(function.append_basic_block()), types.float32, 32)
    chosen = e.builder.bitcast(function.args[1], e.mask) if mask else None
    if past_caches:
        e.stream(e.zeros, e.pointer(function.args[0]))
    else:
        e.store(e.zeros, e.pointer(function.args[0]), chosen)
    e.builder.ret_void()
    return str(module)


def test_only_registers_for_masks_make_a_masked_store(monkeypatch):
    monkeypatch.setattr(llvm, "host_vector_unit", lambda: AVX512)
    assert "masked.store" in text_of_store(mask=True)
    monkeypatch.setattr(llvm, "host_vector_unit", lambda: AVX2)
    assert "masked.store" not in text_of_store(mask=True)
    # one of 8 lanes, two of 4, four of 2, eight of 1
    assert text_of_store(mask=True).count("store ") == 1 + 2 + 4 + 8
    assert text_of_store(mask=False).count("store ") == 1


def test_a_vector_past_the_caches_is_stored_whole_and_aligned():
    (line,) = [s for s in text_of_store(False, past_caches=True).splitlines() if "store " in s]
    assert "!nontemporal" in line and "align 32" in line
    assert "nontemporal" not in text_of_store(False)


@kernel
def fenced(x, is_needed):  # type: ignore[no-untyped-def]
    """A store and, perhaps, a fence behind it."""
    x[0] = 1
    llvm.fence(x.dtype.type, is_needed)


@pytest.mark.parametrize("is_needed", [0, 1])
def test_a_fence_waits_and_does_nothing_else(is_needed):
    x = np.zeros(2, np.float32)
    fenced(x, is_needed)
    assert x.tolist() == [1, 0]
    if JIT:
        assert "fence seq_cst" in "".join(fenced.inspect_llvm().values())
