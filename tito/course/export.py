"""Grades to files: CSV for a spreadsheet, and the results that Gradescope reads.

Source: Gradescope, "Autograder specifications", https://gradescope-autograders.readthedocs.io.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tito.course import states
from tito.course.config import Course, quiet
from tito.course.feedback import graded_file, without_hidden_tests
from tito.course.files import write_whole
from tito.course.notebook import grade_id, hidden_tests, read_notebook
from tito.course.states import State, States
from tito.course.students.extensions import concealed, extensions
from tito.course.students.marks import Counted, counted
from tito.course.students.sheet import escape_formula
from tito.course.tables import database, stamp

NOT_GRADED = "not graded"
LATER = "after_due_date"  # of Gradescope
ORDER = (states.FAILED, states.RUNNING, NOT_GRADED, states.UNREADABLE, states.GRADED)


@dataclass(frozen=True)
class Row:
    """A submission and its grade; without a grade where none is known.

    Attributes:
        score: points that count, late penalty taken off; None if it is not graded.
        raw: points before that.
        late_days: days begun after the student's own deadline; `free_days` of them cost nothing.
        needs_manual_grade: something in it is for a person to grade.
        level: what was around the student's code.
    """

    assignment: str
    student: str
    state: str
    score: float | None
    max_score: float
    raw: float | None
    penalty: float
    late_days: int
    free_days: int
    deadline: str
    late_seconds: float
    needs_manual_grade: bool
    level: str
    detail: str
    seconds: float


def rows(course: Course, assignments: Sequence[str] = ()) -> list[Row]:
    """All submissions, by assignment and student; those that were never graded as well.

    Raises:
        CourseError: one of the assignments is not there.
    """
    for assignment in assignments:
        course.require(assignment)
    with quiet(), database(course) as engine, course.gradebook() as gradebook:
        known = list(States(engine).all().values())
        counts = counted(course, gradebook)
        found = {(s.assignment, s.student) for s in known} | _submitted(course)
        names = {a.name: float(a.max_score) for a in gradebook.assignments}
        made = []
        for assignment, student in sorted(found):
            if assignment not in names or (assignments and assignment not in assignments):
                continue
            mine = [s for s in known if (s.assignment, s.student) == (assignment, student)]
            one = counts.get((assignment, student))
            made.append(_row(gradebook, assignment, student, mine, names[assignment], one))
    return made


def _submitted(course: Course) -> set[tuple[str, str]]:
    return {(p.name, p.parent.name) for p in course.root.glob("submitted/*/*") if p.is_dir()}


def _row(
    gradebook: Any,
    assignment: str,
    student: str,
    mine: Sequence[State],
    max_score: float,
    found: Counted | None,
) -> Row:
    state = min((s.state for s in mine), key=ORDER.index, default=NOT_GRADED)
    if state not in (states.GRADED, states.UNREADABLE):
        found = None
    elif found is None:
        state = NOT_GRADED
    manual = found is not None and gradebook.find_submission(assignment, student).needs_manual_grade
    return Row(
        assignment=assignment,
        student=student,
        state=state,
        score=None if found is None else found.counted,
        max_score=max_score,
        raw=None if found is None else found.raw,
        penalty=0.0 if found is None else found.penalty,
        late_days=0 if found is None else found.late.days,
        free_days=0 if found is None else found.late.free,
        deadline="" if found is None or found.deadline is None else stamp(found.deadline),
        late_seconds=0.0 if found is None else found.late_seconds,
        needs_manual_grade=bool(manual),
        level="; ".join(dict.fromkeys(s.level for s in mine if s.level)),
        detail="; ".join(s.detail for s in mine if s.detail),
        seconds=round(sum(s.seconds for s in mine), 3),
    )


def to_csv(table: Sequence[Row]) -> str:
    """One line a submission; an empty score is no zero."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f.name for f in fields(Row)])
    for row in table:
        writer.writerow([escape_formula(value) for value in asdict(row).values()])
    return text.getvalue()


def to_gradescope(course: Course, table: Sequence[Row], to: Path) -> list[Path]:
    """Write ASSIGNMENT/STUDENT/results.json for each graded submission; the files."""
    written = []
    with quiet(), database(course) as engine, course.gradebook() as gradebook:
        known, extended = States(engine).all(), extensions(engine)
        for row in table:
            if row.score is None:
                continue
            path = to / row.assignment / row.student / "results.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            until = concealed(course.policy, extended, row.assignment)
            result = _results(course, gradebook, row, known, until is not None)
            write_whole(path, (json.dumps(result, indent=2) + "\n").encode())
            written.append(path)
    return written


def _results(course: Course, gradebook: Any, row: Row, known: Any, conceal: bool) -> dict[str, Any]:
    """The results of one submission, without how long it took and how it ended: a student's code
    could choose both by what a hidden test has passed to it.

    Args:
        conceal: show what hidden tests found, and the sum, only after Gradescope's own due date.
    """
    tests = []
    hidden = _hidden(course, row.assignment) if conceal else set()
    submission = gradebook.find_submission(row.assignment, row.student)
    for notebook in submission.notebooks:
        state = known.get((row.assignment, row.student, notebook.name))
        messages = _messages(course, state) if state is not None else {}
        for grade in notebook.grades:
            passed = grade.score >= grade.max_score
            tests.append(
                {
                    "name": grade.cell.name,
                    "score": grade.score,
                    "max_score": grade.max_score,
                    "status": "passed" if passed else "failed",
                    "output": messages.get(grade.cell.name, ""),
                    "output_format": "text",
                    "visibility": LATER if grade.cell.name in hidden else "visible",
                }
            )
    return {
        "score": row.score,
        "output": row.detail if row.state == states.UNREADABLE else "",
        "output_format": "text",
        "visibility": LATER if conceal else "visible",
        "tests": sorted(tests, key=lambda test: str(test["name"])),
    }


def _hidden(course: Course, assignment: str) -> set[str]:
    """The hidden tests of an assignment, by grade_id."""
    paths = course.folder("source", ".", assignment).glob("*.ipynb")
    return {name for path in paths for name in hidden_tests(read_notebook(path))}


def _messages(course: Course, state: State) -> dict[str, str]:
    """What the student may read at each test, by grade_id."""
    path = graded_file(course, state)
    if not path.is_file():
        return {}
    node = without_hidden_tests(read_notebook(path))
    return {
        name: "\n".join("\n".join(o.get("traceback", [])) for o in cell.outputs)
        for cell in node.cells
        if cell.cell_type == "code" and (name := grade_id(cell)) is not None
    }
