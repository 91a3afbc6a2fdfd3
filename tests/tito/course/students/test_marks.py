"""Raw points and what counts: extensions, nbgrader's own tables, and the export."""

from __future__ import annotations

import pytest

from tests.tito.course.conftest import ASSIGNMENT, give, settings
from tito.course.config import CONFIG, Course, CourseError
from tito.course.export import rows, to_csv
from tito.course.history.audit import entries
from tito.course.students.extensions import concealed, extend, extensions, withdraw
from tito.course.students.marks import settle
from tito.course.students.policy import parse_time
from tito.course.tables import database

FULL = {"double_values": 2, "clamp_values": 3, "clamp_hidden": 5}


@pytest.fixture
def course(course: Course) -> Course:
    return settings(
        course,
        f"c.TinyTorch.deadlines = {{{ASSIGNMENT!r}: '2026-10-01 12:00 UTC'}}\n"
        "c.TinyTorch.late = {'free_days': 1, 'penalty_per_day': 0.2, 'most_days': 4}",
    )


def test_the_report_shows_raw_points_and_those_that_count(course: Course) -> None:
    give(course, "ada", submitted="2026-10-01 11:59", **FULL)
    give(course, "bob", submitted="2026-10-04 11:00", **FULL)
    give(course, "eve", submitted="2026-10-09 11:00", **FULL)
    found = {r.student: (r.raw, r.late_days, r.free_days, r.penalty, r.score) for r in rows(course)}
    assert found == {"ada": (10, 0, 0, 0, 10), "bob": (10, 3, 1, 4, 6), "eve": (10, 8, 0, 10, 0)}
    head, *lines = to_csv(rows(course)).splitlines()
    assert "score,max_score,raw,penalty,late_days,free_days,deadline" in head
    assert "bob,graded,6.0,10.0,10.0,4.0,3,1,2026-10-01T12:00:00+00:00" in lines[1]


def test_an_extension_is_one_students_deadline_until_it_is_withdrawn(course: Course) -> None:
    give(course, "bob", submitted="2026-10-04 11:00", **FULL)
    with database(course) as engine:
        extend(engine, course.policy, ASSIGNMENT, "bob", days=1.5, reason="ill")
        assert rows(course)[0].score == 8
        extend(engine, course.policy, ASSIGNMENT, "bob", until=parse_time("2026-10-05 12:00 UTC"))
        assert (rows(course)[0].score, rows(course)[0].late_seconds) == (10, 0)
        assert withdraw(engine, ASSIGNMENT, "bob")
        assert not withdraw(engine, ASSIGNMENT, "bob")
        assert rows(course)[0].score == 6
        told = [(e.action, e.student, e.details["until"]) for e in entries(engine)]
        with pytest.raises(CourseError, match="has no deadline to count 2 days from"):
            extend(engine, course.policy, "other", "bob", days=2)
    assert told == [
        ("extend", "bob", "2026-10-03T00:00:00+00:00"),
        ("extend", "bob", "2026-10-05T12:00:00+00:00"),
        ("extend", "bob", None),
    ]


def test_an_extension_is_no_earlier_than_the_class_has(course: Course) -> None:
    with database(course) as engine:
        for wrong in ({"days": -1.0}, {"until": parse_time("2026-10-01 11:59 UTC")}):
            with pytest.raises(CourseError, match="is before the class's deadline, 2026-10-01T12"):
                extend(engine, course.policy, ASSIGNMENT, "bob", **wrong)  # type: ignore[arg-type]
        assert not extensions(engine)


def test_nbgraders_own_tables_have_the_penalty(course: Course) -> None:
    give(course, "bob", submitted="2026-10-04 11:00", **FULL)
    settle(course)
    with course.gradebook() as gradebook:
        assert gradebook.find_submission(ASSIGNMENT, "bob").late_submission_penalty == 4
    with database(course) as engine:
        extend(engine, course.policy, ASSIGNMENT, "bob", days=5)
    settle(course)
    with course.gradebook() as gradebook:
        assert gradebook.find_submission(ASSIGNMENT, "bob").late_submission_penalty == 0


def test_hidden_results_wait_for_the_last_students_deadline(course: Course) -> None:
    with database(course) as engine:
        extend(engine, course.policy, ASSIGNMENT, "bob", days=3)
        extended = extensions(engine)
    policy, before = course.policy, parse_time("2026-10-04 11:59 UTC")
    assert concealed(policy, extended, ASSIGNMENT, before) == parse_time("2026-10-04 12:00 UTC")
    assert concealed(policy, extended, ASSIGNMENT, parse_time("2026-10-04 12:00 UTC")) is None
    assert concealed(policy, {}, "other", before) is None


@pytest.mark.parametrize("name", ["tensor", "02", "02_tenzor"])
@pytest.mark.parametrize(
    "setting",
    [
        "deadlines = {NAME: '2026-10-01 12:00 UTC'}",
        "assignments = {NAME: {}}",
        "titles = {NAME: ''}",
    ],
)
def test_a_setting_for_an_assignment_that_is_not_there(
    course: Course, setting: str, name: str
) -> None:
    """A deadline for "tensor" was nobody's: the assignment is 02_tensor."""
    with pytest.raises(CourseError, match=f"there is no assignment '{name}': say 02_tensor"):
        settings(course, "c.TinyTorch." + setting.replace("NAME", repr(name)))


def test_settings_for_assignments_that_will_be_there(course: Course) -> None:
    names = {"02_tensor": "lesson", ASSIGNMENT: "here", "homework7": "later"}
    assert settings(course, f"c.TinyTorch.titles = {names}").titles == names


def test_wrong_settings_are_said_with_the_file(course: Course) -> None:
    with pytest.raises(CourseError, match=rf"{CONFIG}: PolicyError: '2026-10-01' is no time"):
        settings(course, "c.TinyTorch.deadlines = {'small': '2026-10-01'}")
