"""Each test has a seed of its own, made from its name: no test depends on which ran before it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import tinytorch
from tests import global_state, time_limit
from tests.system_tools import refuse
from tinytorch.collector import collected_no_more
from tito.usage import cores

if cores() == 1:  # numba reads this when it is imported: what takes two threads is tested, too
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")

MOST_MORE = 1 << 30  # bytes by which a process that runs tests may grow before it gives some back
_resident = 1 << 30  # when it last did

UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("local", **UNTIMED)  # a busy machine is no failure
settings.register_profile("ci", **UNTIMED, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and children inherit it."""
    config.pluginmanager.register(time_limit)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and have it leave alone what all tests share: modules
    and thousands of items, which each `gc.collect()` of a test would walk through."""
    with collected_no_more():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that the processes end at about the same time."""
    for mark in ("slow", "exhaustive"):
        _mark_cases_beyond(items, mark)
    items.sort(key=lambda item: -_seconds(item))


def _mark_cases_beyond(items: list[pytest.Item], mark: str) -> None:
    """`slow_beyond(n)`: all but the first n cases of a test are marked slow; so for other marks."""
    cases = Counter[str]()
    for item in items:
        beyond = item.get_closest_marker(f"{mark}_beyond")
        if beyond is not None:
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > beyond.args[0]:
                item.add_marker(mark)


def _seconds(item: pytest.Item) -> float:
    """About how long a test takes, by its mark `slow(seconds=...)`; 0 without."""
    return max((mark.kwargs.get("seconds", 0) for mark in item.iter_markers("slow")), default=0)


def pytest_runtest_logfinish() -> None:
    """Give back the memory of a large model: the C library keeps what was freed for itself."""
    global _resident
    if sys.platform == "linux" and resident_bytes() > _resident + MOST_MORE:
        gc.collect()
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc has it
            libc.malloc_trim(0)
        _resident = max(_resident, resident_bytes())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _seed(node: pytest.Item) -> int:
    return zlib.crc32(node.nodeid.encode())


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test fails that leaves a setting of the process or of a library changed: the next would
    fail, or pass, for its sake.

    Slow ones start clusters and servers, whose libraries set variables: these are taken back.
    """
    if request.node.get_closest_marker("slow"):
        with patch.dict(os.environ):
            yield
        return
    before = global_state.read()
    yield
    if left := global_state.changes(before, global_state.read()):
        pytest.fail("the test leaves behind: " + "; ".join(left))


@pytest.fixture(autouse=True)
def _global_seed(request: pytest.FixtureRequest) -> None:
    tinytorch.manual_seed(_seed(request.node))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator with the test's own seed."""
    return np.random.default_rng(_seed(request.node))


@pytest.fixture(scope="session")
def working_sandbox() -> None:
    """The sandbox of submissions runs here; asked for by the mark `needs_sandbox`."""
    from tito import sandbox

    if (reason := sandbox.unavailable()) is not None:
        refuse(reason)
