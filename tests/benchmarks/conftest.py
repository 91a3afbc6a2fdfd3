"""Benchmarks are imported here by a process that goes on with other tests."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this process's number of threads, which `thread_count` sets for one of its own.

    Numba reads it again whenever it compiles, and refuses another one than that of its threads.
    """
    monkeypatch.syspath_prepend(str(FOLDER))  # they import each other
    stub = ModuleType("thread_count")
    stub.THREADS = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "thread_count", stub)


@pytest.fixture
def benchmark() -> ModuleType:
    """`benchmarks/ops.py`, which has arguments for every function."""
    import ops

    return ops
