from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tinytorch.jit import threads
from tinytorch.jit.library import JIT

needs_jit = pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")

PARALLEL = """
import os, sys, threading
import numpy as np
from numba import prange
from tinytorch.jit import threads
{setup}
from tinytorch.jit.library import kernel

@kernel(parallel=True)
def parallel(count, x, y):
    for t in prange(count):
        for i in range(x.size * t // count, x.size * (t + 1) // count):
            y[i] = 2 * x[i]

@kernel
def serial(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]

def once():
    x, y = np.arange(1000.0), np.zeros(1000)
    threads.run_parallel(parallel, serial, 2, x, y)
    assert (y == 2 * x).all()
"""
WITHOUT_TBB = "threads._load_tbb = lambda: False"
FORK = """
once()
pid = os.fork()
if pid == 0:
    once()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
once()
"""
CONCURRENT = """
once()
many = [threading.Thread(target=lambda: [once() for _ in range(300)]) for _ in range(4)]
[t.start() for t in many]
[t.join() for t in many]
"""


@pytest.mark.slow
@needs_jit
@pytest.mark.parametrize("setup", ["", WITHOUT_TBB], ids=["best", "without-tbb"])
@pytest.mark.parametrize("body", [FORK, CONCURRENT], ids=["fork", "concurrent"])
def test_parallel_kernels_survive(setup, body):
    done = subprocess.run(
        [sys.executable, "-c", PARALLEL.format(setup=setup) + body],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


ON_ONE_CORE = """
import os, sys, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from tinytorch.jit import threads
threads.select_layer()
from numba.np.ufunc.parallel import _launch_threads, threading_layer
starter = threading.Thread(target=_launch_threads)
starter.start()
starter.join()
if "fork" in sys.argv:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(threading_layer())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
@pytest.mark.parametrize("arguments", [[], ["fork"]], ids=["exit", "fork"])
def test_a_process_on_one_core_ends(arguments):
    """With TBB it waited for ever, at a fork and at its end."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", ON_ONE_CORE, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "workqueue\n"), done.stderr


PRODUCT = """
import numpy as np, tinytorch
from tinytorch.jit.compile_progress import progress
tinytorch.set_backend("optimized")
tinytorch.set_num_threads(2)
a = tinytorch.ones(256, 256)
a @ a
from numba.np.ufunc.parallel import threading_layer
print(threading_layer(), progress.compiled)
"""


@pytest.mark.slow
@needs_jit
def test_a_product_from_the_cache_runs_on_the_layer_that_was_chosen(tmp_path):
    """Its entry calls a parallel kernel and is none itself."""
    env = {**os.environ, "NUMBA_NUM_THREADS": "2", "TINYTORCH_CACHE_DIR": str(tmp_path)}
    (chosen, compiled), (from_cache, none) = [
        subprocess.run(
            [sys.executable, "-c", PRODUCT], env=env, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert from_cache == chosen and chosen in ("tbb", "workqueue")
    assert int(compiled) > int(none) == 0


@needs_jit
def test_tbb_is_found_where_pip_puts_it():
    pytest.importorskip("importlib.metadata").version("tbb")
    assert threads._load_tbb()
    assert threads.select_layer() == ("tbb" if threads.cores() > 1 else "workqueue")


def test_number_of_threads_is_checked(monkeypatch):
    monkeypatch.setattr(threads._State, "num_threads", None)
    most = threads.get_num_threads()
    threads.set_num_threads(1)
    assert threads.get_num_threads() == 1
    for wrong in (0, -1, most + 1):
        with pytest.raises(ValueError, match=f"between 1 and {most}, not {wrong}"):
            threads.set_num_threads(wrong)


def test_small_work_is_serial(monkeypatch):
    monkeypatch.setattr(threads._State, "num_threads", 2)
    assert threads.threads_for(threads.SERIAL_BELOW - 1) == 1
    assert threads.threads_for(threads.SERIAL_BELOW) == 2


def test_workqueue_has_one_caller_at_a_time(monkeypatch):
    monkeypatch.setattr(threads, "select_layer", lambda: "workqueue")
    inside, release, used = threading.Event(), threading.Event(), []

    def slow(count):
        used.append("parallel")
        inside.set()
        release.wait(10)

    first = threading.Thread(target=threads.run_parallel, args=(slow, None, 2))
    first.start()
    inside.wait(10)
    threads.run_parallel(slow, lambda: used.append("serial"), 2)
    release.set()
    first.join()
    assert used == ["parallel", "serial"]
    threads.run_parallel(lambda count: used.append("again"), None, 2)
    assert used[-1] == "again"


def test_one_thread_runs_the_serial_version():
    out = threads.run_parallel(None, np.add, 1, 1, 2)
    assert out == 3


WITHOUT_THREADS = """
import threading, tinytorch
from tinytorch.jit.threads import ThreadStartError
tinytorch.set_backend("optimized")
start, x = threading.Thread.start, tinytorch.ones(1500, 1000)

def refused(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refused
for _ in range(2):
    try:
        x.exp()
    except ThreadStartError as error:
        print(error)
tinytorch.set_num_threads(1)
assert x.exp()[0, 0].item() > 2.7 and (x @ x.T)[1, 2].item() == 1000
threading.Thread.start = start
tinytorch.set_num_threads(2)
assert x.exp()[-1, -1].item() > 2.7
"""


@needs_jit
def test_where_no_thread_can_be_started_that_is_said() -> None:
    """Numba's layers ended the process: `terminate called after throwing ...`."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second and "thread 1 for parallel kernels was refused" in first
    assert "ulimit -u" in first and "set_num_threads(1)" in first
