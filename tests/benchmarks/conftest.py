"""Benchmarks are imported here by a process that goes on with other tests."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this process's number of threads, which `thread_count` sets for one of its own.

    Numba reads it again whenever it compiles, and refuses another one than that of its threads.
    """
    stub = ModuleType("thread_count")
    stub.THREADS = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "thread_count", stub)
