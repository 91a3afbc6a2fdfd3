"""Run the cells of a notebook in a fresh process, under limits, without Jupyter.

A kernel takes a second to start and a notebook has to be executed in it cell by cell; for code that
only has to run in order a plain process does, in a tenth of the time. Nothing of the cells runs in
the process that asks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tito import limits as limits_
from tito.limits import Limits

CHILD = Path(__file__).with_name("cells_child.py")
CELL_SECONDS = 20.0
OUTPUT_CHARACTERS = 4_000
LIMITS = Limits(seconds=120, memory_bytes=8 << 30, file_bytes=1 << 30)


@dataclass(frozen=True)
class Cell:
    """Code to run.

    Attributes:
        name: how errors call it; in tracebacks it is in place of a file's name.
        seconds: it may take.
    """

    name: str
    source: str
    seconds: float = CELL_SECONDS


@dataclass(frozen=True)
class Frame:
    """A line that an error went through. `cell` is the name of a cell, or a file."""

    cell: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class Failure:
    """An error in a cell; `type` is the name of its class, or "ProcessEnded"."""

    type: str
    message: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a cell went.

    Attributes:
        ran: False if the process ended before it.
        failure: None if it ran without an error.
        output: the last of what it printed.
    """

    ran: bool
    failure: Failure | None = None
    output: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.ran and self.failure is None


def run_cells(
    cells: Sequence[Cell],
    *,
    cwd: Path,
    path: Sequence[Path],
    limits: Limits = LIMITS,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run cells in order in one namespace; one that fails does not stop those after it.

    Args:
        path: folders that come first on the child's `sys.path`.
        environment: variables that are set in addition.

    Returns:
        One outcome a cell.
    """
    with tempfile.TemporaryDirectory(prefix="tito-") as folder:
        plan, events = Path(folder, "plan.json"), Path(folder, "events.jsonl")
        plan.write_text(json.dumps([vars(cell) for cell in cells]), encoding="utf-8")
        finished = limits_.run(
            [sys.executable, str(CHILD), str(plan), str(events)],
            limits,
            cwd=cwd,
            env=child_environment(path, environment),
        )
        told = _events(events)
    return _outcomes(len(cells), told, finished, limits)


def run_attempts(
    attempts: Sequence[Sequence[Cell]],
    imports: Sequence[str],
    *,
    path: Sequence[Path],
    limits: Limits = LIMITS,
    environment: Mapping[str, str] | None = None,
) -> list[list[Outcome]]:
    """Run lists of cells, each like `run_cells` in a process and an empty folder of its own.

    The processes are forks of one that has the modules they import: starting NumPy and TinyTorch
    takes longer than what most solutions have to do. They can reach each other's files, and so this
    is for code of one author.

    Args:
        imports: statements that run once, before the forks.
        limits: of each attempt.

    Returns:
        For each attempt one outcome a cell.
    """
    with tempfile.TemporaryDirectory(prefix="tito-") as name:
        folder = Path(name)
        plan, events = folder / "plan.json", folder / "events.jsonl"
        todo = [[vars(cell) for cell in cells] for cells in attempts]
        settings = {"imports": list(imports), "folder": name, "seconds": limits.seconds}
        plan.write_text(json.dumps({"attempts": todo, **settings}), encoding="utf-8")
        for number in range(len(attempts)):
            (folder / str(number)).mkdir()
        whole = limits_.run(
            [sys.executable, str(CHILD), str(plan), str(events)],
            replace(limits, seconds=limits.seconds * (len(attempts) + 1)),
            cwd=folder,
            env=child_environment(path, environment),
        )
        ends = _events(events)
        return [
            _outcomes(
                len(cells),
                _events(folder / str(number) / "events.jsonl"),
                _ended(folder / str(number), ends[number]) if number < len(ends) else whole,
                limits,
            )
            for number, cells in enumerate(attempts)
        ]


def _ended(folder: Path, end: Mapping[str, Any]) -> limits_.Finished:
    """How a fork ended, from what it and its parent left in files."""
    out, err = (
        (folder / name).read_text("utf-8", "replace")[-OUTPUT_CHARACTERS:]
        for name in ("stdout", "stderr")
    )
    return limits_.Finished(end["code"], out, err, 0.0, end["timed_out"])


def _outcomes(
    count: int, told: Sequence[dict[str, Any]], finished: limits_.Finished, limits: Limits
) -> list[Outcome]:
    """One outcome a cell, from what the process told and how it ended."""
    outcomes = {event["ends"]: _outcome(event) for event in told if "ends" in event}
    begun = [event["begins"] for event in told if "begins" in event]
    running = begun[-1] if begun else 0
    if running not in outcomes and count:
        failure = Failure("ProcessEnded", _how_it_ended(finished, limits))
        outcomes[running] = Outcome(True, failure, finished.stdout[-OUTPUT_CHARACTERS:])
    return [outcomes.get(i, Outcome(ran=False)) for i in range(count)]


def child_environment(path: Sequence[Path], extra: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a process in which `path` comes first, and plots need no screen."""
    search = [*map(str, path), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "MPLBACKEND": "Agg",
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        **(extra or {}),
    }


def _events(path: Path) -> list[dict[str, Any]]:
    """The events in a file; a line that a dying process did not finish is left out."""
    if not path.exists():
        return []
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


def _outcome(event: Mapping[str, Any]) -> Outcome:
    failure = event["failure"]
    if failure is not None:
        frames = tuple(
            Frame(f["file"].strip("<>"), f["line"], f["function"], _printable(f["code"]))
            for f in failure["frames"]
        )
        failure = Failure(failure["type"], _printable(failure["message"]), frames)
    return Outcome(True, failure, _printable(event["output"]), event["seconds"])


def _printable(text: str) -> str:
    """Text that can be encoded: half of a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def _how_it_ended(finished: limits_.Finished, limits: Limits) -> str:
    if finished.timed_out:
        return f"the process was stopped after {limits.seconds:g} s: is there an endless loop?"
    if finished.code < 0:
        names = {each.value: each.name for each in signal.Signals}  # those of real time have none
        name = names.get(-finished.code, f"signal {-finished.code}")
        return f"the process crashed with {name}: {_last_line(finished.stderr) or 'no message'}"
    last = _last_line(finished.stderr)
    return f"the process ended by itself with exit code {finished.code}" + (
        f": {last}" if last else ""
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
