"""`tito update`, and what else goes on from day to day."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tito.workspace.conftest import COUNT, FIRST_ANSWERS, Student
from tito.workspace import state


def cells(student: Student) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(student.file("01_first.ipynb").read_text())["cells"]
    for cell in found:
        cell["source"] = "".join(cell["source"])
    return found


def change(student: Student, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    path = student.file("01_first.ipynb")
    notebook = json.loads(path.read_text())
    edit(notebook["cells"])
    path.write_text(json.dumps(notebook))


@pytest.fixture
def newer(student: Student, repository: Path) -> Student:
    """A student with an answer, a cell of their own and a changed demonstration; the lesson has
    another text, a new exercise's test and another hint since."""
    student.write("01_first.ipynb", {"count": COUNT})
    own = {"cell_type": "code", "id": "mine", "metadata": {}, "source": "mine = 1",
           "outputs": [], "execution_count": None}  # fmt: skip

    def edit(found: list[dict[str, Any]]) -> None:
        at = next(i for i, cell in enumerate(found) if cell["id"] == "count-values")
        found.insert(at + 1, own)
        code = next(cell for cell in found if cell["id"].startswith("code-"))
        code["source"] = "import time\ntime.sleep(0.001)"

    change(student, edit)
    lesson = repository / "modules/01_first/lesson.md"
    text = lesson.read_text().replace("# First\n", "# First\n\nA new beginning.\n", 1)
    text = text.replace("[hint one, hint two]", "[another hint]")
    text = text.replace("equal(normalize_dim(1, 3), 1)", "equal(normalize_dim(0, 3), 0)")
    lesson.write_text(text)
    return student


def test_new_text_and_tests_come_in_around_what_is_the_student_s(newer: Student) -> None:
    before = newer.file("01_first.ipynb").read_text()
    assert "older than TinyTorch: first; tito update" in newer.tito("status").output
    result = newer.tito("update", "first")
    assert result.exit_code == 0, result.output
    found = {cell["id"]: cell["source"] for cell in cells(newer)}
    assert found["count"] == COUNT and found["mine"] == "mine = 1"
    ids = list(found)
    assert ids.index("mine") == ids.index("count-values") + 1
    assert "normalize_dim(0, 3), 0" in found["count-values"]
    assert "another hint" in found["count-text"] and "hint one" not in found["count-text"]
    assert any("A new beginning." in source for source in found.values())
    assert any("sleep(0.001)" in source for source in found.values())
    assert "yours, as they were: count" in result.output
    assert "changed: count-text, count-values" in result.output
    (backup,) = newer.root.glob(".tito/backups/*/01_first.ipynb")
    assert backup.read_text() == before
    assert "older" not in newer.tito("status").output


@pytest.mark.slow
def test_what_is_up_to_date_is_not_touched(newer: Student) -> None:
    newer.tito("update")
    before = newer.file("01_first.ipynb").read_bytes()
    assert "01_first.ipynb: up to date" in newer.tito("update").output
    assert newer.file("01_first.ipynb").read_bytes() == before


@pytest.mark.slow
def test_a_changed_statement_is_shown_above_the_answer(student: Student) -> None:
    student.write("01_first.ipynb", {"count": COUNT})

    def other_stub(found: list[dict[str, Any]]) -> None:
        cell = next(cell for cell in found if cell["id"] == "count")
        cell["metadata"]["tinytorch"]["mark"] = "0123456789"  # it began with another statement

    change(student, other_stub)
    for _ in range(2):  # once only, however often
        student.tito("update")
        found = cells(student)
        shown = [c for c in found if c["id"] == "count-changed"]
        assert len(shown) == 1 and "def normalize_dim(" in shown[0]["source"]
        at = found.index(shown[0])
        assert found[at + 1]["source"] == COUNT


@pytest.mark.slow
def test_an_exercise_that_is_gone_leaves_its_answer_as_a_cell_of_the_student_s(
    student: Student, repository: Path
) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    lesson = repository / "modules/01_first/lesson.md"
    text = lesson.read_text().partition("```{exercise}\n---\nid: size")[0]
    lesson.write_text(text.replace("points: 6", "points: 4", 1))
    student.tito("update", "1")
    (kept,) = [c for c in cells(student) if c["source"] == FIRST_ANSWERS["size"]]
    assert "nbgrader" not in kept["metadata"]
    assert student.tito("module", "test", "1").exit_code == 0


@pytest.mark.slow
def test_a_lesson_as_python_is_updated_too(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jupytext")
    student = Student(tmp_path / "plain")
    assert student.tito("init", str(student.root), "--format", "py").exit_code == 0
    monkeypatch.chdir(student.root)
    path = student.file("01_first.py")
    text = path.read_text()
    begin = text.index("def normalize_dim")
    end = text.index("# %%", begin)
    path.write_text(text[:begin] + COUNT.strip() + "\n\n" + text[end:])
    assert "01_first.py: up to date" in student.tito("update", "1").output
    lesson = repository / "modules/01_first/lesson.md"
    lesson.write_text(lesson.read_text().replace("# First\n", "# First\n\nA new beginning.\n", 1))
    assert "brought up to date" in student.tito("update", "1").output
    assert "A new beginning." in path.read_text() and COUNT.strip() in path.read_text()
    assert "01_first.py: up to date" in student.tito("update", "1").output


@pytest.mark.slow
def test_next_says_where_one_is(student: Student) -> None:
    assert "next: tito module start 01" in student.tito("next").output
    student.tito("module", "start", "1")
    student.write("01_first.ipynb", {"count": COUNT})
    assert student.tito("test").exit_code == 1  # the module that is begun
    output = student.tito("next").output
    assert "exercise 2 of 2: size" in output and "next: tito module test 01" in output
    student.write("01_first.ipynb", FIRST_ANSWERS)
    student.tito("test")
    told = json.loads(student.tito("next", "--json").output)
    assert told["command"] == "tito module complete 01"


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    student.tito("module", "start", "1")
    student.write("01_first.ipynb", FIRST_ANSWERS)
    before = student.file(".tito/state.json").read_bytes()
    monkeypatch.setattr(state, "is_writable", lambda workspace: False)

    def refused(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(state, "edit", refused)
    assert student.tito("module", "test", "1").exit_code == 0
    hints = student.tito("module", "hint", "1", "count").output
    assert "hint one" in hints and "hint two" in hints
    assert student.file(".tito/state.json").read_bytes() == before
