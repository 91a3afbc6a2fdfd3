"""Threads: which layer runs parallel kernels, how many threads, and when they are worth it.

| layer     | empty region | after fork        | called from two Python threads |
|-----------|--------------|-------------------|--------------------------------|
| tbb       | 1.4 us       | works             | works                          |
| omp       | 1 to 3 us    | ends the process  | works                          |
| workqueue | 35 to 50 us  | works             | ends the process               |

So: TBB where it can be loaded, otherwise workqueue, one caller at a time (a second caller meanwhile
runs on its own thread). OpenMP is never chosen, nor TBB on a single core, where it has no thread of
its own: nobody then runs the empty task with which numba starts it, and a fork, or the end of a
process in which another thread started it, waits for that task for ever.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numba
from numba.np.ufunc.parallel import threading_layer as _launched_layer

from tinytorch.errors import TinyTorchError

# Work in elementary steps (a multiply-add, or an element of an elementwise kernel) below which a
# second thread costs more than it brings.
SERIAL_BELOW = 500_000

_TBB_NAMES = {"linux": "libtbb.so.12", "darwin": "libtbb.12.dylib", "win32": "tbb12.dll"}
_TBB_LEAST_INTERFACE = 12060  # TBB 2021.6, the first that numba takes


_config: Any = numba.config  # numba makes its attributes at run time


class _State:
    layer: str | None = None
    num_threads: int | None = None


_workqueue_lock = threading.Lock()


class ThreadStartError(TinyTorchError, RuntimeError):
    """The operating system gave no thread, for lack of memory or by a limit of the process."""


def start_error(error: RuntimeError, which: str) -> ThreadStartError:
    """The error for a thread that could not be started."""
    return ThreadStartError(
        f"{error}: {which} was refused by the operating system, for lack of memory (its stack, "
        "`ulimit -s`, must fit into `ulimit -d` and `ulimit -v`) or for the number of processes "
        "(`ulimit -u`). Raise that limit, or do without: tinytorch.set_num_threads(1)"
    )


def _load_tbb() -> bool:
    """Load libtbb so that numba's extension finds it; also from the pip wheel `tbb`.

    The wheel installs the library into the environment's lib folder, where the dynamic loader does
    not look; a library that is already loaded it finds by name.
    """
    name = _TBB_NAMES.get(sys.platform)
    if name is None:
        return False
    from importlib import metadata  # imports the email package

    candidates = [name]
    try:
        files = metadata.files("tbb") or []
        candidates += [str(f.locate()) for f in files if f.name == name]
    except metadata.PackageNotFoundError:
        pass
    for candidate in candidates:
        try:
            library = ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if library.TBB_runtime_interface_version() >= _TBB_LEAST_INTERFACE:
            return True
    return False


def select_layer() -> str:
    """Choose the threading layer for this process, once, and return its name.

    A layer that the user has chosen (NUMBA_THREADING_LAYER) or that runs already is kept.

    Raises:
        ThreadStartError: the operating system gives no threads; a later call tries again.
    """
    if _State.layer is None:
        try:
            _State.layer = _launched_layer()  # type: ignore[no-untyped-call]
        except ValueError:  # none runs yet
            _check_that_threads_start(int(_config.NUMBA_NUM_THREADS) - 1)
            if _config.THREADING_LAYER == "default":
                best = "tbb" if cores() > 1 and _load_tbb() else "workqueue"
                _config.THREADING_LAYER = best
            _State.layer = str(_config.THREADING_LAYER)
    return _State.layer


def _check_that_threads_start(count: int) -> None:
    """Start so many threads at once, and end them: where one is refused, a layer of numba's ends
    the process, without a word of Python's."""
    done, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise start_error(error, f"thread {len(started) + 1} for parallel kernels") from error
    finally:
        done.set()
        for thread in started:
            thread.join()


def cores() -> int:
    """Cores that this process may use."""
    return int(_config.NUMBA_DEFAULT_NUM_THREADS)


def get_num_threads() -> int:
    """The number of threads that a large kernel may use."""
    if _State.num_threads is None:
        _State.num_threads = int(_config.NUMBA_NUM_THREADS)
    return _State.num_threads


def set_num_threads(count: int) -> None:
    """Let large kernels of this process use `count` threads; 1 makes all of them serial.

    Raises:
        ValueError: not a positive number, or more than numba was started with.
    """
    most = int(_config.NUMBA_NUM_THREADS)
    if not 1 <= count <= most:
        raise ValueError(
            f"the number of threads must be between 1 and {most}, not {count}; "
            "for more, set NUMBA_NUM_THREADS before Python starts"
        )
    _State.num_threads = int(count)


def threads_for(work: float) -> int:
    """How many threads to use for `work` elementary steps: 1 below the measured threshold."""
    if work < SERIAL_BELOW:
        return 1
    return get_num_threads()


def run_parallel(
    parallel: Callable[..., Any], serial: Callable[..., Any], count: int, *args: Any
) -> Any:
    """Call `parallel(count, *args)` where that is safe now, otherwise `serial(*args)`."""
    if count <= 1:
        return serial(*args)
    if select_layer() != "workqueue":
        return parallel(count, *args)
    if not _workqueue_lock.acquire(blocking=False):
        return serial(*args)
    try:
        return parallel(count, *args)
    finally:
        _workqueue_lock.release()


def _reset_lock_in_child() -> None:
    # the thread that held it does not exist in the child
    global _workqueue_lock
    _workqueue_lock = threading.Lock()
    if _State.layer == "omp":  # GNU OpenMP ends a forked child at its first parallel region
        _State.num_threads = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock_in_child)
