"""A notebook to run, and what came of it: plain data, which can travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tito.limits import Limits


class InfrastructureError(Exception):
    """The machine failed and not the student; nothing is known of the submission."""


@dataclass(frozen=True)
class Budget:
    """What a submission may use.

    Attributes:
        cell_seconds: of processor time in one cell; four times as much of wall time.
        compile_seconds: of processor time in numba's compiler, which do not count for the cells.
        seconds: of wall time in all, the attempts after a cell that hung included.
        memory_bytes: of all its processes together, and address space of each.
        files: that it may make; an empty one takes memory of the kernel that no other limit counts.
    """

    cell_seconds: float = 20.0
    compile_seconds: float = 120.0
    seconds: float = 300.0
    memory_bytes: int = 2 << 30
    processes: int = 48
    file_bytes: int = 64 << 20
    scratch_bytes: int = 64 << 20
    open_files: int = 256
    files: int = 20_000

    def limits(self) -> Limits:
        return Limits(
            seconds=self.seconds,
            cpu_seconds=int(self.seconds) + 1,
            memory_bytes=self.memory_bytes,
            file_bytes=self.file_bytes,
            open_files=self.open_files,
            processes=self.processes,
        )


@dataclass(frozen=True)
class Unit:
    """A cell of the notebook as the student has it.

    Attributes:
        source: None for a test that shows nothing to the student.
        test: the grade_id, if a test is here.
        is_edited: the student wrote or changed it, so points depend on it. For other cells the
            time halves with each that hung, since a function that hangs is called in many.
        seconds: that it may take; the budget says it for those that have none of their own.
    """

    id: str
    source: str | None
    test: str | None = None
    is_edited: bool = True
    seconds: float | None = None


@dataclass(frozen=True)
class Question:
    """A test cell as the student's process gets it; `seconds` as in Unit."""

    id: str
    source: str
    visible: bool
    seed: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Job:
    """A notebook to run: plain data, that can travel to another machine.

    Attributes:
        files: what lies beside the notebook: name to content, in base64.
        package: files of the package that are others here: path from its root to text.
    """

    units: tuple[Unit, ...]
    tests: tuple[Question, ...]
    budget: Budget = field(default_factory=Budget)
    confined: bool = True
    files: Mapping[str, str] = field(default_factory=dict)
    package: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        data = json.loads(text)
        return cls(
            units=tuple(Unit(**u) for u in data["units"]),
            tests=tuple(Question(**t) for t in data["tests"]),
            budget=Budget(**data["budget"]),
            confined=data["confined"],
            files=data["files"],
            package=data["package"],
        )


@dataclass
class Transcript:
    """What the process said: claims, and how each cell ended.

    Attributes:
        cells: by unit id: {"text", "shown", "error"}.
        tests: by test id: {"claims", "error"}.
        ended: by unit or test id: why the process ended there.
        level: what was around the process.
    """

    cells: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    level: str = ""
    seconds: float = 0.0
    attempts: int = 0
