"""Raw points, what lateness costs, and what counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tito.course.config import Course, quiet
from tito.course.students.extensions import extensions
from tito.course.students.policy import Handed, Late
from tito.course.tables import database


@dataclass(frozen=True)
class Counted:
    """A submission that is in the gradebook.

    Attributes:
        raw: points before anything is taken off.
        submitted: None if nobody knows when.
        deadline: of this student, an extension counted; None if the course has none.
        penalty: points that lateness costs.
    """

    assignment: str
    student: str
    raw: float
    max_score: float
    submitted: datetime | None
    deadline: datetime | None
    late: Late
    penalty: float

    @property
    def counted(self) -> float:
        """The points that count."""
        return max(0.0, self.raw - self.penalty)

    @property
    def late_seconds(self) -> float:
        if self.submitted is None or self.deadline is None:
            return 0.0
        return max(0.0, (self.submitted - self.deadline).total_seconds())


def counted(course: Course, gradebook: Any) -> dict[tuple[str, str], Counted]:
    """All submissions in the gradebook, by assignment and student.

    Late days belong to the whole course, so all of a student's submissions are needed for one.
    """
    with database(course) as engine:
        extended = extensions(engine)
    by_student: dict[str, list[Any]] = {}
    for assignment in gradebook.assignments:
        for submission in assignment.submissions:
            by_student.setdefault(submission.student_id, []).append(submission)
    found = {}
    for student, submissions in by_student.items():
        handed = [_handed(course, extended, student, each) for each in submissions]
        late = course.policy.late(handed)
        for each, when in zip(submissions, handed, strict=True):
            mine = late.get(when.assignment, Late())
            found[when.assignment, student] = _counted(course, each, when, mine)
    return found


def _handed(
    course: Course, extended: Mapping[tuple[str, str], datetime], student: str, submission: Any
) -> Handed:
    name = submission.assignment.name
    deadline = extended.get((name, student)) or course.policy.deadlines.get(name)
    due = submission.duedate  # nbgrader's own, where the course's settings name none
    if deadline is None and due is not None:
        deadline = due.replace(tzinfo=UTC)
    time = submission.timestamp
    return Handed(name, time.replace(tzinfo=UTC) if time is not None else None, deadline)


def _counted(course: Course, submission: Any, handed: Handed, late: Late) -> Counted:
    raw, most = float(submission.score), float(submission.max_score)
    penalty = float(submission.late_submission_penalty or 0.0)  # as nbgrader's plugin found it
    if course.policy.set:
        penalty = course.policy.penalty(late, raw, most)
    return Counted(
        handed.assignment,
        submission.student_id,
        raw,
        most,
        handed.submitted,
        handed.deadline,
        late,
        penalty,
    )


def settle(course: Course) -> None:
    """Write the penalties into nbgrader's own tables, for formgrader and the feedback pages."""
    if not course.policy.set:
        return
    with quiet(), course.gradebook() as gradebook:
        table = counted(course, gradebook)
        for assignment in gradebook.assignments:
            for submission in assignment.submissions:
                left = table[assignment.name, submission.student_id].penalty
                for notebook, share in _shares(submission.notebooks, left):
                    notebook.late_submission_penalty = share or None
        gradebook.db.commit()


def _shares(notebooks: Iterable[Any], penalty: float) -> Iterable[tuple[Any, float]]:
    """A penalty over the notebooks of a submission: of none more than it has."""
    for notebook in notebooks:
        share = min(float(notebook.score), penalty)
        penalty -= share
        yield notebook, share
