from __future__ import annotations

from pathlib import Path

import pytest

from tito.compete.event import BUILT_IN, Event, load_event

SMALL = """
title = "Small products"
division = "{division}"
clock = "cpu"
rounds = 2

[limits]
compile_seconds = 60
call_seconds = 4
memory_mib = 2048
shared_mib = 4

[naive]
sizes = [[20, 30], [20, 30], [20, 30]]

[[cases]]
name = "square"
sizes = [[200, 260], [200, 260], [200, 260]]

[[cases]]
name = "b transposed"
sizes = [[200, 260], [200, 260], [200, 260]]
transposed = [false, true]
"""


def small_event(folder: Path, division: str) -> Event:
    """The event `matmul` with sizes for a test."""
    folder.mkdir()
    (folder / "event.toml").write_text(SMALL.format(division=division))
    (folder / "task.py").write_text((BUILT_IN / "matmul" / "task.py").read_text())
    return load_event(str(folder))


@pytest.fixture
def open_event(tmp_path: Path) -> Event:
    return small_event(tmp_path / "small_open", "open")


@pytest.fixture
def kernel_event(tmp_path: Path) -> Event:
    return small_event(tmp_path / "small_kernel", "kernel")
