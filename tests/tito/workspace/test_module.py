"""`tito module`: begin, test, hints, reset, files of both formats."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.tito.workspace.conftest import (
    COUNT,
    FIRST_ANSWERS,
    FORWARD,
    SECOND_ANSWERS,
    SIZE,
    Student,
)
from tito.workspace import state


def test_start_says_what_it_is_and_where_to_write(student: Student) -> None:
    result = student.tito("module", "start", "second")
    assert result.exit_code == 0
    assert "makes possible: layers that compute" in result.output
    assert "builds on first; where that is not yours, the reference is used" in result.output
    assert str(student.file("02_second.ipynb")) in result.output


def test_unsolved_nothing_passes(student: Student) -> None:
    result = student.tito("module", "test", "1")
    assert result.exit_code == 1
    assert "count    0/4  not written yet" in result.output
    assert "0 of 6 points" in result.output
    assert "a hint: tito module hint 01 count" in result.output


def test_a_wrong_answer_gets_a_message_that_helps(student: Student) -> None:
    student.write("01_first.ipynb", {"count": "def normalize_dim(dim, ndim):\n    return dim\n"})
    result = student.tito("module", "test", "first")
    assert result.exit_code == 1
    for line in (
        "count    0/4  failed",
        "count: count-values (3 points) fails",
        "checks: dimensions from the front and from the end",
        "normalize_dim(-1, 3)",
        "expected: 2",
        "got:      -1",
        "hint:     -1 is the last",
        "why: users write -1",
    ):
        assert line in result.output


@pytest.mark.slow
def test_of_a_hidden_test_the_values_stay_hidden(student: Student) -> None:
    wrong = "def normalize_dim(dim, ndim, what=''):\n    return dim % ndim\n"
    student.write("01_first.ipynb", {"count": wrong})
    output = student.tito("module", "test", "first").output
    assert "count: count-errors (1 point) fails" in output
    assert "checks: a dimension that is not there" in output
    assert "a hidden test; its values are not shown" in output
    assert "(3, 3)" not in output


@pytest.mark.slow
def test_an_error_is_shown_with_the_line_of_the_cell(student: Student) -> None:
    student.write("01_first.ipynb", {"count": "def normalize_dim(dim, ndim):\n    return 1 / 0\n"})
    output = student.tito("module", "test", "first").output
    assert "ZeroDivisionError: division by zero" in output
    assert "in your cell, line 2: return 1 / 0" in output


@pytest.mark.slow
def test_what_the_student_printed_is_shown(student: Student) -> None:
    code = "def normalize_dim(dim, ndim):\n    print('dim is', dim)\n"
    student.write("01_first.ipynb", {"count": code})
    assert "    dim is -1" in student.tito("module", "test", "first").output


@pytest.mark.slow
def test_test_as_json(student: Student) -> None:
    student.write("01_first.ipynb", {"size": SIZE})
    report = json.loads(student.tito("module", "test", "first", "--json").stdout)
    assert (report["points"], report["of_points"], report["passed"]) == (2, 6, False)
    assert [e["status"] for e in report["exercises"]] == ["not written yet", "passed"]


@pytest.mark.slow
def test_hints_unfold_one_at_a_time(student: Student) -> None:
    first, second, third = [student.tito("module", "hint", "1").output for _ in range(3)]
    assert first == "count, hint 1 of 2\n\nhint one\n"
    assert second == "count, hint 2 of 2\n\nhint two\n"
    assert "hint one" in third and "hint two" in third and "there are no more hints" in third
    student.write("01_first.ipynb", {"count": COUNT})
    student.tito("module", "test", "first")
    assert student.tito("module", "hint", "1").output == "size has no hints\n"
    result = student.tito("module", "hint", "1", "cuont")
    assert result.exit_code == 1
    assert "there is no exercise 'cuont'. Did you mean 'count'?" in result.output


@pytest.mark.slow
def test_reset_keeps_backups_and_gives_the_reference_back(
    student: Student, repository: Path
) -> None:
    student.complete("first", FIRST_ANSWERS)
    mine = student.file("01_first.ipynb").read_text()
    result = student.tito("module", "reset", "first")
    assert result.exit_code == 0
    (kept,) = (student.root / ".tito/backups").rglob("01_first.ipynb")
    assert kept.read_text() == mine
    assert str(kept) in result.output
    assert "not written yet" in student.file("01_first.ipynb").read_text()
    reference = (repository / "tinytorch/functions/dims.py").read_text()
    assert student.package_file("functions/dims.py") == reference
    assert "0/6" in student.tito("status").output


@pytest.mark.slow
def test_plain_python_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = Student(tmp_path / "plain")
    student.tito("init", str(student.root), "--format", "py")
    monkeypatch.chdir(student.root)
    path = student.file("02_second.py")
    stub = "# YOUR CODE HERE\n"
    text = path.read_text()
    assert text.count(stub) == 2
    i = text.index("class Linear"), text.index("# %%", text.index("class Linear"))
    text = text[: i[0]] + FORWARD.strip() + "\n\n" + text[i[1] :]
    head, _, tail = text.partition(stub)
    path.write_text(head + SECOND_ANSWERS["product"] + "\n\n" + tail.partition("\n\n")[2])
    result = student.tito("module", "complete", "second")
    assert result.exit_code == 0, result.output
    assert "b * g" in student.package_file("gradients.py")


@pytest.mark.slow
def test_of_a_notebook_and_a_plain_file_the_later_counts(student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    student.file("01_first.py").write_text("# %%\nx = 1\n")
    later = student.file("01_first.ipynb").stat().st_mtime_ns + 1_000_000_000
    os.utime(student.file("01_first.py"), ns=(later, later))
    output = student.tito("module", "test", "1").output
    assert "01_first, from 01_first.py" in output
    assert "its cell is missing" in output


@pytest.mark.slow
def test_the_format_can_be_changed_until_something_is_written(student: Student) -> None:
    assert student.tito("module", "start", "1", "--format", "py").exit_code == 0
    assert not student.file("01_first.ipynb").exists()
    path = student.file("01_first.py")
    path.write_text(path.read_text() + "# mine\n")
    mine = path.read_text()
    result = student.tito("module", "start", "1", "--format", "ipynb")
    assert result.exit_code == 1
    assert "you have worked in 01_first.py: convert it, with `jupytext --to ipynb" in result.output
    assert path.read_text() == mine


def test_answers_in_another_format_stay_when_the_later_file_is_as_tito_wrote_it(
    student: Student,
) -> None:
    """A notebook that a synchronised folder brings back has its old time."""
    notebook = student.file("01_first.ipynb")
    student.write("01_first.ipynb", FIRST_ANSWERS)
    mine = notebook.read_text()
    notebook.unlink()
    assert student.tito("module", "start", "1", "--format", "py").exit_code == 0
    notebook.write_text(mine)
    os.utime(notebook, ns=(0, 0))
    result = student.tito("module", "start", "1")
    assert f"write in {notebook}" in result.output
    assert notebook.read_text() == mine
    assert not student.file("01_first.py").exists()
    assert student.tito("init", ".").exit_code == 0
    assert notebook.read_text() == mine


def test_a_format_stays_the_file_s_own(student: Student) -> None:
    student.tito("module", "start", "1", "--format", "py")
    for command in ("start", "open", "reset"):
        assert student.tito("module", command, "1").exit_code == 0
        assert student.file("01_first.py").exists(), command
        assert not student.file("01_first.ipynb").exists(), command


def test_a_reset_for_which_there_is_no_room_changes_nothing(
    student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    mine = student.file("01_first.ipynb").read_text()

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state, "write", full)
    result = student.tito("module", "reset", "1")
    assert result.exit_code == 1 and "No space left" in result.output
    assert student.file("01_first.ipynb").read_text() == mine


def test_a_reset_keeps_a_notebook_and_a_plain_file(student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    student.file("01_first.py").write_text("# %%\nx = 1\n")
    result = student.tito("module", "reset", "1")
    assert result.exit_code == 0
    kept = {path.name for path in (student.root / ".tito/backups").rglob("01_first.*")}
    assert kept == {"01_first.ipynb", "01_first.py"}
    there = list(student.root.glob("01_first.*"))
    assert len(there) == 1 and "x = 1" not in there[0].read_text()


@pytest.mark.slow
def test_open_runs_the_editor_on_the_file(
    student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/opened\nexit 4\n')
    editor.chmod(0o755)
    assert student.tito("module", "open", "1", "--with", str(editor)).exit_code == 4
    assert (tmp_path / "opened").read_text().strip() == str(student.file("01_first.ipynb"))
    result = student.tito("module", "open", "1", "--with", "no-such-editor")
    assert result.exit_code == 1
    assert "no-such-editor is not installed" in result.output


def test_outside_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["status"], ["module", "test", "1"], ["module", "complete", "1"]):
        result = Student(tmp_path).tito(*arguments)
        assert result.exit_code == 1
        assert "is not in a workspace" in result.output
        assert "tito init DIR" in result.output


def test_an_unknown_module_suggests(student: Student) -> None:
    result = student.tito("module", "test", "frist")
    assert result.exit_code == 1
    assert "there is no module 'frist'. Did you mean '01_first'?" in result.output
