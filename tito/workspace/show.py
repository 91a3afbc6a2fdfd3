"""Results of tests in words: what failed, where in the student's cell, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tito.cells import Failure, Outcome
from tito.lessons.model import Exercise
from tito.lessons.needed import name_in_file
from tito.workspace.module import Completion
from tito.workspace.run import Answer, Graded, Result
from tito.workspace.share import times

HIDDEN = "a hidden test; its values are not shown"
OUTPUT_LINES = 8
CONTEXT_LINES = 3


def result_lines(result: Result) -> Iterator[str]:
    """What `tito module test` prints."""
    lesson = result.lesson
    yield f"{lesson.folder}, from {result.path.name}"
    width = max((len(answer.exercise.id) for answer in result.answers), default=0)
    for answer in result.answers:
        points = f"{answer.points}/{answer.exercise.points}"
        yield f"  {answer.exercise.id:{width}}  {points:>5}  {status_of(answer)}"
    for answer in result.answers:
        if not answer.passed and not answer.not_written:
            yield ""
            yield from answer_lines(answer)
    yield from _stray_lines(result)
    yield ""
    whole = sum(answer.exercise.points for answer in result.answers)
    yield f"{result.points} of {whole} points"
    if result.passed:
        yield f"next: tito module complete {lesson.number:02}"
    else:
        first = next(answer for answer in result.answers if not answer.passed)
        yield f"a hint: tito module hint {lesson.number:02} {first.exercise.id}"


def status_of(answer: Answer) -> str:
    """How an exercise is, in a word or two."""
    if answer.passed:
        return "passed"
    if answer.cell is None:
        return "its cell is missing"
    return "not written yet" if answer.not_written else "failed"


def answer_lines(answer: Answer) -> Iterator[str]:
    """What is wrong with an answer that does not pass."""
    name = answer.exercise.id
    if answer.cell is None:
        yield f"{name}: the file has no cell with this id; `tito module reset` brings it back, and"
        yield "  keeps your file as a backup"
        return
    if answer.outcome.failure is not None:
        yield f"{name}: the cell itself fails"
        yield from _failure_lines(answer.outcome.failure, name)
        return
    for tested in answer.tests:
        if not tested.outcome.ok:
            yield from _test_lines(tested, answer.exercise)


def _test_lines(tested: Graded, of: Exercise) -> Iterator[str]:
    test, outcome, exercise = tested.test, tested.outcome, of.id
    yield f"{exercise}: {test.id} ({test.points} point{'s' * (test.points != 1)}) fails"
    yield f"  checks: {test.checks}"
    if not outcome.ran:
        yield "  it was not reached: the process ended in a cell before it"
        return
    if outcome.failure is not None and outcome.failure.type == "CheckError" and not test.visible:
        yield f"  {HIDDEN}"
    elif outcome.failure is not None:
        shown = outcome.failure.frames
        if not test.visible:
            shown = tuple(frame for frame in shown if frame.cell != test.id)
        yield from _failure_lines(replace(outcome.failure, frames=shown), exercise)
        for name in {name_in_file(target) for target in of.targets}:
            if outcome.failure.message == f"name {name!r} is not defined":
                yield f"  the cell of {exercise} does not define {name}"
    if test.visible:
        yield from _output_lines(outcome)
    yield f"  why: {test.why}"


def _failure_lines(failure: Failure, exercise: str) -> Iterator[str]:
    """The message, and the last line of the student's cell that the error went through."""
    if failure.type in ("CheckError", "ProcessEnded", "CellTimeout"):
        yield from _indented(failure.message)
    else:
        yield from _indented(f"{failure.type}: {failure.message}")
    own = [frame for frame in failure.frames if frame.cell == exercise]
    if own:
        yield f"  in your cell, line {own[-1].line}: {own[-1].code.strip()}"
    elif failure.type != "CheckError" and failure.frames:
        last = failure.frames[-1]
        yield f"  in {last.cell}, line {last.line}: {last.code.strip()}"
    if not own and "'NoneType' object" in failure.message:
        yield "  something of yours is None here: is a `return` missing?"


def _output_lines(outcome: Outcome) -> Iterator[str]:
    printed = outcome.output.strip().splitlines()
    if printed:
        yield "  printed:"
        yield from (f"    {line}" for line in printed[-OUTPUT_LINES:])


def _stray_lines(result: Result) -> Iterator[str]:
    for cell, outcome in result.strays:
        assert outcome.failure is not None
        yield ""
        yield f"cell {cell.number}, one of your own, fails; that costs no points"
        yield from _failure_lines(outcome.failure, f"cell {cell.number}")


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.splitlines())


def result_json(result: Result) -> dict[str, Any]:
    """What `tito module test --json` prints."""
    return {
        "module": result.lesson.slug,
        "file": result.path.name,
        "passed": result.passed,
        "points": result.points,
        "of_points": sum(answer.exercise.points for answer in result.answers),
        "exercises": [
            {
                "id": answer.exercise.id,
                "status": status_of(answer),
                "points": answer.points,
                "of_points": answer.exercise.points,
                "message": [] if answer.passed else list(answer_lines(answer)),
                "tests": [
                    {"id": t.test.id, "passed": t.outcome.ok, "points": t.test.points}
                    for t in answer.tests
                ],
            }
            for answer in result.answers
        ],
    }


def beside(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Two texts line by line, equal lines beside each other: (left, right, whether they differ).

    Of many equal lines only those next to a difference are there.
    """
    rows: list[tuple[str, str, bool]] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        rows += [("...", "...", False)] * bool(rows)
        for tag, i1, i2, j1, j2 in group:
            for k in range(max(i2 - i1, j2 - j1)):
                a = left[i1 + k] if i1 + k < i2 else ""
                b = right[j1 + k] if j1 + k < j2 else ""
                rows.append((a, b, tag != "equal"))
    return rows


def completion_lines(result: Result, done: Completion) -> Iterator[str]:
    """What `tito module complete` prints."""
    lesson = result.lesson
    yield f"{lesson.folder}: all {result.points} points; your code is now in tinytorch/"
    for place, lines in done.lines.items():
        calls = done.share.own.get(place, 0)
        ran = f", called {times(calls)} by the integration tests" if calls else ""
        yield f"  {place}  {lines} line{'s' * (lines != 1)}{ran}"
    yield ""
    others = 0
    for held in done.integration.tests:
        if held.slug in (lesson.slug, ""):
            yield f"  holds: {held.says}"
        else:
            others += 1
    if others:
        yield f"  hold: {others} tests of the modules that you completed before"
    yield ""
    yield f"it now powers: {lesson.makes_possible}"


def completion_json(result: Result, done: Completion) -> dict[str, Any]:
    """What `tito module complete --json` prints."""
    return {
        "completed": True,
        **result_json(result),
        "lines": done.lines,
        "calls": dict(done.share.own),
        "integration": [{"module": t.slug, "says": t.says} for t in done.integration.tests],
        "powers": result.lesson.makes_possible,
    }
