"""Threads that go through native code together: all parts are done once, whatever comes late."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types

import tinytorch
from tests.graph.compiler.native.test_build import schedule_of
from tinytorch import nn
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.native import partition
from tinytorch.graph.compiler.native.machine_code import MachineCode
from tinytorch.jit import thread_pool
from tinytorch.jit.barrier import (
    DONE,
    LINE,
    NAMES,
    PARTS as PARTS_AT,
    arrive,
    barrier_bytes,
    begin,
    done,
    end,
    settle,
    take,
)
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import memory
from tinytorch.jit.thread_pool import ThreadPool
from tinytorch.jit.threads import ThreadStartError
from tinytorch.jit.views import view
from tinytorch.state import using_backend

PHASES, PARTS = 20, 3

COUNTING = """def step(table):
    barrier, counts, workers, = words(table, 3)
    me = arrive(barrier)
"""
for _phase in range(1, PHASES + 1):
    COUNTING += f"""
    if me == 0:
        begin(barrier, {_phase})
    part = take(barrier, {_phase}, me, {PARTS})
    while part >= 0:
        count_up(counts, {(_phase - 1) * PARTS}, part)
        count_up(workers, 0, me)
        done(barrier, {_phase}, part)
        part = take(barrier, {_phase}, me, {PARTS})
    if me == 0:
        end(barrier, {_phase}, {PARTS})
"""
COUNTING += "    return 0\n"


@kernel
def _count_up(numbers: int, base: int, index: int) -> None:
    view(np.int64, numbers, base + index + 1)[base + index] += 1


class Counting:
    """A function that counts how often each part is done, and by whom."""

    def __init__(self) -> None:
        self.function = MachineCode(COUNTING, {"count_up": _count_up, **NAMES})
        self.counts = np.zeros(PHASES * PARTS, np.int64)
        self.workers = np.zeros(8, np.int64)
        self._memory = np.zeros(barrier_bytes(PARTS) + LINE, np.uint8)
        self.barrier = self._memory.ctypes.data + -self._memory.ctypes.data % LINE
        self.table = np.array(
            [self.barrier, self.counts.ctypes.data, self.workers.ctypes.data], np.int64
        )

    def run(self, pool: ThreadPool, count: int) -> int:
        return pool.run(count, self.function.address, self.table.ctypes.data, self.barrier, PARTS)


@pytest.fixture
def pool():
    pool = ThreadPool()
    yield pool
    pool.stop()


@pytest.fixture
def two_threads(monkeypatch):
    """All code for two threads, which everything is worth."""
    before = tinytorch.get_num_threads()
    monkeypatch.setattr(partition, "MIN_PARALLEL_WORK", 0.0)
    tinytorch.set_num_threads(2)
    with using_backend("optimized"):
        yield
    tinytorch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_part_is_done_once_in_a_call(pool: ThreadPool, count: int):
    counting = Counting()
    for calls in range(1, 301):
        assert counting.run(pool, count) == 0
        assert (counting.counts == calls).all()
    assert counting.workers.sum() == 300 * PHASES * PARTS
    assert not counting.workers[count:].any()


def test_a_helper_joins(pool: ThreadPool):
    counting, end = Counting(), time.monotonic() + 600
    while not counting.workers[1]:
        assert time.monotonic() < end, "no helper has come"
        counting.run(pool, 2)


def test_a_helper_that_sleeps_is_woken(pool: ThreadPool):
    counting = Counting()
    counting.run(pool, 2)
    state = pool._memory[pool._slots - pool._memory.ctypes.data :].view(np.int64)
    for _ in range(3):
        end = time.monotonic() + 600
        while state[0] != thread_pool.ASLEEP:
            assert time.monotonic() < end, "it does not go to sleep"
            time.sleep(0.001)
        before = counting.workers[1]
        while counting.workers[1] == before:
            assert time.monotonic() < end, "it does not wake up"
            counting.run(pool, 2)


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clock of a thread")
def test_a_helper_without_work_uses_no_core(pool: ThreadPool):
    """It looks for more for a fraction of a millisecond; the limit is half of the idle time."""
    counting, idle, rounds = Counting(), 0.02, 10
    counting.run(pool, 2)
    ident = pool._threads[0].ident
    assert ident is not None
    clock = time.pthread_getcpuclockid(ident)
    before = time.clock_gettime(clock)
    for _ in range(rounds):
        counting.run(pool, 2)
        time.sleep(idle)
    assert time.clock_gettime(clock) - before < rounds * idle / 2


def test_several_callers_share_the_helpers(pool: ThreadPool):
    countings = [Counting() for _ in range(4)]

    def work(counting: Counting) -> None:
        for _ in range(200):
            counting.run(pool, 2)

    callers = [threading.Thread(target=work, args=(c,)) for c in countings]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((c.counts == 200).all() for c in countings)


def test_a_crew_that_was_stopped_can_work_again(pool: ThreadPool):
    counting = Counting()
    counting.run(pool, 3)
    helpers = list(pool._threads)
    assert len(helpers) == 2
    pool.stop()
    assert not any(helper.is_alive() for helper in helpers)
    counting.run(pool, 2)
    assert (counting.counts == 2).all()


def test_a_thread_that_is_refused_says_what_to_do_and_the_next_call_has_it(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
):
    counting, start = Counting(), threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.endswith("2"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(ThreadStartError, match=r"ulimit -d.*set_num_threads\(1\)"):
        counting.run(pool, 3)
    assert issubclass(ThreadStartError, RuntimeError) and not counting.counts.any()
    assert len(pool._threads) == len(pool._semaphores) == 1  # the first one is there
    assert counting.run(pool, 2) == counting.run(pool, 1) == 0
    monkeypatch.undo()
    assert counting.run(pool, 3) == 0
    assert (counting.counts == 3).all() and len(pool._threads) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_where_no_memory_is_left_for_a_thread_that_is_said(pool: ThreadPool):
    import resource

    counting = Counting()
    counting.run(pool, 1)
    thread_pool._entry(thread_pool._serve)  # compiled before memory is short
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    used = 1024 * int(status["VmData"].split()[0])
    limits, stack = resource.getrlimit(resource.RLIMIT_DATA), threading.stack_size(1 << 29)
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 28), limits[1]))
    try:
        with pytest.raises(ThreadStartError, match="lack of memory"):
            counting.run(pool, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        threading.stack_size(stack)
    assert counting.run(pool, 2) == 0 and (counting.counts == 2).all()


def test_after_delays_calls_do_without_helpers_for_a_while(pool: ThreadPool):
    counting, late = Counting(), [True, True, False, False]
    for was_late, alone in zip(late, [1, 2, 0, 0], strict=True):
        pool._note(was_late)
        assert pool._serial_calls == (alone if was_late else 0)
        while pool._serial_calls:
            before = counting.workers[1]
            counting.run(pool, 2)
            assert counting.workers[1] == before
    for _ in range(20):
        pool._note(True)
    assert pool._serial_calls == thread_pool.MOST_SERIAL_CALLS


def test_a_late_part_is_counted():
    counting = Counting()
    barrier = view_of(counting.barrier)
    lead: Any = _lead_a_phase
    entry = lead.compile((types.int64,))
    state: list[int] = []
    leader = threading.Thread(target=lambda: state.append(entry(counting.barrier)), daemon=True)
    leader.start()
    *_, before, last = ((PARTS_AT + part * LINE + DONE) // 8 for part in range(PARTS))
    while not barrier[before]:  # the leader does the others first, and then waits for the last
        time.sleep(0.001)
    time.sleep(0.05)
    barrier[last] = 1  # another thread has done it
    leader.join()
    assert state == [1 << 32]
    assert not barrier.any()


@kernel
def _lead_a_phase(barrier: int) -> int:
    begin(barrier, 1)
    for part in range(PARTS - 1):
        done(barrier, 1, part)
    end(barrier, 1, PARTS)
    return settle(barrier, PARTS)


# -- a part that takes long ------------------------------------------------------------------------


@kernel
def _take_one(barrier: int, phase: int) -> int:
    return take(barrier, phase, arrive(barrier), PARTS)


def test_parts_go_to_whoever_is_there():
    """One takes its own first, and then those of others."""
    counting = Counting()
    barrier = view_of(counting.barrier)
    barrier[LINE // 8] = 1  # phase 1 is open
    entry: Any = _take_one
    one = entry.compile((types.int64, types.int64))
    assert [one(counting.barrier, 1) for _ in range(4)] == [0, 1, 2, -1]


def view_of(address: int) -> np.ndarray:
    """The words of a barrier's record."""
    return memory(np.int64, address, (barrier_bytes(PARTS) // 8,))


# -- compiled functions ----------------------------------------------------------------------------


def test_a_label_out_of_range_is_an_error_and_leaves_all_in_order(rng, two_threads):
    model = nn.Linear(6, 4)
    x = tinytorch.tensor(rng.standard_normal((8, 6)).astype(np.float32))
    loss = nn.CrossEntropyLoss()
    compiled = tinytorch.compile(lambda x, y: loss(model(x), y), mode="native")
    good, bad = tinytorch.tensor([0, 1, 2, 3] * 2), tinytorch.tensor([0, 4] * 4)
    with tinytorch.no_grad():
        expected = compiled(x, good).item()
        assert "abandon(" in compiled.traces[-1].code.program.source
        for _ in range(3):
            with pytest.raises(IndexError, match=r"not in 0 \.\. 3"):
                compiled(x, bad)
            assert compiled(x, good).item() == expected


def test_threads_may_call_at_once(rng, two_threads):
    w = tinytorch.tensor(rng.standard_normal((64, 64)).astype(np.float32))
    compiled = tinytorch.compile(lambda x: ((x @ w).relu() @ w).exp().sum(1), mode="native")
    inputs = [tinytorch.tensor(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(4)]
    expected = [compiled(x).numpy() for x in inputs]
    assert "arrive(" in compiled.traces[-1].code.program.source
    wrong: list[int] = []

    def work(i: int) -> None:
        with using_backend("optimized"):
            for _ in range(50):
                if not np.array_equal(compiled(inputs[i]).numpy(), expected[i]):
                    wrong.append(i)

    callers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_one_thread_may_run_what_was_made_for_two(rng, two_threads):
    x = rng.standard_normal((64, 32)).astype(np.float32)
    program = native.build(schedule_of(lambda x: x.relu() @ x.mT, tinytorch.tensor(x)))
    together = program([x])[0]
    tinytorch.set_num_threads(1)
    np.testing.assert_array_equal(program([x])[0], together)


SCRIPT = """
import os, sys
import numpy as np
import tinytorch
from tinytorch.graph.compiler.native import partition

partition.MIN_PARALLEL_WORK = 0.0
tinytorch.set_backend("optimized")
tinytorch.set_num_threads(2)
x = tinytorch.tensor(np.ones((64, 32), np.float32))
double = tinytorch.compile(lambda x: x.relu() @ x.mT, mode="native")

def works():
    return all((double(x).numpy() == 32).all() for _ in range(200))

assert works() and "arrive(" in double.traces[-1].code.program.source
{then}
print("done")
"""
FORK = """
child = os.fork()
if child == 0:
    os._exit(0 if works() else 1)
assert os.waitpid(child, 0)[1] == 0 and works()
"""
BUSY = """
import threading
threading.Thread(target=lambda: [works() for _ in range(1000)], daemon=True).start()
works()
"""


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    "then",
    [
        "",
        pytest.param(FORK, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")),
        BUSY,
    ],
    ids=["exit", "fork", "exit while busy"],
)
def test_processes_fork_and_end(then: str):
    env = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT.format(then=then)],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
