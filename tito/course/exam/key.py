"""The answer key of a notebook: what the reference sends, found by running it in the sandbox.

The reference then sits its own exam, as a student would, and has to get full marks. So a test cell
that cannot be graded is found before a submission meets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tito.course.exam.instrument import Instrumented, InstrumentError, Source, instrument, loaded
from tito.course.exam.job import Budget, Job, Question, Unit
from tito.course.exam.judge import TestKey, judge
from tito.course.exam.run import run_job

OPAQUE = ("opaque", "class")  # a class on its own is compared by name


@dataclass(frozen=True)
class Key:
    """All test cells of a notebook with what is right, by grade_id."""

    tests: Mapping[str, TestKey]

    def to_run(self) -> tuple[Question, ...]:
        """What the student's process is sent."""
        return tuple(
            Question(t.id, t.source, t.visible, seconds=t.seconds) for t in self.tests.values()
        )


def make_key(
    cells: Sequence[Source], hidden: Sequence[str], *, budget: Budget, confined: bool = True
) -> Key:
    """The key of a notebook.

    Args:
        cells: given, solution and test cells of the instructor's version, in order.
        hidden: ids of the test cells that students do not see.

    Raises:
        InstrumentError: a test cell cannot be graded, or the reference fails in it.
        InfrastructureError: the sandbox did not start.
    """
    tests = instrument(cells)
    units = tuple(
        Unit(f"unit {i}", None, cell.id)
        if cell.kind == "test"
        else Unit(f"unit {i}", cell.text, seconds=cell.seconds)
        for i, cell in enumerate(cells)
    )
    limits = {cell.id: cell.seconds for cell in cells}
    asked = tuple(Question(t.id, t.for_reference(), True, seconds=limits[t.id]) for t in tests)
    job = Job(units, asked, budget, confined)
    said = run_job(job)
    keys = {}
    for test in tests:
        result = said.tests.get(test.id)
        error = said.ended.get(test.id) if result is None else result["error"]
        if result is None or error is not None:
            raise InstrumentError(f"the reference fails in test cell {test.id!r}: {_text(error)}")
        made = _test_key(test, result["claims"], tests, test.id not in hidden)
        keys[test.id] = replace(made, seconds=limits[test.id])
    return Key(_rehearsed(keys, tests, job))


def _test_key(
    test: Instrumented,
    claims: Sequence[Mapping[str, Any]],
    all_tests: Sequence[Instrumented],
    visible: bool,
) -> TestKey:
    local = frozenset(
        c["site"]
        for c in claims
        if any(_is_opaque(c.get(p)) and c[p][0] != "class" for p in ("got", "expected"))
    )
    elsewhere = set().union(*(loaded(t.source) for t in all_tests if t is not test))
    source = test.for_student(local, elsewhere)
    return TestKey(test.id, visible, source, test.sites, local, tuple(claims))


def _is_opaque(data: Any) -> bool:
    if isinstance(data, list):
        return (bool(data) and data[0] in OPAQUE) or any(map(_is_opaque, data))
    return False


def _rehearsed(
    keys: dict[str, TestKey], tests: Sequence[Instrumented], job: Job
) -> dict[str, TestKey]:
    """The keys that the reference passes; one that only fails for lack of a line gets it back."""
    for attempt in ("without what only the grader needs", "complete"):
        said = run_job(replace(job, tests=Key(keys).to_run()))
        failed = {
            id: verdict
            for id, key in keys.items()
            if not (verdict := judge(key, said.tests.get(id), said.ended.get(id))).passed
        }
        if not failed:
            return keys
        if attempt == "complete":
            break
        keys = {t.id: replace(keys[t.id], source=t.for_student(keys[t.id].local)) for t in tests}
    first, verdict = next(iter(failed.items()))
    raise InstrumentError(
        f"the reference passes test cell {first!r}, but not when its values are compared in "
        f"another process: {verdict.message}. Does it depend on chance, or on time?"
    )


def _text(error: Any) -> str:
    return f"{error['type']}: {error['message']}" if isinstance(error, dict) else str(error)
