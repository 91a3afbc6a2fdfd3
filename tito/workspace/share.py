"""How much of the code that ran was the student's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito.lessons.source import Target
from tito.workspace.package import spans


@dataclass(frozen=True)
class Share:
    """Functions of the package that ran, and which of them were the student's.

    Attributes:
        functions, lines: how many ran, and how many lines of code they have.
        own_functions, own_lines: of them the student's.
        own: the student's definitions that ran, and how often they were called.
        missing: definitions that ran, that a lesson has as an exercise, and that are ours still.
    """

    functions: int
    lines: int
    own_functions: int
    own_lines: int
    own: Mapping[str, int]
    missing: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "own": dict(self.own), "missing": list(self.missing)}


def measure(
    root: Path, report: Sequence[Mapping[str, Any]], mine: Iterable[str], course: Iterable[str]
) -> Share:
    """What a trace's report says.

    Args:
        root: the folder of the package that ran.
        report: from `trace.Trace.report`.
        mine: definitions that the student completed.
        course: definitions of all lessons.
    """
    by_file: dict[str, list[tuple[range, str]]] = {}
    wanted = set(mine)
    for text, span in spans(root, wanted | set(course)).items():
        by_file.setdefault(Target.parse(text).path, []).append((span, text))
    lines: set[tuple[str, int]] = set()
    own_lines: set[tuple[str, int]] = set()
    own: dict[str, int] = {}
    missing: set[str] = set()
    own_functions = 0
    for code in report:
        around = [text for span, text in by_file.get(code["file"], []) if code["first"] in span]
        its_lines = {(code["file"], line) for line in code["lines"]}
        lines |= its_lines
        if wanted & set(around):
            own_functions += 1
            own_lines |= its_lines
            for text in wanted & set(around):
                own[text] = own.get(text, 0) + code["calls"]
        else:
            missing |= set(around)
    return Share(
        len(report), len(lines), own_functions, len(own_lines), own, tuple(sorted(missing))
    )


def times(calls: int) -> str:
    """How often, in words: "once", "1,200 times"."""
    return "once" if calls == 1 else f"{calls:,} times"


def read_report(path: Path) -> list[dict[str, Any]]:
    """The report of a script that was traced; empty if it was killed before it wrote one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return value if isinstance(value, list) else []
