"""Run cells as a kernel would, one namespace, in this process: the child's side of `tito.cells`.

Run as a script: `python cells_child.py PLAN EVENTS`. The plan is JSON; for each cell one line goes
to EVENTS when it begins and one when it ends, so that a reader knows where a process was when it
died. Standard library only: what is here runs beside code that nobody has checked.

A plan with `attempts` has several lists of cells, which run one after the other, each in a fork of
this process: it has imported what they import.
"""

from __future__ import annotations
import __future__

import io
import json
import linecache
import os
import signal
import sys
import time
import traceback
import types
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
OUTPUT_CHARACTERS = 4_000
AGAIN_SECONDS = 1.0  # code that swallows the timeout gets it again
LOOK_SECONDS = 0.01


class CellTimeout(BaseException):
    """A cell took longer than it may; not an Exception, so that `except Exception` lets it pass."""


class Session:
    """One namespace in which cells run in turn; `from __future__` imports hold for later cells."""

    def __init__(self) -> None:
        self.module = types.ModuleType("__main__")
        self.flags = 0
        sys.modules["__main__"] = self.module

    def run(self, name: str, source: str, seconds: float) -> dict[str, Any]:
        """Run a cell; the outcome as JSON can hold it."""
        filename = f"<{name}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        output = io.StringIO()
        failure = None
        start = time.perf_counter()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                code = compile(source, filename, "exec", flags=self.flags, dont_inherit=True)
                self.flags |= code.co_flags & FUTURES
                with _time_limit(seconds):
                    exec(code, self.module.__dict__)
            except BaseException as error:
                failure = describe(error)
        text = output.getvalue()
        return {
            "failure": failure,
            "output": text[-OUTPUT_CHARACTERS:],
            "seconds": time.perf_counter() - start,
        }


class _time_limit:
    """Raise CellTimeout in the block after some seconds, and again until it ends."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def interrupt(number: int, frame: Any) -> None:
            raise CellTimeout(f"not finished after {self.seconds:g} s")

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, AGAIN_SECONDS)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def describe(error: BaseException) -> dict[str, Any]:
    """An error as JSON: its type, its message, and the lines it went through, outermost first."""
    try:
        message = str(error)
    except Exception as second:
        message = f"its message cannot be shown: {type(second).__name__}"
    frames = [
        {"file": f.filename, "line": f.lineno, "function": f.name, "code": f.line or ""}
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename != __file__
    ]
    if isinstance(error, SyntaxError):
        message = error.msg
        frames.append(
            {
                "file": error.filename or "",
                "line": error.lineno or 0,
                "function": "",
                "code": (error.text or "").strip(),
            }
        )
    return {"type": type(error).__name__, "message": message, "frames": frames[-50:]}


def run(cells: list[dict[str, Any]], events: TextIO) -> None:
    """Run each cell, whatever becomes of those before it."""
    session = Session()

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    for index, cell in enumerate(cells):
        tell({"begins": index})
        tell({"ends": index, **session.run(cell["name"], cell["source"], cell["seconds"])})


def run_attempts(plan: dict[str, Any], events: TextIO) -> None:
    """Run each of the plan's `attempts` in a fork, in the folder of its number: what it tells goes
    to `events.jsonl` there, what it prints to `stdout` and `stderr`. How each ended goes to
    `events`.

    An import that fails is left to the cell that has it.
    """
    for statement in plan["imports"]:
        with suppress(Exception):
            exec(statement, {})
    for number, cells in enumerate(plan["attempts"]):
        folder = Path(plan["folder"], str(number))
        child = os.fork()
        if child == 0:
            _attempt(folder, cells)
        code, timed_out = _end_of(child, plan["seconds"])
        events.write(json.dumps({"code": code, "timed_out": timed_out}) + "\n")
        events.flush()


def _attempt(folder: Path, cells: list[dict[str, Any]]) -> NoReturn:
    """The whole life of a fork."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        with open(folder / name, "wb") as file:
            os.dup2(file.fileno(), descriptor)
    with open(folder / "events.jsonl", "w", encoding="utf-8") as events:
        work = folder / "work"
        work.mkdir()
        os.chdir(work)
        run(cells, events)
    os._exit(0)


def _end_of(child: int, seconds: float) -> tuple[int, bool]:
    """A fork's exit code, and whether it had to be ended after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, True
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as plan:
        todo = json.load(plan)
    sys.path.pop(0)  # the folder of this file
    with open(sys.argv[2], "w", encoding="utf-8") as stream:
        (run_attempts if "attempts" in todo else run)(todo, stream)
    os._exit(0)  # threads that a cell has left behind do not hold up the end
