"""How much of the work of a run was done by the student's code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito.lessons.source import Target
from tito.workspace.package import NAME, spans

# What a kernel is made of: backends without their machinery, and the ops' scalar functions.
KERNELS = (f"{NAME}/backends/", f"{NAME}/ops.py")
MACHINERY = tuple(
    f"{NAME}/backends/{name}.py" for name in ("__init__", "base", "load", "signatures")
)


@dataclass(frozen=True)
class Share:
    """Functions of the package and of the student's files that ran, and the student's among them.

    Attributes:
        functions, own_functions: how many ran.
        calls, own_calls: of functions; calls inside of compiled code are not counted.
        flops, own_flops: of all ops, and of those whose kernels are, at least in part, theirs.
        own: the student's definitions that ran, and how often they were called; 0 if they ran as
            compiled code.
        missing: definitions that ran, that a lesson has as an exercise, and that are ours still.
    """

    functions: int
    own_functions: int
    calls: int
    own_calls: int
    flops: int
    own_flops: int
    own: Mapping[str, int]
    missing: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "own": dict(self.own), "missing": list(self.missing)}


def measure(
    root: Path, report: Mapping[str, Any], mine: Iterable[str], course: Iterable[str]
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
    own: dict[str, int] = {}
    missing: set[str] = set()
    theirs: set[int] = set()  # numbers of functions
    functions: Sequence[Mapping[str, Any]] = report["functions"]
    for number, code in enumerate(functions):
        around = {text for span, text in by_file.get(code["file"], []) if code["first"] in span}
        if not code["file"].startswith(f"{NAME}/"):
            around = {f"{code['file']}::{code['name']}"}  # a file of their own
            wanted |= around
        if wanted & around:
            theirs.add(number)
            for text in wanted & around:
                own[text] = own.get(text, 0) + code["calls"]
        else:
            missing |= around
    kernels = {number for number in theirs if _is_kernel(functions[number]["file"])}
    return Share(
        len(functions),
        len(theirs),
        sum(code["calls"] for code in functions),
        sum(functions[number]["calls"] for number in theirs),
        sum(op["flops"] for op in report["ops"]),
        sum(op["flops"] for op in report["ops"] if kernels & set(op["functions"])),
        own,
        tuple(sorted(missing)),
    )


def _is_kernel(file: str) -> bool:
    own_file = not file.startswith(f"{NAME}/")
    return own_file or (file.startswith(KERNELS) and file not in MACHINERY)


def times(calls: int) -> str:
    """How often, in words: "once", "1,200 times"."""
    return "once" if calls == 1 else f"{calls:,} times"


def read_report(path: Path) -> dict[str, Any]:
    """The report of a script that was traced; empty if it was killed before it wrote one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        value = None
    return value if isinstance(value, dict) else {"functions": [], "ops": []}
