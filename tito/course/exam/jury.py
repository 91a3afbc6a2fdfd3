"""Verdicts on what submissions claim, found in a child with limits, and with a deadline for each.

A claim is bounded in size, but a dictionary whose keys collide is slow to rebuild however small it
is. So nothing that a submission sent is decoded in the process that grades the class.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from threading import Lock
from typing import Any

from tito.course.exam.job import InfrastructureError
from tito.course.exam.judge import TestKey, Verdict
from tito.course.exam.judge_child import PREFIX
from tito.course.exam.receive import FloodError, Lines
from tito.limits import Limits, end
from tito.sandbox import NoSandboxError, for_python
from tito.usage import usage

CHILD = Path(__file__).with_name("judge_child.py")
ROOT = Path(__file__).resolve().parents[3]
SECONDS = 10.0  # of processor time for one test cell
WALL_FACTOR = 4
LOOK_SECONDS = 0.1
START_SECONDS = 60.0
MEMORY_BYTES = 4 << 30
TOO_LONG = "what it sent takes more than {:g} s to compare"
TOO_MUCH = "what it sent takes too much memory to compare"


class Jury:
    """A process that judges, started when it is first asked and again after each that it lost.

    Args:
        confined: False judges without a sandbox, under limits only.
    """

    def __init__(self, *, confined: bool = True) -> None:
        self.confined = confined
        self.lock = Lock()
        self.child: Popen[bytes] | None = None

    def __enter__(self) -> Jury:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def judge(
        self, key: TestKey, result: Mapping[str, Any] | None, ended: str | None = None
    ) -> Verdict:
        """`judge.judge`, elsewhere.

        Raises:
            InfrastructureError: the process does not start.
        """
        if result is None:
            return Verdict(False, ended or "the test did not run")
        asked = json.dumps({"key": key.as_json(), "result": result, "ended": ended}).encode()
        with self.lock:
            for _ in range(2):  # once more: the machine may have been short of memory
                found = self._asked(asked + b"\n")
                if found is not None:
                    return found
        return Verdict(False, TOO_MUCH)

    def _asked(self, line: bytes) -> Verdict | None:
        """The verdict; None if the process ended."""
        child, lines = self._running()
        assert child.stdin is not None
        began, before = time.monotonic(), usage(child.pid).cpu_seconds
        try:
            child.stdin.write(line)
            child.stdin.flush()
            while (said := lines.next(LOOK_SECONDS)) is None:
                used, wall = usage(child.pid).cpu_seconds - before, time.monotonic() - began
                if used > SECONDS or wall > WALL_FACTOR * SECONDS:
                    self._end()
                    return Verdict(False, TOO_LONG.format(SECONDS))
        except (BrokenPipeError, EOFError, FloodError):
            self._end()
            return None
        return Verdict(bool(said["passed"]), str(said["message"]))

    def _running(self) -> tuple[Popen[bytes], Lines]:
        if self.child is None:
            sandbox = replace(for_python("tinytorch", "tito"), confined=self.confined)
            command = [sys.executable, "-I", str(CHILD), str(ROOT)]
            bounds = Limits(seconds=0, memory_bytes=MEMORY_BYTES, file_bytes=0, open_files=64)
            try:
                self.child = sandbox.start(command, bounds)
            except (NoSandboxError, OSError) as error:
                raise InfrastructureError(str(error)) from error
            assert self.child.stdout is not None
            self.lines = Lines(self.child.stdout.fileno(), PREFIX, total_bytes=None)
            self._expect_start()
        return self.child, self.lines

    def _expect_start(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with suppress(EOFError, FloodError):
            while time.monotonic() < deadline:
                if self.lines.next(LOOK_SECONDS) is not None:
                    return
        self._end()
        raise InfrastructureError("the judge does not start: is there enough memory?")

    def _end(self) -> None:
        if self.child is None:
            return
        child, self.child = self.child, None
        end(child)
