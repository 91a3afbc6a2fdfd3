"""Lessons to `source/`: what an instructor has edited there is theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system_tools import needs_sandbox
from tito.course import generate as step
from tito.course.config import Course, CourseError, quiet
from tito.course.exam.key import make_key
from tito.course.notebook import course_cells, hidden_tests, read_notebook
from tito.lessons.notebook import MENDED

from .conftest import ASSIGNMENT, code, instructor_notebook


@pytest.fixture
def course(course_root: Path) -> Course:
    return Course.load(course_root)


def write(course: Course, replace: bool = False) -> tuple[Path, list[str]]:
    name, notes = step._write_source(course, "setup", replace)
    return course.root / "source" / name / f"{name}.ipynb", notes


def edited(path: Path, new: str) -> str:
    """Put another first test into the notebook, as JupyterLab would save it."""
    data = json.loads(path.read_text("utf-8"))
    cell = next(c for c in data["cells"] if c["metadata"].get("nbgrader", {}).get("grade"))
    cell["source"] = new
    text = json.dumps(data, indent=4)
    path.write_text(text, encoding="utf-8")
    return text


def test_an_edit_is_kept_and_said(course: Course) -> None:
    path, notes = write(course)
    assert notes == []
    text = edited(path, "from tito.checks import equal\nequal(normalize_dim(-1, 2), 1)")
    again, notes = write(course)
    assert (again.read_text("utf-8"), len(notes)) == (text, 1)
    assert "was edited and is kept as it is; --replace" in notes[0]


def test_it_is_replaced_on_request_and_a_backup_stays(course: Course) -> None:
    path, _ = write(course)
    ours = path.read_text("utf-8")
    text = edited(path, "pass")
    _, notes = write(course, replace=True)
    assert path.read_text("utf-8") == ours
    (backup,) = path.parent.glob("*.backup")
    assert backup.read_text("utf-8") == text
    assert backup.name in notes[0]
    assert write(course)[1] == []


def test_a_newer_lesson_comes_in_where_nothing_was_edited(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tito.lessons import notebook

    path, _ = write(course)
    saved = json.dumps(json.loads(path.read_text("utf-8")), indent=4)
    path.write_text(saved, encoding="utf-8")  # opened and saved, and nothing else
    newer = notebook.notebook_text
    monkeypatch.setattr(
        notebook, "notebook_text", lambda *a, **k: newer(*a, **k).replace("Setup", "Set up")
    )
    path, notes = write(course)
    assert notes == []
    assert "Set up" in path.read_text("utf-8")


def test_the_mended_code_of_a_bug_is_not_handed_out(course: Course) -> None:
    notebook = instructor_notebook()
    notebook["cells"].append(code("def sign(x):\n    return x // abs(x)", "sign-mended"))
    notebook["cells"][-1]["metadata"]["tags"] = [MENDED]
    path = course.root / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    made = step.generate(course, ASSIGNMENT, check=False)
    text = (made.release / path.name).read_text("utf-8")
    assert "abs(x)" not in text and "twice two" in text


def test_cells_stay_while_there_are_submissions(course: Course) -> None:
    """nbgrader refused it after source/ was written and release/ removed: nothing went on."""
    step.generate(course, "setup", check=False)
    folders = [course.folder(each, ".", "01_setup") for each in ("source", "release")]
    with quiet(), course.gradebook() as gradebook:
        gradebook.add_student("ada")
        gradebook.add_submission("01_setup", "ada")
    step.generate(course, "setup", check=False)  # of the same cells
    with course.gradebook() as gradebook:
        cells = gradebook.find_notebook("01_setup", "01_setup").source_cells
        next(cell for cell in cells if cell.name == "two-spellings").name = "before"
        gradebook.db.commit()
    edited(folders[0] / "01_setup.ipynb", "pass")
    there = {path: path.read_bytes() for folder in folders for path in folder.iterdir()}
    for replace in (False, True):
        with pytest.raises(CourseError, match="new: two-spellings; gone: before"):
            step.generate(course, "setup", check=False, replace=replace)
    assert there == {path: path.read_bytes() for folder in folders for path in folder.iterdir()}


@needs_sandbox
@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("folder", step.lesson_names())
def test_the_reference_of_every_lesson_passes_as_a_submission_does(
    course: Course, folder: str
) -> None:
    """A test that expects what differs from process to process can be proved, and never graded."""
    name, _ = step._write_source(course, folder, False)
    source = read_notebook(course.root / "source" / name / f"{name}.ipynb")
    key = make_key(course_cells(source), hidden_tests(source), budget=course.budget_for(name))
    assert len(key.tests) == sum(cell.kind == "test" for cell in course_cells(source)) > 0
