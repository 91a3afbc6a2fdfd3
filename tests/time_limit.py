"""A run that ends on a slow machine too: from a given time on no slow test begins.

`TINYTORCH_LAST_START` is that time, in seconds since 1970; `.ci/run` sets it. What is not begun is
skipped, and the end of the run says how many tests of which files that were.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter

import pytest

VARIABLE = "TINYTORCH_LAST_START"
REASON = "not begun: the time of the run was over"
last_start = math.inf


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run they do not see it: one that has begun may run pytest itself, to its end."""
    global last_start
    last_start = float(os.environ.get(VARIABLE) or math.inf)
    if not config.getoption("numprocesses", None):
        os.environ.pop(VARIABLE, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > last_start and item.get_closest_marker("slow"):
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    left = Counter(r.nodeid.partition("::")[0] for r in skipped if REASON in str(r.longrepr))
    if left:
        terminalreporter.section(f"NOT RUN: {left.total():,} tests, {REASON.partition(': ')[2]}")
        for file, count in sorted(left.items()):
            terminalreporter.write_line(f"{count:5} {file}")
