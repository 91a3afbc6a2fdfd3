"""The parent's side of a process in which a tier runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tito.cells import child_environment
from tito.limits import Limits, end, limited

CHILD = Path(__file__).with_name("child.py")
LIMITS = Limits(seconds=0, file_bytes=1 << 30)  # of wall time it has as much as each request
START_SECONDS = 120.0
# read when a process loads the BLAS of its NumPy, whichever it is
BLAS_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


class TierError(Exception):
    """A tier cannot be measured; the text says why."""


class Worker:
    """A tier in a process of its own.

    Args:
        options: of `child.Tier`.
        path: folders that come first on its `sys.path`: where `tinytorch` is, and `tito`.
        cwd: where it runs.

    Raises:
        TierError: it did not get ready.
    """

    def __init__(self, options: dict[str, Any], path: list[Path], cwd: Path) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(
            limited([sys.executable, str(CHILD), json.dumps(options)], LIMITS),
            cwd=cwd,
            env=child_environment(path, dict.fromkeys(BLAS_THREADS, str(options["threads"]))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            start_new_session=True,
        )
        self.waiting = b""
        try:
            self._answer(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, seconds: float, **request: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            TierError: it is an error, or none came in time, or the process has ended.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # that it has ended is found while waiting
            self.process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self.process.stdin.flush()
        return self._answer(seconds)

    def close(self) -> None:
        """End it and all that it started, whatever it is doing."""
        end(self.process)
        self.said.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self.waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TierError(f"it was stopped after {seconds:g} s: is there an endless loop?")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise TierError(self._how_it_ended())
            self.waiting += more
        line, _, self.waiting = self.waiting.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        if "error" in value:
            raise TierError(value["error"])
        return value

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        if code < 0:
            return f"the process crashed with {signal.Signals(-code).name}{last}"
        return f"the process ended by itself with exit code {code}{last}"
