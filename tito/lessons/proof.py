"""The proof that grading grades: what each test cell of a lesson is worth.

For a lesson: the student version shows no solution; with the reference every cell runs and the
score is full; unsolved it is 0, and every graded cell fails; a body that returns nothing, or an
object equal to everything, earns nothing; each wrong solution in mistakes.py loses exactly the
points that it says; and each right solution of another structure there has all points. The test of
a bug to find fails by a check, and passes on the mended code. Each attempt runs in a process of its
own, with one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tito.cells import CELL_SECONDS, Cell as Run, Outcome, run_attempts
from tito.checks import CheckError
from tito.lessons.build import Course
from tito.lessons.cells import Cell
from tito.lessons.exercise import (
    BEGIN,
    BEGIN_HIDDEN,
    END_HIDDEN,
    solution_lines,
)
from tito.lessons.mistake import Alternative, Mistake, load_alternatives, load_mistakes
from tito.lessons.model import Lesson
from tito.lessons.names import imports_in
from tito.lessons.pages import page
from tito.lessons.wrong import EQUAL_TO_EVERYTHING, RESULTS, with_result
from tito.scripts import ROOT

GRADED = ("given", "solution", "test")
LEAST_MISTAKES = 2  # for each exercise
TELLING = 20  # characters from which on a line says something
LESSON_SECONDS = 60.0
EXPERIMENT_SECONDS = 60.0  # a test has as long as when it is graded
CHECKS = ("equal(", "close(", "raises(", "check(")
AT_ONCE = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # an attempt is one process
SEEDED = "import tinytorch; tinytorch.manual_seed(0)"  # as an exam does, a proof is one each time


@dataclass(frozen=True)
class Proof:
    """What was found out about a lesson.

    Attributes:
        findings: what is not as it should be; empty if the lesson is proved.
        attempts: how many solutions were run, right and wrong ones.
        seconds: that the whole lesson takes with the reference.
        mutants: how many small changes to the reference were run.
        equivalent: how many of them are listed as right too.
    """

    lesson: str
    findings: tuple[str, ...]
    attempts: int
    seconds: float
    mutants: int = 0
    equivalent: int = 0


@dataclass(frozen=True)
class _Attempt:
    """Cells to run, and what has to come out."""

    cells: list[Cell]
    judge: Callable[[list[Cell], list[Outcome]], Iterator[str]]


def prove_lesson(course: Course, lesson: Lesson, *, at_once: int = AT_ONCE) -> Proof:
    """Run all attempts at a lesson.

    Args:
        at_once: how many processes.

    Raises:
        LessonError: it cannot be built.
        TypeError: its mistakes.py is not as it should be.
    """
    cells = course.cells(lesson)
    mistakes = load_mistakes(lesson.path.with_name("mistakes.py"))
    alternatives = load_alternatives(lesson.path.with_name("mistakes.py"))
    findings = [*leaks(cells, page(lesson, course.package)), *check_mistakes(lesson, mistakes)]
    findings += check_alternatives(lesson, alternatives)
    attempts = [_Attempt(_everything(cells), _all_pass), _Attempt(_unsolved(cells), _all_fail)]
    attempts += _mechanical(cells, lesson)
    known = {exercise.id for exercise in lesson.exercises}
    attempts += [_mistaken(cells, m) for m in mistakes if m.exercise in known]
    attempts += [_alternative(cells, a) for a in alternatives if a.exercise in known]
    imports = imports_in(cell.source for cell in cells if cell.kind != "markdown")

    def run(first: int) -> list[list[Outcome]]:
        share = [attempt.cells for attempt in attempts[first::at_once]]
        return _run(share, imports, course.root)

    results: list[list[Outcome]] = [[]] * len(attempts)
    with ThreadPoolExecutor(at_once) as pool:
        for first, outcomes in enumerate(pool.map(run, range(at_once))):
            results[first::at_once] = outcomes
    for attempt, outcomes in zip(attempts, results, strict=True):
        findings += attempt.judge(attempt.cells, outcomes)
    seconds = sum(outcome.seconds for outcome in results[0])
    if seconds > LESSON_SECONDS:
        findings.append(f"the lesson takes {seconds:.0f} s; {LESSON_SECONDS:.0f} s are the most")
    return Proof(lesson.folder, tuple(findings), len(attempts), seconds)


def leaks(cells: Sequence[Cell], site_page: str) -> Iterator[str]:
    """Where a solution or a hidden test shows in the student version or on the page."""
    secret: dict[str, str] = {}
    for cell in cells:
        if cell.kind == "solution":
            for line in solution_lines(cell.source):
                if len(line) >= TELLING and not line.startswith("#"):
                    secret[line] = f"a line of the solution of {cell.id}"
        elif cell.kind == "test":
            for line in _hidden_lines(cell.source):
                secret[line] = f"a line of the hidden test {cell.id}"
    told = [(f"cell {cell.id}", cell.student) for cell in cells if cell.kind != "mended"]
    secret |= _mended_lines(cells)
    shown = [*told, ("the page", site_page)]
    for where, text in shown:
        if BEGIN in text or BEGIN_HIDDEN in text:
            yield f"{where} of the student version has a marker in it"
        for line in text.split("\n"):
            if line.strip() in secret:
                yield f"{where} shows {secret[line.strip()]}: {line.strip()}"


def _mended_lines(cells: Sequence[Cell]) -> dict[str, str]:
    """What only the mended code has: lines of the bug, or of other code, are no secret."""
    code = [cell.student for cell in cells if cell.kind not in ("markdown", "mended")]
    known = {line.strip() for source in code for line in source.split("\n")}
    return {
        line.strip(): f"a line of the mended {cell.exercise}"
        for cell in cells
        if cell.kind == "mended"
        for line in cell.source.split("\n")
        if len(line.strip()) >= TELLING and line.strip() not in known
    }


def _hidden_lines(source: str) -> list[str]:
    _, _, below = source.partition(BEGIN_HIDDEN)
    hidden = (line.strip() for line in below.partition(END_HIDDEN)[0].split("\n"))
    return [line for line in hidden if line.startswith(CHECKS) and len(line) >= TELLING]


def check_mistakes(lesson: Lesson, mistakes: Sequence[Mistake]) -> Iterator[str]:
    """Where a list of mistakes does not fit its lesson."""
    worth = {test.id: test.points for test in lesson.tests}
    known = {exercise.id for exercise in lesson.exercises}
    for mistake in mistakes:
        if mistake.exercise not in known:
            yield f"mistake {mistake.name!r} is for {mistake.exercise}, which is no exercise"
        if not mistake.loses:
            yield f"mistake {mistake.name!r} loses nothing"
        for test, points in mistake.loses.items():
            if worth.get(test) != points:
                has = f"has {worth[test]} points" if test in worth else "is no test cell"
                yield f"mistake {mistake.name!r} loses {points} in {test}, which {has}"
    for exercise in lesson.exercises:
        count = sum(m.exercise == exercise.id for m in mistakes)
        if count < LEAST_MISTAKES:
            least = f"{LEAST_MISTAKES} are the least"
            yield f"mistakes.py has {count} mistakes for exercise {exercise.id}; {least}"


def check_alternatives(lesson: Lesson, alternatives: Sequence[Alternative]) -> Iterator[str]:
    """Where a list of right solutions does not fit its lesson; a lesson has one for each exercise,
    or none yet."""
    known = {exercise.id for exercise in lesson.exercises}
    there = {alternative.exercise for alternative in alternatives}
    for exercise in sorted(there - known):
        yield f"an alternative is for {exercise}, which is no exercise"
    for exercise in sorted(known - there) if alternatives else ():
        yield f"mistakes.py has no alternative for exercise {exercise}"


def _run(
    attempts: Sequence[Sequence[Cell]], imports: Sequence[str], root: Path
) -> list[list[Outcome]]:
    runs = [[Run(cell.id, cell.source, _limit(cell)) for cell in cells] for cells in attempts]
    return run_attempts(runs, [*imports, SEEDED], path=[root, ROOT], environment=ONE_THREAD)


def _limit(cell: Cell) -> float:
    return CELL_SECONDS if cell.kind == "test" else EXPERIMENT_SECONDS


def _everything(cells: Sequence[Cell]) -> list[Cell]:
    """All code as a student runs it. Behind each bug its test is run on the mended code too, then
    the bug is back: who has not found it goes on with it."""
    shown = {cell.exercise: cell for cell in cells if cell.kind == "shown"}
    bugs = {cell.id: cell for cell in cells if cell.id in shown}
    chosen: list[Cell] = []
    for cell in cells:
        if cell.kind == "mended":
            passes = replace(shown[cell.exercise], kind="shown on mended")
            chosen += [cell, passes, bugs[cell.exercise]]
        elif cell.kind != "markdown":
            chosen.append(cell)
    return chosen


def _all_pass(cells: list[Cell], outcomes: list[Outcome]) -> Iterator[str]:
    for cell, outcome in zip(cells, outcomes, strict=True):
        if cell.kind == "shown":
            yield from _fails_by_a_check(cell, outcome)
        elif not outcome.ok:
            yield f"with the reference {cell.kind} cell {cell.id} fails: {_reason(outcome)}"


def _fails_by_a_check(cell: Cell, outcome: Outcome) -> Iterator[str]:
    """A test that stops on a missing name would not see the bug."""
    if outcome.ok:
        yield f"the shown test of {cell.exercise} passes on the buggy code"
    elif outcome.failure is None or outcome.failure.type != CheckError.__name__:
        said = _reason(outcome)
        yield f"the shown test of {cell.exercise} does not fail by a check of its own: {said}"


def _unsolved(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are graded, without solutions and with the hidden tests."""
    return [
        _with_source(cell, cell.student) if cell.kind == "solution" else cell
        for cell in cells
        if cell.kind in GRADED
    ]


def _all_fail(cells: list[Cell], outcomes: list[Outcome]) -> Iterator[str]:
    for cell, outcome in zip(cells, outcomes, strict=True):
        if cell.kind == "test" and outcome.ok:
            yield f"test cell {cell.id} passes with nothing written: {cell.points} points for free"


def _mechanical(cells: Sequence[Cell], lesson: Lesson) -> Iterator[_Attempt]:
    """For each exercise, with the others solved, the two wrong solutions made by machine."""
    helper = Cell("given", "equal-to-everything", EQUAL_TO_EVERYTHING)
    for exercise in lesson.exercises:
        for name, result in RESULTS.items():
            chosen = [helper] + [
                _with_source(cell, with_result(cell.source, result))
                if cell.id == exercise.id
                else cell
                for cell in cells
                if cell.kind in ("given", "solution")
                or (cell.kind == "test" and cell.exercise == exercise.id)
            ]
            yield _Attempt(chosen, _earns_nothing(name))


def _earns_nothing(name: str) -> Callable[[list[Cell], list[Outcome]], Iterator[str]]:
    def judge(cells: list[Cell], outcomes: list[Outcome]) -> Iterator[str]:
        for cell, outcome in zip(cells, outcomes, strict=True):
            if cell.kind == "test" and outcome.ok:
                yield f"test cell {cell.id} passes with a body that {name}"

    return judge


def _with_below(
    cells: Sequence[Cell], exercise: str, source: str, loses: Collection[str] = ()
) -> list[Cell]:
    """What is graded, with code below a solution: a later definition replaces an earlier one. The
    tests above it, which cannot see it, are left out unless they should lose points."""
    place = next(i for i, cell in enumerate(cells) if cell.id == exercise)
    return [
        _with_source(cell, f"{cell.source}\n\n\n{source.strip()}") if i == place else cell
        for i, cell in enumerate(cells)
        if cell.kind in GRADED and (i >= place or cell.kind != "test" or cell.id in loses)
    ]


def _mistaken(cells: Sequence[Cell], mistake: Mistake) -> _Attempt:
    chosen = _with_below(cells, mistake.exercise, mistake.source, mistake.loses)

    def judge(cells: list[Cell], outcomes: list[Outcome]) -> Iterator[str]:
        for cell, outcome in zip(cells, outcomes, strict=True):
            which = f"mistake {mistake.name!r} of {mistake.exercise}"
            if cell.kind != "test" and not outcome.ok:
                yield f"{which}: {cell.kind} cell {cell.id} does not run: {_reason(outcome)}"
            elif cell.id in mistake.loses and outcome.ok:
                yield f"{which} should lose {cell.points} points in {cell.id}, which passes"
            elif cell.kind == "test" and cell.id not in mistake.loses and not outcome.ok:
                yield f"{which} fails {cell.id}, which it does not list: {_reason(outcome)}"

    return _Attempt(chosen, judge)


def _alternative(cells: Sequence[Cell], alternative: Alternative) -> _Attempt:
    chosen = _with_below(cells, alternative.exercise, alternative.source)

    def judge(cells: list[Cell], outcomes: list[Outcome]) -> Iterator[str]:
        which = f"the right solution {alternative.name!r} of {alternative.exercise}"
        for cell, outcome in zip(cells, outcomes, strict=True):
            if not outcome.ok:
                yield f"{which} fails {cell.id}: {_reason(outcome)}"

    return _Attempt(chosen, judge)


def _with_source(cell: Cell, source: str) -> Cell:
    return Cell(cell.kind, cell.id, source, cell.exercise, cell.points)


def _reason(outcome: Outcome) -> str:
    if outcome.failure is None:
        return "the process ended before it"
    where = outcome.failure.frames[-1] if outcome.failure.frames else None
    at = f" (line {where.line} of {where.cell})" if where else ""
    return f"{outcome.failure.type}: {outcome.failure.message}{at}"
