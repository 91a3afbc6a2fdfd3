"""An event: a folder with `event.toml` (rules and cases), `task.py` and `starter.py`.

`task.py` has the functions that are different from event to event:

    make(draw, case) -> Problem            a problem of this case: fresh shapes, scales and values
    call(entry, inputs, parameters)        in the worker: the entry's method on these arrays
    reference(inputs, parameters)          for each output the float64 result and its bound
    class Torch                            optional: PyTorch in an entry's place

It comes from who makes the event, and is trusted: the parent imports it.
"""

from __future__ import annotations

import importlib.util
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BUILT_IN = Path(__file__).with_name("events")
SHARED_MIB = 128
LONGEST_NAME = 70  # of a case, which the leaderboard keeps with "small " before it
DIVISIONS, CLOCKS = ("kernel", "open"), ("cpu", "wall")


class EventError(Exception):
    """There is no such event, or its files are not in order."""


@dataclass
class Problem:
    """One call's inputs.

    Attributes:
        inputs: arrays; one whose memory is transposed is given to the entry in that order.
        outputs: shape and dtype of each result.
        parameters: what else the call needs, as JSON.
        flops: multiplications and additions that any way of computing it needs.
    """

    inputs: list[Array]
    outputs: list[tuple[tuple[int, ...], Any]]
    flops: float
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What any way of computing it has to read and write at least."""
        written = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in self.outputs)
        return written + sum(array.nbytes for array in self.inputs)


class Task(Protocol):
    """What `task.py` has."""

    def make(self, draw: np.random.Generator, case: dict[str, Any]) -> Problem: ...

    def reference(
        self, inputs: Sequence[Array], parameters: dict[str, Any]
    ) -> list[tuple[Array, Array]]: ...


@dataclass(frozen=True)
class Event:
    """What is measured, and by which rules.

    Attributes:
        folder: where its files are.
        title: a line about it.
        division: "kernel" (own loops: NumPy without BLAS, numba, math) or "open".
        clock: "cpu" (time of all of the entry's threads) or "wall".
        cases: each with a name, and what `make` wants to know.
        small: the same cases in sizes that plain loops in Python can bear, for the naive backend.
        threads: cores that it uses ("all" in the file: of this machine); more than one are
            measured by wall time, on a quiet machine.
        rounds: pairs in each launch of each case; even, as who goes first changes (A B, B A).
        compile_seconds, call_seconds: limits of the first calls together, and of one call.
        memory_bytes: of the entry's process.
        shared_bytes: for the arrays of one call; each process first touches all of it.
    """

    name: str
    folder: Path
    title: str
    division: str
    clock: str
    threads: int
    cases: tuple[dict[str, Any], ...]
    small: tuple[dict[str, Any], ...]
    rounds: int
    compile_seconds: float
    call_seconds: float
    memory_bytes: int
    shared_bytes: int
    task: Any = field(repr=False, compare=False)

    @property
    def starter(self) -> str:
        """A file to begin with."""
        return (self.folder / "starter.py").read_text("utf-8")


def list_events() -> list[str]:
    """Names of the events that come with TinyTorch."""
    return sorted(p.parent.name for p in BUILT_IN.glob("*/event.toml"))


def load_event(name: str) -> Event:
    """An event by name, or by the path of its folder.

    Raises:
        EventError: there is none, or its files are not in order; the message says what is missing.
    """
    folder = BUILT_IN / name if (BUILT_IN / name / "event.toml").is_file() else Path(name)
    file = folder / "event.toml"
    if not file.is_file():
        known = ", ".join(list_events())
        raise EventError(f"there is no event {name!r}, and no folder with an event.toml: {known}")
    try:
        said = tomllib.loads(file.read_text("utf-8"))
        event = _event(folder, said)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise EventError(f"{file}: {error}") from None
    except KeyError as error:
        raise EventError(f"{file} does not say {error}") from None
    return event


def _event(folder: Path, said: dict[str, Any]) -> Event:
    for key, allowed in (("division", DIVISIONS), ("clock", CLOCKS)):
        if said[key] not in allowed:
            raise ValueError(f"{key} is {said[key]!r}; it may be {' or '.join(allowed)}")
    threads = said.get("threads", 1)
    if threads == "all":
        threads = len(os.sched_getaffinity(0))
    if not isinstance(threads, int) or threads < 1 or (threads > 1 and said["clock"] == "cpu"):
        raise ValueError(
            f"threads is {threads!r} and clock {said['clock']!r}: CPU time is for one thread, and "
            'several are measured by clock = "wall"'
        )
    rounds = said["rounds"]
    if not isinstance(rounds, int) or rounds < 2 or rounds % 2:
        raise ValueError(f"rounds is {rounds!r}; it must be even, so that each goes first as often")
    names = [case["name"] for case in said["cases"]]
    if not all(isinstance(n, str) and len(n) <= LONGEST_NAME for n in names):
        raise ValueError(f"a case's name is text of at most {LONGEST_NAME} letters: {names}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"cases need names of their own, not {names}")
    limits = said["limits"]
    return Event(
        name=folder.resolve().name,
        folder=folder.resolve(),
        title=said["title"],
        division=said["division"],
        clock=said["clock"],
        threads=threads,
        cases=tuple(said["cases"]),
        small=_small(said),
        rounds=rounds,
        compile_seconds=float(limits["compile_seconds"]),
        call_seconds=float(limits["call_seconds"]),
        memory_bytes=int(limits["memory_mib"]) << 20,
        shared_bytes=int(limits.get("shared_mib", SHARED_MIB)) << 20,
        task=_task(folder / "task.py"),
    )


def _small(said: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The cases with what `[naive]` says in place of what they say; none without it."""
    if "naive" not in said:
        return ()
    return tuple({**c, **said["naive"], "name": f"small {c['name']}"} for c in said["cases"])


def _task(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("event_task", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there is no {path.name} beside it")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [n for n in ("make", "call", "reference") if not callable(getattr(module, n, None))]
    if missing:
        raise ValueError(f"{path.name} has no function {' and no '.join(missing)}")
    return module
