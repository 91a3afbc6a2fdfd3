"""What this core can do a second at most: multiply-adds, and bytes from memory and from a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.jit.buffers import workspace
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import VectorEmitter, vector_intrinsic

ROUNDS = 200_000
TRIES = 15
CACHED_BYTES = 8 * 1024  # in every first-level data cache, beside what else is there
LOADS = 8  # in one round of a loop, each into a sum of its own
TRIAD_BYTES = 192 * 1024**2  # three arrays, together well beyond the last cache


def _chains() -> int:
    """Independent sums: as many as there are registers for, beside x, y and a spare one. A core
    starts up to four multiply-adds in a cycle, and each takes four cycles or more."""
    return min(host_vector_unit().registers - 4, 24)


def _no_twin(*arguments: Any) -> None:
    raise RuntimeError("the peak cannot be measured with NUMBA_DISABLE_JIT=1: unset it")


@vector_intrinsic(_no_twin)
def _multiply_adds(e: VectorEmitter, rounds: Any, address: Any) -> None:
    """`_chains` sums of x * y, all in registers. The numbers come from memory, and the sums go
    there: the compiler can neither compute nor drop them."""
    pointer = e.pointer(address)
    x, y = e.load(pointer), e.load(e.at(pointer, e.register_bytes))

    def add_up(sums: Sequence[Any]) -> list[Any]:
        return [e.fma(x, y, total) for total in sums]

    sums = e.loop(rounds, [x] * _chains(), add_up)
    for i, total in enumerate(sums):
        e.store(total, e.at(pointer, (2 + i) * e.register_bytes))


@kernel
def _run_multiply_adds(rounds: int, address: int) -> None:
    _multiply_adds(np.float32, rounds, address)


@vector_intrinsic(_no_twin)
def _loads(e: VectorEmitter, rounds: Any, address: Any) -> None:
    """Sums of vectors that lie one after another; the sums go where the first ones were."""
    pointer = e.pointer(address)
    one = e.constant(1.0)

    def add_up(state: list[Any]) -> list[Any]:
        here, *sums = state
        vectors = [e.load(e.at(here, i * e.register_bytes)) for i in range(LOADS)]
        sums = [e.fma(vector, one, total) for vector, total in zip(vectors, sums, strict=True)]
        return [e.at(here, LOADS * e.register_bytes), *sums]

    _, *sums = e.loop(rounds, [pointer, *[one] * LOADS], add_up)
    for i, total in enumerate(sums):
        e.store(total, e.at(pointer, i * e.register_bytes))


@kernel
def _run_loads(times: int, rounds: int, address: int) -> None:
    for _ in range(times):
        _loads(np.float32, rounds, address)


@kernel
def _triad(a: Any, b: Any, c: Any) -> None:
    for i in range(a.size):
        a[i] = b[i] + np.float32(3) * c[i]


def _least_seconds(*functions: Callable[[], object]) -> list[float]:
    """Of each; they take turns, as the clock of a core goes up and down."""
    best = [float("inf")] * len(functions)
    for _ in range(1 + TRIES):
        for i, function in enumerate(functions):
            start = time.thread_time()
            function()
            best[i] = min(best[i], time.thread_time() - start)
    return best


def multiply_adds(rounds: int = ROUNDS) -> tuple[Callable[[], None], int]:
    """A function that does nothing but multiply-adds in float32, as many as one core can start, and
    the floating-point operations of a call: a multiply-add counts as two."""
    unit, chains = host_vector_unit(), _chains()
    memory = workspace((2 + chains, unit.register_bytes // 4), np.dtype(np.float32))
    memory[...] = 1e-9
    flops = 2 * rounds * chains * (unit.register_bytes // 4)
    return lambda: _run_multiply_adds(rounds, memory.ctypes.data), flops


def multiply_add_peak() -> float:
    """Floating-point operations per second of one core in float32."""
    function, flops = multiply_adds()
    return flops / _least_seconds(function)[0]


def share_of_peak(function: Callable[[], object], flops: float) -> float:
    """What part of the peak a function reaches that does so many operations on this thread."""
    reference, most = multiply_adds()
    seconds, least = _least_seconds(function, reference)
    return flops / seconds * least / most


def cache_bandwidth() -> float:
    """Bytes per second that one core loads from its first-level cache: nothing feeds it faster."""
    size = CACHED_BYTES // (LOADS * host_vector_unit().register_bytes)
    memory = workspace((CACHED_BYTES // 4,), np.dtype(np.float32))
    memory[...] = 1e-9
    seconds = _least_seconds(lambda: _run_loads(ROUNDS // size, size, memory.ctypes.data))[0]
    return ROUNDS // size * CACHED_BYTES / seconds


def memory_bandwidth() -> float:
    """Bytes per second of a[i] = b[i] + 3 c[i] on one core, from main memory."""
    count = TRIAD_BYTES // 3 // 4
    a, b, c = (np.ones(count, np.float32) for _ in range(3))
    return 3 * 4 * count / _least_seconds(lambda: _triad(a, b, c))[0]
