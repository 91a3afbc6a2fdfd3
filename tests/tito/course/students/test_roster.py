"""Files in the platforms' own form: students in, marks out, and the marks read back."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from tests.tito.course.conftest import ASSIGNMENT, give, settings, submission
from tito.course.collect import collect
from tito.course.config import Course, CourseError
from tito.course.students.roster import KNOWN, NEW, REFUSED, compare, export_roster, import_roster

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Quiz (17),Small (4242),Current Score,Final Score
,,,,,,Manual Posting,,
    Points Possible,,,,,5.00,10.00,(read only),(read only)
"Doe, Jane",4711,A01,jdoe,CS101,5.00,,100.00,33.33
"O'Neil, Bob",4712,A02,bob@example.edu,CS101 and CS101-2,,7.00,,
"=cmd|' /C calc'!A0, Eve",4713,,eve,CS101,,EX,,
"Student, Test",9999,,abcdef,CS101,,,,
"""
MOODLE = """\
Identifier,"Full name","Email address",Status,Grade,"Maximum Grade","Grade can be changed",\
"Last modified (submission)","Last modified (grade)","Feedback comments"
"Participant 311","Jane Doe",jane@example.edu,"Submitted for grading - ",,10.00,Yes,\
"Thursday, 1 October 2026, 8:15 PM",-,
"Participant 312","Bob O'Neil",bob@example.edu,"No submission",,10.00,Yes,-,-,
"Participant 313","Eve Ng",eve@example.edu,"Submitted for grading - Graded - ",4.00,10.00,No,-,-,
"""
GRADESCOPE = """\
First Name,Last Name,SID,Email,Role,Section
Jane,Doe,A01,jane@example.edu,Student,CS101
Bob,O'Neil,A02,bob@example.edu,Student,
Tess,Teacher,,tess@example.edu,Instructor,
"""


@pytest.fixture
def course(course: Course) -> Course:
    """Canvas calls the assignment Small; it is due, and each late day costs a tenth."""
    return settings(
        course,
        f"c.TinyTorch.deadlines = {{{ASSIGNMENT!r}: '2026-10-01 12:00 UTC'}}\n"
        "c.TinyTorch.late = {'penalty_per_day': 0.1}",
    )


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def test_canvas_takes_its_own_gradebook_back_with_our_marks_and_no_others(course: Course) -> None:
    found = import_roster(course, CANVAS.encode(), "canvas.csv")
    assert [(each.student, each.what) for each in found] == [
        ("jdoe", NEW), ("bob@example.edu", NEW), ("eve", NEW),
    ]  # fmt: skip
    give(course, "jdoe", submitted="2026-10-02 11:00", double_values=2, clamp_values=3)
    give(course, "eve", submitted="2026-10-01 11:00", double_values=2)
    text, notes = export_roster(course, "canvas", [ASSIGNMENT])
    head, points, jane, bob, eve, test = text.splitlines()
    assert head == "Student,ID,SIS User ID,SIS Login ID,Section,Small (4242)"
    assert points == "    Points Possible,,,,,10.00"
    assert jane == '"Doe, Jane",4711,A01,jdoe,CS101,4'  # five points, a tenth of ten off
    assert bob.endswith("CS101 and CS101-2,7.00")  # as Canvas had it: nothing of his is here
    assert eve.startswith("\"'=cmd|")
    assert eve.endswith(",EX")
    assert test.startswith('"Student, Test"')
    assert any("excused" in note for note in notes)
    again = compare(course, text.encode(), "canvas.csv", ASSIGNMENT)
    assert {d.student: (d.platform, d.here) for d in again} == {
        "bob@example.edu": (7, None), "eve": (None, 2),
    }  # fmt: skip
    assert [each.what for each in import_roster(course, text.encode(), "canvas.csv")] == [KNOWN] * 3


def test_a_column_that_canvas_has_not_is_made(course: Course) -> None:
    text = CANVAS.replace("Small (4242)", "Essay (4)")
    import_roster(course, text.encode(), "canvas.csv")
    give(course, "jdoe", submitted="2026-10-01 11:00", double_values=2)
    made, notes = export_roster(course, "canvas", [ASSIGNMENT])
    assert "will make an assignment" in notes[0]
    assert [row[ASSIGNMENT] for row in rows(made)] == ["10", "2", "", "", ""]
    titled = settings(course, f"c.TinyTorch.titles = {{{ASSIGNMENT!r}: 'Essay'}}")
    made, notes = export_roster(titled, "canvas", [ASSIGNMENT])
    assert rows(made)[1]["Essay (4)"] == "2"


def test_moodle_takes_its_worksheet_back(course: Course) -> None:
    with pytest.raises(CourseError, match="--assignment"):
        import_roster(course, MOODLE.encode(), "grades.csv")
    import_roster(course, MOODLE.encode(), "grades.csv", ASSIGNMENT)
    for student in ("jane@example.edu", "eve@example.edu"):
        give(course, student, submitted="2026-10-01 11:00", double_values=2, clamp_hidden=5)
    text, notes = export_roster(course, "moodle", [ASSIGNMENT])
    before, after = rows(MOODLE), rows(text)
    assert [row.pop("Grade") for row in after] == ["7.00", "", "4.00"]
    assert after == [{k: v for k, v in row.items() if k != "Grade"} for row in before]
    assert notes == ["Eve Ng: the grade is locked in Moodle"]
    assert [d.student for d in compare(course, text.encode(), "", ASSIGNMENT)] == [
        "eve@example.edu"
    ]


def test_moodle_with_another_maximum_is_refused(course: Course) -> None:
    other = MOODLE.replace("10.00", "100.00").encode()
    import_roster(course, other, "grades.csv", ASSIGNMENT)
    give(course, "jane@example.edu", submitted="2026-10-01 11:00", double_values=2)
    with pytest.raises(CourseError, match="100 points in Moodle and 10 here"):
        export_roster(course, "moodle", [ASSIGNMENT])


def test_gradescope_gets_grades_in_its_own_form_and_reads_them(course: Course) -> None:
    found = import_roster(course, GRADESCOPE.encode(), "roster.csv")
    assert [each.student for each in found] == ["jane@example.edu", "bob@example.edu"]
    give(course, "jane@example.edu", submitted="2026-10-02 14:03:04", double_values=2)
    text, _ = export_roster(course, "gradescope", [ASSIGNMENT])
    jane, bob = rows(text)
    assert list(jane) == [
        "First Name", "Last Name", "SID", "Email", "Sections", "small", "small - Max Points",
        "small - Submission Time", "small - Lateness (H:M:S)", "Total Lateness (H:M:S)",
    ]  # fmt: skip
    assert jane["small - Submission Time"] == "2026-10-02 14:03:04 +0000"
    assert jane["Total Lateness (H:M:S)"] == jane["small - Lateness (H:M:S)"] == "26:03:04"
    assert (jane["small"], bob["small"]) == ("0", "")  # two days, a tenth of ten each
    assert compare(course, text.encode(), "", ASSIGNMENT) == []


def test_one_person_on_three_platforms_is_one_student(course: Course) -> None:
    import_roster(course, CANVAS.replace("jdoe", "jane@example.edu").encode(), "c.csv")
    moodle = import_roster(course, MOODLE.encode(), "m.csv", ASSIGNMENT)
    gradescope = import_roster(course, GRADESCOPE.encode(), "g.csv")
    assert [(r.student, r.what) for r in moodle[:2]] == [
        ("jane@example.edu", KNOWN), ("bob@example.edu", KNOWN),
    ]  # fmt: skip
    assert {r.what for r in gradescope} == {KNOWN}
    mixed = GRADESCOPE.replace("A01", "A02").encode()
    assert import_roster(course, mixed, "g.csv")[0].what == REFUSED


def test_archives_are_collected_under_the_names_of_the_roster(
    course: Course, tmp_path: Path
) -> None:
    import_roster(course, CANVAS.encode(), "c.csv")
    archive = tmp_path / "submissions.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("doejane_4711_90210_small.ipynb", submission())
        packed.writestr("newcomer_5000_90211_small.ipynb", submission())
    found = {each.student for each in collect(course, ASSIGNMENT, archive)}
    assert found == {"jdoe", "newcomer_5000"}
    late = CANVAS + '"Comer, New",5000,A05,ncomer,CS101,,,,\n'.replace("Comer, New", "newcomer")
    assert import_roster(course, late.encode(), "c.csv")[-1].student == "newcomer_5000"


def test_a_table_of_nobody_is_said(course: Course) -> None:
    with pytest.raises(CourseError, match="is no table of Canvas"):
        import_roster(course, b"Name,Points\nJane,3\n", "list.csv")
