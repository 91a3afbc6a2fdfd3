"""What a slow machine has no time for is said, and what has begun is finished."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.time_limit import VARIABLE

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os
import pytest
from tests import time_limit

def test_fast():
    assert time_limit.VARIABLE not in os.environ

@pytest.mark.slow
def test_during_which_the_time_is_over():
    time_limit.last_start = 1
    assert AGREES

@pytest.mark.slow
@pytest.mark.parametrize("case", range(2))
def test_later(case):
    assert False
"""


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize(
    ("last", "agrees", "options", "counts", "left", "code"),
    [
        ("1", "True", "-n 2", "1 passed, 3 skipped", "time of the run was over; too few", 1),
        ("1", "True", "-n 0", "1 passed, 3 skipped", "    3 test_program.py", 1),
        ("", "True", "-n 0", "2 passed, 2 skipped", "NOT RUN: 2 tests, the time of the run", 0),
        ("", "False", "-n 1", "1 failed, 1 passed, 2 skipped", "    2 test_program.py", 1),
        ("1e12", "True", "-p no:xdist", "2 passed, 2 skipped", "    2 test_program.py", 0),
    ],
)
def test_slow_tests_begin_until_then(
    tmp_path: Path, last: str, agrees: str, options: str, counts: str, left: str, code: int
) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests import time_limit\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(time_limit)\n"
    )
    (tmp_path / "test_program.py").write_text(PROGRAM.replace("AGREES", agrees))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         *options.split(), "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, env={**os.environ, VARIABLE: last},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert counts in done.stdout, done.stdout + done.stderr
    assert left in done.stdout
    assert done.returncode == code
