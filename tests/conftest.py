"""Each test has a seed of its own, made from its name: no test depends on which ran before it."""

from __future__ import annotations

import os
import signal
import threading
import zlib

import numpy as np
import pytest
from hypothesis import settings

import tinytorch
from tests.system_tools import refuse

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and children inherit it."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that the processes end at about the same time."""
    items.sort(key=lambda item: -_seconds(item))


def _seconds(item: pytest.Item) -> float:
    """About how long a test takes, by its mark `slow(seconds=...)`; 0 without."""
    return max((mark.kwargs.get("seconds", 0) for mark in item.iter_markers("slow")), default=0)


def _seed(node: pytest.Item) -> int:
    return zlib.crc32(node.nodeid.encode())


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
