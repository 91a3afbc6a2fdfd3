"""Threads that wait for work: they join the thread that runs a native function.

Numba's layers wake their threads for each region, which can take as long as a training step of a
small model. Here a thread that has just worked looks for more for a while, and joins a call within
a fraction of a microsecond; only then it sleeps.

Each helper has a slot, a record of int64. Its first word is its state, which changes only by
an atomic exchange:

    READY     the helper looks at the slot       (helper) -> ASLEEP, after a while
    ASLEEP    it waits for a semaphore          (leader) -> POSTED, and releases the semaphore
    POSTED    function and table are in it    (helper) -> RUNNING; (leader) -> READY, withdrawn
    RUNNING   the helper runs the function      (helper) -> READY
    STOPPING  it is to end

A leader never waits for a helper that has not begun (`barrier`), so what was posted can be
taken back. Where helpers are stopped in the middle of their work, since others use the cores,
calls do without them for a while. One call at a time has the helpers; another thread that calls
meanwhile works without helpers. A forked child starts with none, and makes its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types

from tinytorch.jit.barrier import (
    LINE,
    call,
    exchange,
    load,
    pause,
    rest,
    settle,
    store,
)  # fmt: skip
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.threads import start_error

READY, ASLEEP, POSTED, RUNNING, STOPPING = range(5)
FUNCTION, TABLE = 8, 16
FAILURES = (1 << 32) - 1  # of what a call gives
MOST_THREADS = 8
"""Code has statements for each thread, so that for many more it would take long to compile."""

MOST_SERIAL_CALLS = 64
PATIENCE = 20_000  # pauses of about 20 ns until a helper without work sleeps


@kernel
def _serve(slot: int) -> bool:
    """Run what is posted, until there was nothing for a while; False if the helper is to end."""
    waited = 0
    while True:
        state = load(slot)
        if state == STOPPING:
            return False
        if state == POSTED and exchange(slot, POSTED, RUNNING):
            call(load(slot + FUNCTION), load(slot + TABLE))
            store(slot, READY)
            waited = 0
        elif waited < PATIENCE:
            pause()
            waited += 1
        elif exchange(slot, READY, ASLEEP):
            return True


@kernel
def _post(slots: int, count: int, function: int, table: int) -> int:
    """Ask so many helpers to run a function; returns a bit for each that has to be woken."""
    asleep = 0
    for i in range(count):
        slot = slots + i * LINE
        store(slot + FUNCTION, function)
        store(slot + TABLE, table)
        if not exchange(slot, READY, POSTED):
            exchange(slot, ASLEEP, POSTED)
            asleep |= 1 << i
    return asleep


@kernel
def _lead(slots: int, count: int, function: int, table: int, barrier: int, parts: int) -> int:
    """Run the function too. Afterwards no helper runs it, nor will; returns what `settle` finds."""
    call(function, table)
    for i in range(count):
        slot = slots + i * LINE
        if not exchange(slot, POSTED, READY):
            waited = 0
            while load(slot) == RUNNING:
                waited = rest(waited)
    return settle(barrier, parts)


@kernel
def _dismiss(slot: int) -> None:
    """Nothing is posted and nothing runs, for the caller has the helpers."""
    store(slot, STOPPING)


@kernel
def _run(function: int, table: int) -> int:
    failure: int = call(function, table)
    return failure


_ARITIES: dict[Callable[..., Any], int] = {_serve: 1, _dismiss: 1, _post: 4, _lead: 6, _run: 2}


@cache
def _entry(function: Callable[..., Any]) -> Callable[..., int]:
    assert JIT, "without the JIT, code is written for one thread"
    dispatcher: Any = function
    entry: Callable[..., int] = dispatcher.compile((types.int64,) * _ARITIES[function])
    return entry


def runner() -> Callable[[int, int], int]:
    """runner(function, table): the result of a C function, with the interpreter lock released."""
    return _entry(_run)


class ThreadPool:
    """Helpers, up to MOST_THREADS - 1."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held by the call that has the helpers
        self._memory = np.zeros(MOST_THREADS * LINE, np.uint8)
        self._slots = self._memory.ctypes.data + -self._memory.ctypes.data % LINE
        self._semaphores: list[threading.Semaphore] = []
        self._threads: list[threading.Thread] = []
        self._serial_calls = 0  # calls to come without helpers
        self._pause = 1  # how many after the next delay

    def run(self, count: int, function: int, table: int, barrier: int, parts: int) -> int:
        """Run a C function on this thread and, if they are free, count - 1 helpers.

        Args:
            function: its address. It takes a table, and is written for a barrier of so many parts.
            table, barrier: addresses.

        Returns:
            the number of the failure that it reports, or 0.

        Raises:
            ThreadStartError: a helper cannot be started. Nothing has run, and a later call tries
                again.
        """
        helpers = count - 1
        if helpers < 1 or not self._lock.acquire(blocking=False):
            return _entry(_lead)(0, 0, function, table, barrier, parts) & FAILURES
        try:
            if self._serial_calls:  # the cores have other things to do
                self._serial_calls -= 1
                helpers = 0
            while len(self._threads) < helpers:
                self._hire()
            asleep = _entry(_post)(self._slots, helpers, function, table)
            if asleep:
                for i in range(helpers):
                    if asleep >> i & 1:
                        self._semaphores[i].release()
            found = _entry(_lead)(self._slots, helpers, function, table, barrier, parts)
            if helpers:
                self._note(found > FAILURES)
            return found & FAILURES
        finally:
            self._lock.release()

    def _note(self, was_late: bool) -> None:
        """After a delay some calls do without helpers; after the next twice as many."""
        if was_late:
            self._serial_calls = self._pause
            self._pause = min(2 * self._pause, MOST_SERIAL_CALLS)
        else:
            self._pause = max(self._pause // 2, 1)

    def _hire(self) -> None:
        semaphore, slot = threading.Semaphore(0), self._slots + len(self._threads) * LINE
        serve = _entry(_serve)

        def work() -> None:
            while serve(slot):
                semaphore.acquire()

        name = f"tinytorch helper {len(self._threads) + 1}"
        thread = threading.Thread(target=work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            which = f"helper {len(self._threads) + 1} of native code"
            raise start_error(error, which) from error
        self._threads.append(thread)
        self._semaphores.append(semaphore)

    def stop(self) -> None:
        """End the helpers: none may run machine code while the interpreter goes away."""
        with self._lock:
            for i, (thread, semaphore) in enumerate(
                zip(self._threads, self._semaphores, strict=True)
            ):
                _entry(_dismiss)(self._slots + i * LINE)
                semaphore.release()
                thread.join()
            self._threads, self._semaphores = [], []


class _Process:
    """The thread pool of this process, made when first needed."""

    pool: ThreadPool | None = None


_making = threading.Lock()


def process_pool() -> ThreadPool:
    """The helpers of this process."""
    with _making:
        if _Process.pool is None:
            _Process.pool = ThreadPool()
            atexit.register(_Process.pool.stop)
        return _Process.pool


def _reset_in_child() -> None:
    global _making
    _making = threading.Lock()
    if _Process.pool is not None:  # its threads are not in the child
        atexit.unregister(_Process.pool.stop)
        _Process.pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
