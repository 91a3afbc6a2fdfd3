"""A run that ends on a slow machine too: from a given time on no slow test begins.

`TINYTORCH_LAST_START` is that time, in seconds since 1970; `.ci/run` sets it. What is not begun is
skipped, and the end of the run says how many tests of which files that were. Where these are more
than were begun, the run has failed: it has not checked what it is for.
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


def not_begun(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Tests that were not begun, by file."""
    skipped = reporter.stats.get("skipped", [])
    return Counter(r.nodeid.partition("::")[0] for r in skipped if REASON in str(r.longrepr))


def too_few_begun(reporter: pytest.TerminalReporter) -> bool:
    """Whether more tests were left out than ended in any way."""
    ended = sum(len(reporter.stats.get(name, [])) for name in ("passed", "failed", "skipped"))
    left = not_begun(reporter).total()
    return left > ended - left


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and too_few_begun(reporter):  # none in a worker
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = not_begun(terminalreporter)
    if left:
        failed = "; too few were begun" if too_few_begun(terminalreporter) else ""
        over = REASON.partition(": ")[2]
        terminalreporter.section(f"NOT RUN: {left.total():,} tests, {over}{failed}")
        for file, count in sorted(left.items()):
            terminalreporter.write_line(f"{count:5} {file}")
