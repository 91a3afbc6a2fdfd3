"""Threads that go through one native function together.

    leader     serial code | part 0 of phase 1 | waits | serial code | part 0 of phase 2 | ...
    helper          waits  | part 1 of phase 1 | waits |    waits    | part 1 of phase 2 | ...

All run the whole function, once for a call: to call threads together takes a microsecond or more,
to meet at a word of memory 0.2. The first to arrive is the leader. It alone runs what cannot be
divided, opens a phase when all before it is done, and goes on when all parts of the phase are done.

No thread waits for one that has not begun: a part belongs to the thread that takes it first, its
own thread by preference (which has its rows of a weight in its cache), otherwise any other. So it
does not matter whether a helper comes late or, where all cores are busy, never; the leader then
does everything. A waiting thread spins for a fraction of a millisecond, and then yields its core.

Where more threads want to run than there are cores, a helper may be stopped in the middle of a
part. The leader notices that it waits longer than it has worked itself, and counts such phases: the
caller had better do without helpers for a while.

A barrier is a record of int64, all 0 between calls. Each line of the cache has one writer at a
time:

    line 0        how many have arrived; the number of a failure; when the phase was opened, in
                  cycles; phases of which a part came late
    line 1        the last phase that is open
    line 2 + i    the last phase whose part i was taken; the last whose part i is done

The hint to the core that a loop waits, and the clock, are instructions of x86. Other processors do
without: there no phase is late, since the clock stands still.

Source: Mellor-Crummey and Scott, Algorithms for scalable synchronization on shared-memory
multiprocessors, ACM TOCS 9 (1991), 3.1; Blumofe and Leiserson, Scheduling multithreaded
computations by work stealing, J. ACM 46 (1999).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import I64, i64

LINE = 128  # bytes; x86 fetches lines of 64 in pairs
FAILURE, SINCE, LATE, OPEN, PARTS, DONE = 8, 16, 24, LINE, 2 * LINE, 8
ABANDONED = 1 << 40  # in place of the last open phase
SPINS = 10_000  # pauses of about 20 ns before a thread offers its core
LEAST_TIMEOUT_CYCLES = 150_000  # 50 us: no delay below this matters
IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


def barrier_bytes(count: int) -> int:
    """The size of the record of a barrier for `count` threads."""
    return PARTS + count * LINE


# -- atomic operations -----------------------------------------------------------------------------


def _primitive(arity: int) -> Callable[[Callable[..., Any]], Any]:
    """A function of int64 that emits instructions, callable from kernels."""

    def declare(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return emit(builder, *values)

        signature = types.int64(*[types.int64] * arity)
        typers: dict[int, Callable[..., Any]] = {
            0: lambda typing: (signature, generate),
            1: lambda typing, a: (signature, generate),
            2: lambda typing, a, b: (signature, generate),
            3: lambda typing, a, b, c: (signature, generate),
        }
        return intrinsic(typers[arity])

    return declare


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


@_primitive(1)
def load(b: Any, address: Any) -> Any:
    return b.load_atomic(_word(b, address), "acquire", 8)


@_primitive(2)
def store(b: Any, address: Any, value: Any) -> Any:
    b.store_atomic(value, _word(b, address), "release", 8)
    return value


@_primitive(1)
def _count_up(b: Any, address: Any) -> Any:
    """The value before."""
    return b.atomic_rmw("add", _word(b, address), i64(1), "acq_rel")


@_primitive(3)
def exchange(b: Any, address: Any, expected: Any, value: Any) -> Any:
    """1 if the word was as expected, and now has the value."""
    pair = b.cmpxchg(_word(b, address), expected, value, "acq_rel", "acquire")
    return b.zext(b.extract_value(pair, 1), I64)


@_primitive(0)
def pause(b: Any) -> Any:
    """Tell the core that this is a loop that waits."""
    if IS_X86:
        kind = ir.FunctionType(ir.VoidType(), ())
        b.call(b.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), ())
    return i64(0)


@_primitive(0)
def cycles(b: Any) -> Any:
    """A clock; it stands still where user programs may not read it."""
    if not IS_X86:
        return i64(0)
    kind = ir.FunctionType(I64, ())
    return b.call(b.module.declare_intrinsic("llvm.readcyclecounter", (), kind), ())


@_primitive(2)
def call(b: Any, function: Any, argument: Any) -> Any:
    """The result of a C function of one int64, at an address."""
    kind = ir.FunctionType(I64, (I64,))
    return b.call(b.inttoptr(function, kind.as_pointer()), (argument,))


_offer_core = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)


@kernel
def rest(waited: int) -> int:
    if waited < SPINS:
        pause()
    else:
        _offer_core()
    return waited + 1


# -- what a native function calls ------------------------------------------------------------------


@kernel
def arrive(barrier: int) -> int:
    """Enter the fork as a thread and return its number; 0 is the leader."""
    number: int = _count_up(barrier)
    return number


@kernel
def take(barrier: int, phase: int, me: int, count: int) -> int:
    """A part of a phase for this thread to do, once the phase is open; -1 if none is left."""
    waited, last = 0, load(barrier + OPEN)
    while last < phase:
        waited = rest(waited)
        last = load(barrier + OPEN)
    if last != ABANDONED:
        for i in range(count):
            part = (me + i) % count
            if exchange(barrier + PARTS + part * LINE, phase - 1, phase):
                return part
    return -1


@kernel
def done(barrier: int, phase: int, part: int) -> None:
    """The part has been done."""
    store(barrier + PARTS + part * LINE + DONE, phase)


@kernel
def begin(barrier: int, phase: int) -> None:
    """Open a phase; by the leader."""
    store(barrier + SINCE, cycles())
    store(barrier + OPEN, phase)


@kernel
def end(barrier: int, phase: int, count: int) -> None:
    """Wait until all parts of a phase are done; by the leader."""
    waited, now = 0, cycles()
    bound = now + max(now - load(barrier + SINCE), LEAST_TIMEOUT_CYCLES)
    for part in range(count):
        while load(barrier + PARTS + part * LINE + DONE) < phase:
            waited = rest(waited)
    if cycles() > bound:
        store(barrier + LATE, load(barrier + LATE) + 1)


@kernel
def abandon(barrier: int, failure: int) -> int:
    """Stop all threads from beginning another phase; by the leader, between phases."""
    store(barrier + FAILURE, failure)
    store(barrier + OPEN, ABANDONED)
    return failure


NAMES = {f.__name__: f for f in (arrive, take, done, begin, end, abandon)}
"""What the text of a native function may call."""


# -- running a function ----------------------------------------------------------------------------


@kernel
def settle(barrier: int, count: int) -> int:
    """Reset all words to 0, after the last thread has left; the failure, and late phases times
    2**32."""
    found: int = load(barrier + FAILURE) | load(barrier + LATE) << 32
    for line in range(2 + count):
        for word in range(4):
            store(barrier + line * LINE + word * 8, 0)
    return found
