"""Do the tests of a lesson notice every small mistake? Each mutant of the reference must fail one.

A mutant that no test cell refuses is either another right solution, which mistakes.py lists as
`EQUIVALENT` with the reason, or it shows what the tests do not ask.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito import limits as limits_
from tito.cells import child_environment
from tito.lessons.cells import Cell
from tito.lessons.mistake import Equivalent
from tito.lessons.model import Exercise, Lesson
from tito.lessons.mutate import Mutant, mutants_of
from tito.lessons.names import bound_names, imports_in, read_names
from tito.lessons.needed import name_in_file
from tito.limits import Limits
from tito.scripts import ROOT

CHILD = Path(__file__).with_name("mutants_child.py")
REFERENCE_SECONDS = 60.0  # of CPU time, as the next two
LEAST_SECONDS = 2.0  # for each mutant
TIMES_REFERENCE = 10.0  # one that takes longer is taken to be endless
DEADLOCK_SECONDS = 10.0  # of wall time in which no thread runs; test cells wait for at most 5 s
LIMITS = Limits(seconds=3600, memory_bytes=8 << 30, file_bytes=1 << 30)
# One thread, so that a fork has all of the process; and sets in the same order each time.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
GRADED = ("given", "solution", "test")


@dataclass(frozen=True)
class Mutants:
    """What became of the mutants of a lesson.

    Attributes:
        findings: survivors that are not listed, and listed ones that do not survive.
        count: of all mutants.
        equivalent: how many of them are listed, and survive.
    """

    findings: tuple[str, ...]
    count: int
    equivalent: int


def run_mutants(
    lesson: Lesson,
    cells: Sequence[Cell],
    equivalent: Sequence[Equivalent],
    root: Path,
    *,
    at_once: int = 2,
    progress: Callable[[int], None] = lambda done: None,
) -> Mutants:
    """Mutate the reference of each exercise, and run the test cells that can notice it: its own,
    and those of later exercises that use what it defines.

    Args:
        root: of the repository; its package is imported.
        at_once: how many exercises at a time.
        progress: is told how many mutants have been run, after each exercise.
    """

    def run(exercise: Exercise) -> tuple[list[Mutant], list[dict[str, Any]]]:
        reference = next(cell for cell in cells if cell.id == exercise.id)
        mutants = mutants_of(exercise.id, reference.source)
        verdicts = _run(exercise, cells, [reference.source, *(m.source for m in mutants)], root)
        progress(len(mutants))
        return mutants, verdicts

    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(run, lesson.exercises))
    findings = [_unknown(each, lesson) for each in equivalent]
    for exercise, (mutants, verdicts) in zip(lesson.exercises, results, strict=True):
        findings += _judged(exercise, mutants, verdicts, equivalent)
    count = sum(len(mutants) for mutants, _ in results)
    return Mutants(tuple(filter(None, findings)), count, len(equivalent))


def count_mutants(lesson: Lesson, cells: Sequence[Cell]) -> int:
    """How many mutants the exercises of a lesson have."""
    known = {exercise.id for exercise in lesson.exercises}
    return sum(len(mutants_of(cell.id, cell.source)) for cell in cells if cell.id in known)


def _unknown(listed: Equivalent, lesson: Lesson) -> str:
    if listed.exercise in {exercise.id for exercise in lesson.exercises}:
        return "" if listed.reason.strip() else f"equivalent {listed.change!r} has no reason"
    return f"equivalent {listed.change!r} is for {listed.exercise}, which is no exercise"


def _judged(
    exercise: Exercise,
    mutants: Sequence[Mutant],
    verdicts: Sequence[dict[str, Any]],
    equivalent: Sequence[Equivalent],
) -> Iterator[str]:
    if len(verdicts) != len(mutants) + 1 or verdicts[0]["failed"]:
        said = verdicts[0] if verdicts else {"failed": "the process", "why": "ended at once"}
        yield (
            f"the mutants of {exercise.id} cannot be judged: with the reference {said['failed']} "
            f"fails: {said['why']} ({len(verdicts)} of {len(mutants) + 1} were run)"
        )
        return
    listed = {each.change for each in equivalent if each.exercise == exercise.id}
    for mutant, verdict in zip(mutants, verdicts[1:], strict=True):
        if not verdict["failed"] and mutant.change not in listed:
            yield f"no test of {exercise.id} notices this change: {mutant.change}"
        elif verdict["failed"] and mutant.change in listed:
            yield (
                f"listed as equivalent in {exercise.id}, but {verdict['failed']} fails: "
                f"{mutant.change}"
            )
    for change in sorted(listed - {mutant.change for mutant in mutants}):
        yield f"listed as equivalent in {exercise.id}, but there is no such mutant: {change}"


def _run(
    exercise: Exercise, cells: Sequence[Cell], solutions: list[str], root: Path
) -> list[dict[str, Any]]:
    """The verdict on each solution, in order; fewer if the process died."""
    before, after = _around(exercise, [cell for cell in cells if cell.kind in GRADED])
    plan = {
        "imports": imports_in(cell.source for cell in after),
        "exercise": exercise.id,
        "before": [{"name": c.id, "source": c.source} for c in before],
        "after": [{"name": c.id, "source": c.source} for c in after],
        "solutions": solutions,
        "seconds": (REFERENCE_SECONDS, LEAST_SECONDS, TIMES_REFERENCE, DEADLOCK_SECONDS),
    }
    with tempfile.TemporaryDirectory(prefix="tito-mutants-") as folder:
        todo, events = Path(folder, "plan.json"), Path(folder, "events.jsonl")
        todo.write_text(json.dumps(plan), encoding="utf-8")
        limits_.run(
            [sys.executable, str(CHILD), str(todo), str(events)],
            LIMITS,
            cwd=folder,
            env=child_environment([root, ROOT], ENVIRONMENT),
        )
        lines = events.read_text("utf-8").splitlines() if events.exists() else []
    return [json.loads(line) for line in lines]


def _around(exercise: Exercise, cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells that an exercise needs above it, and those below it that can notice a change."""
    place = next(i for i, cell in enumerate(cells) if cell.id == exercise.id)
    before = [cell for cell in cells[:place] if cell.kind != "test"]
    affected = {name_in_file(target) for target in exercise.targets}
    if "gradient" in affected:
        affected.add("table")  # which collects the lines
    after = []
    last = 0
    for cell in cells[place + 1 :]:
        reads = bool(read_names(cell.source) & affected)
        if cell.kind != "test":
            after.append(cell)
            own = bound_names(cell.source)
            affected = affected | own if reads else affected - own
        elif reads or cell.exercise == exercise.id:
            after.append(cell)
            last = len(after)
    return before, after[:last]
