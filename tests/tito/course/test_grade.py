"""A batch from end to end on a small course: grades, states, resuming, pages, tables."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tests.tito.course.conftest import ASSIGNMENT, submission, write
from tests.tito.course.test_replaced import source, submitted
from tests.tito.course.test_sanitize import PNG
from tito.course import grade, states
from tito.course.config import CONFIG, Course, CourseError, create
from tito.course.exam.instrument import InstrumentError
from tito.course.exam.job import Job, Transcript
from tito.course.exam.pool import LocalPool
from tito.course.export import Row, rows, to_csv, to_gradescope
from tito.course.feedback import all_pages, feedback
from tito.course.generate import generate
from tito.course.grade import Grader
from tito.course.handout import release
from tito.course.states import State, States

pytestmark = needs_sandbox
HandIn = Callable[..., Path]


@pytest.fixture
def course(course_root: Path) -> Course:
    return Course.load(course_root)


def graded(course: Course, pool: Any = None, **options: Any) -> dict[str, State]:
    told: list[State | None] = []
    reached = Grader(course, ASSIGNMENT, **options).run(
        pool or LocalPool(2), lambda state, total: told.append(state)
    )
    assert told == [None, *reached]
    return {state.student: state for state in reached}


def scores(course: Course) -> dict[str, float | None]:
    return {row.student: row.score for row in rows(course)}


def test_generating_clears_solutions_and_hidden_tests(course: Course, tmp_path: Path) -> None:
    made = generate(course, ASSIGNMENT)
    assert (made.points, made.tests) == (10.0, 3)
    folder, archive = release(course, ASSIGNMENT, tmp_path / "handout")
    text = (folder / f"{ASSIGNMENT}.ipynb").read_text("utf-8")
    assert "return 2 * x" not in text
    assert "-41" not in text
    assert "double(4), 8" in text
    assert archive.is_file()


def test_a_reference_that_fails_its_own_tests_is_refused(course: Course) -> None:
    path = course.root / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    path.write_text(submission(write("clamp", "def clamp(x):\n    return x")), encoding="utf-8")
    with pytest.raises(InstrumentError, match="the reference fails in test cell 'clamp-values'"):
        generate(course, ASSIGNMENT)


def test_a_batch_with_everything_in_it(course: Course, hand_in: HandIn, tmp_path: Path) -> None:
    hand_in("right", submission())
    hand_in("half", submission(write("clamp", "raise NotImplementedError")))
    hand_in("warns", submission(write("double", "import sys\ndef double(x):\n"
        "    print('careful', file=sys.stderr)\n    return x * 2")))  # fmt: skip
    hand_in("tells", submission(write("clamp", "def clamp(x):\n    raise ValueError(f'tell {x}')")))
    hand_in("broken", "{")
    hand_in("linked", submission()).with_name("other.txt").symlink_to("/etc/hostname")
    found = graded(course)
    assert [s.detail for s in found.values() if s.state == states.FAILED] == []
    assert {name: state.state for name, state in found.items()} == {
        "right": states.GRADED, "half": states.GRADED, "warns": states.GRADED,
        "tells": states.GRADED, "broken": states.UNREADABLE, "linked": states.UNREADABLE,
    }  # fmt: skip
    assert scores(course) == {
        "right": 10, "half": 2, "warns": 10, "tells": 2, "broken": 0, "linked": 0,
    }  # fmt: skip

    pages = {s.student: feedback(course, s) for s in found.values()}
    text = {name: page.read_text("utf-8") for name, page in pages.items() if page is not None}
    assert set(text) == set(found)
    assert "could not be read: it is not JSON" in text["broken"]
    assert "hidden test: it checks whole numbers" in text["half"]
    assert "nothing below zero" in text["tells"]
    assert not [name for name, page in text.items() if "-41" in page]

    table = list(csv.DictReader(io.StringIO(to_csv(rows(course)))))
    assert {line["student"]: line["state"] for line in table}["broken"] == "unreadable"
    files = to_gradescope(course, rows(course), tmp_path)
    assert len(files) == len(found)
    half = json.loads((tmp_path / ASSIGNMENT / "half" / "results.json").read_text("utf-8"))
    assert half["score"] == 2
    assert [test["status"] for test in half["tests"]] == ["failed", "failed", "passed"]
    assert "-41" not in json.dumps(half)
    assert "execution_time" not in half  # code that waits for a hidden value would tell it
    assert half["output"] == ""


@pytest.mark.slow
def test_pictures_are_on_the_page_and_a_page_that_fails_stops_no_other(
    course: Course, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        note = {"cell_type": "markdown", "id": "note", "metadata": {}}
        pasted = {"a.png": {"image/png": PNG}, "b.html": {"text/html": "<b>"}}
        text = "![p](attachment:a.png) ![q](attachment:b.html) $x$"
        cells.append({**note, "source": text, "attachments": pasted})
        cells.append({**note, "id": "link", "source": "[go](javascript:alert(1))"})

    hand_in("ada", submission(edit))
    hand_in("bob", submission())
    found = list(graded(course).values())
    (course.root / "autograded" / "bob" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb").write_text("{")
    pages, failed = all_pages(course, found)
    assert list(failed) == [f"bob/{ASSIGNMENT}"]
    (page,) = pages
    text = page.read_text("utf-8")
    assert f"data:image/png;base64,{PNG}" in text
    assert 'href="javascript' not in text
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=.(https?:)?//", text)


@pytest.mark.slow
def test_the_next_run_does_what_is_new(course: Course, hand_in: HandIn) -> None:
    hand_in("ada", submission())
    hand_in("bob", submission())
    assert set(graded(course)) == {"ada", "bob"}
    assert graded(course) == {}
    hand_in("bob", submission(write("double", "")))
    assert set(graded(course)) == {"bob"}
    assert scores(course) == {"ada": 10, "bob": 8}
    assert set(graded(course, force=True, students=["ada"])) == {"ada"}


def test_an_exercise_whose_cell_is_not_there_is_said(course: Course, hand_in: HandIn) -> None:
    """It has no points; a program that drops the cells' metadata looks like nothing written."""
    hand_in("ada", submission(lambda cells: [cell["metadata"].clear() for cell in cells]))
    hand_in("bob", submission(lambda cells: cells.pop(1)))
    hand_in("eve", submission(write("double", "")))
    found = {student: state.detail for student, state in graded(course).items()}
    assert found == {
        "ada": "it has no cell of double, clamp", "bob": "it has no cell of double", "eve": "",
    }  # fmt: skip
    assert scores(course) == {"ada": 0, "bob": 8, "eve": 8}


@pytest.mark.slow
def test_the_faults_of_one_exercise_cost_no_other_one(course: Course) -> None:
    """In the student's package the wrong `normalize_dim` breaks the tests of `infer_size`."""
    name = "placed"
    folder = course.root / "source" / name
    folder.mkdir()
    (folder / f"{name}.ipynb").write_text(json.dumps(source()), encoding="utf-8")
    assert generate(course, name).points == 2
    wrong = "def normalize_dim(dim, ndim, what='dim'):\n    return 7"
    calls = "from tinytorch.functions.dims import infer_size, normalize_dim"
    for student, texts in {
        "ada": {}, "bob": {"normalize": wrong}, "eve": {"normalize": calls, "infer": calls},
    }.items():  # fmt: skip
        handed_in = course.root / "submitted" / student / name
        handed_in.mkdir(parents=True)
        node = submitted(**texts)
        (handed_in / f"{name}.ipynb").write_text(json.dumps(node), encoding="utf-8")
    Grader(course, name).run(LocalPool(2), lambda state, total: None)
    assert scores(course) == {"ada": 2, "bob": 1, "eve": 0}


class LosingPool(LocalPool):
    """The machine of one student fails, and the run is stopped before the last."""

    def run(self, jobs: Iterator[tuple[Any, Job]]) -> Iterator[tuple[Any, Transcript | Exception]]:
        for count, (name, answer) in enumerate(super().run(jobs)):
            if count == 2:
                raise KeyboardInterrupt
            yield name, OSError("worker lost") if name[0] == "ada" else answer


@pytest.mark.slow
def test_a_failure_of_the_machine_is_no_zero(course: Course, hand_in: HandIn) -> None:
    for student in ("ada", "bob", "cleo"):
        hand_in(student, submission())
    with pytest.raises(KeyboardInterrupt):
        graded(course, LosingPool(1))
    with course.gradebook() as gradebook:
        known = {s.student: s for s in States(gradebook.engine).all().values()}
    assert known["ada"].state == states.FAILED
    assert "worker lost" in known["ada"].detail
    assert scores(course) == {"ada": None, "bob": 10, "cleo": None}
    assert "ada,infrastructure,,10.0" in to_csv(rows(course))
    assert feedback(course, known["ada"]) is None
    assert set(graded(course)) == {"ada", "cleo"}
    assert scores(course) == {"ada": 10, "bob": 10, "cleo": 10}


def test_what_goes_wrong_in_the_grader_is_no_zero_either(
    course: Course, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", submission())

    def fail(*arguments: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(grade, "with_outputs", fail)
    assert graded(course)["ada"].state == states.FAILED
    assert scores(course) == {"ada": None}


def test_a_helper_file_of_the_course_replaces_the_students(course: Course, hand_in: HandIn) -> None:
    (course.root / "source" / ASSIGNMENT / "data.txt").write_text("2")
    uses = "def double(x):\n    return x * int(open('data.txt').read())"
    hand_in("ada", submission(write("double", uses))).with_name("data.txt").write_text("3")
    graded(course)
    assert scores(course) == {"ada": 10}


def test_a_source_that_has_changed_has_to_be_generated_again(course: Course) -> None:
    path = course.root / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    changed = write("double-values", "from tito.checks import equal\nequal(double(1), 2)")
    path.write_text(submission(changed), encoding="utf-8")
    with pytest.raises(CourseError, match="has changed since the assignment was made"):
        graded(course)


def test_what_is_not_there_is_told(course: Course, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="is not generated"):
        Grader(course, "other").run(LocalPool(1), lambda state, total: None)
    with pytest.raises(CourseError, match="nothing was submitted for small by eve"):
        graded(course, students=["eve"])
    with pytest.raises(CourseError, match="there is no course in"):
        Course.load(tmp_path)
    with pytest.raises(CourseError, match="there is a course in"):
        create(course.root)
    with pytest.raises(CourseError, match="the gradebook does not answer"):
        create(tmp_path / "new", db_url="postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert not (tmp_path / "new" / CONFIG).exists()


@pytest.mark.slow
def test_making_a_course_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    before = dict(os.environ)
    assert create(tmp_path / "course", course_id="cs1").directory().course_id == "cs1"
    assert dict(os.environ) == before


def test_an_assignment_may_have_limits_of_its_own(course: Course) -> None:
    path = course.root / CONFIG
    own = '\nc.TinyTorch.assignments = {"13_kernels": {"cell_seconds": 60}}\n'
    path.write_text(path.read_text("utf-8") + own, encoding="utf-8")
    found = Course.load(course.root)
    assert found.budget_for("13_kernels") == replace(found.budget, cell_seconds=60)
    assert found.budget_for("02_tensor") == found.budget


def test_settings_are_checked(course: Course) -> None:
    path = course.root / CONFIG
    path.write_text(path.read_text("utf-8") + "\nc.TinyTorch.cell_second = 3\n", encoding="utf-8")
    with pytest.raises(CourseError, match=r"no such setting: TinyTorch\.cell_second; known"):
        Course.load(course.root)


def test_a_table_is_no_place_for_formulas(course: Course) -> None:
    assert rows(course) == []
    numbers = dict.fromkeys(["raw", "penalty", "late_days", "free_days", "late_seconds"], 0)
    told = {"deadline": "", "level": "", "detail": "=1+1", "needs_manual_grade": False}
    made = Row("a", "+cmd", "graded", None, 2.0, seconds=0.0, **numbers, **told)
    line = to_csv([made]).splitlines()[1]
    assert line.startswith("a,'+cmd,graded,,2.0")
    assert "'=1+1" in line
