"""Whatever is in a student's file: tito says what is wrong, and no work is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tito.workspace.conftest import COUNT, FIRST_ANSWERS, SIZE, Student
from tito import console
from tito.cells import Failure, Frame
from tito.lessons.magic import plain
from tito.limits import Limits
from tito.module import say
from tito.workspace import begin, course, folder, notebook, run, show, state, update
from tito.workspace.run import Result

LIMITS = Limits(seconds=600, memory_bytes=2 << 30)


def answered(
    student: Student, code: str, limits: Limits = LIMITS, cell_seconds: float = 300
) -> tuple[Result, str]:
    """The result of the first exercise's tests with `code` in its cell, and the words for it."""
    student.write("01_first.ipynb", {"count": code, "size": SIZE})
    workspace = folder.require(student.root)
    path = student.file("01_first.ipynb")
    result = run.run_tests(workspace, course.find("1"), path, limits, cell_seconds)
    return result, "\n".join(show.result_lines(result))


def change(student: Student, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the notebook as JSON."""
    path = student.file("01_first.ipynb")
    notebook = json.loads(path.read_text())
    edit(notebook)
    path.write_text(json.dumps(notebook))


def test_a_syntax_error(student: Student) -> None:
    result, text = answered(student, "def normalize_dim(dim, ndim)\n    return 1\n")
    assert result.points == 2  # the other exercise has its points
    assert "count: the cell itself fails" in text
    assert "SyntaxError: expected ':'" in text
    assert "in your cell, line 1: def normalize_dim(dim, ndim)" in text


def test_a_function_of_another_name(student: Student) -> None:
    """It is said of the cell, and a hidden test does not show the line that noticed it."""
    _, text = answered(student, "def normalise_dim(dim, ndim):\n    return dim\n")
    assert text.count("the cell of count does not define normalize_dim") == 2
    _, shown, hidden = text.split("count: ")
    assert "in count-values, line" in shown
    assert hidden.startswith("count-errors") and "raises(" not in hidden


def test_what_is_none_where_a_test_goes_on_with_it() -> None:
    """A line of the student's own says it itself."""
    words = "something of yours is None here: is a `return` missing?"
    message = "'NoneType' object has no attribute 'tolist'"
    test, own = (Frame(cell, 3, "", "f(x).tolist()") for cell in ("f-values", "f"))
    assert words in "".join(show._failure_lines(Failure("AttributeError", message, (test,)), "f"))
    assert words not in "".join(show._failure_lines(Failure("TypeError", message, (own,)), "f"))


@pytest.mark.slow
def test_an_endless_loop(student: Student) -> None:
    code = "def normalize_dim(dim, ndim, what=''):\n    while True:\n        pass\n"
    for seconds in (1, 6, 36):  # on a busy machine the imports alone take the first
        result, text = answered(student, code, cell_seconds=seconds)
        if result.points:
            break
    assert result.points == 2
    assert f"not finished after {seconds} s" in text
    assert "in your cell, line" in text


@pytest.mark.slow
def test_a_loop_that_swallows_everything(student: Student) -> None:
    code = (
        "def normalize_dim(dim, ndim, what=''):\n    import signal\n"
        "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    while True:\n        pass\n"
    )
    for seconds in (3, 18, 108):
        result, text = answered(student, code, Limits(seconds=seconds))
        if "endless loop" in text:  # the process came as far as the loop
            break
    assert result.points == 0
    assert f"the process was stopped after {seconds} s: is there an endless loop?" in text
    assert "size: size-values (2 points) fails" in text
    assert "it was not reached" in text


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os\nos._exit(0)", "the process ended by itself with exit code 0"),
        ("raise SystemExit", "SystemExit"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV"),
        ("x = bytearray(8 << 30)", "MemoryError"),
        ("def normalize_dim(dim, ndim):\n    return normalize_dim(dim, ndim)", "RecursionError"),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "cannot be shown"),
    ],
    ids=["os._exit", "SystemExit", "crash", "memory", "recursion", "message"],
)
def test_code_that_ends_the_process_or_fails_oddly(student: Student, code: str, words: str) -> None:
    result, text = answered(student, code)
    assert not result.passed
    assert words in text


@pytest.mark.slow
def test_what_they_print_does_not_matter(student: Student) -> None:
    assert answered(student, f"print('x' * 10_000_000)\n{COUNT}")[0].passed
    odd = (
        "def normalize_dim(dim, ndim):\n    print('\\ud800\\x00')\n    raise ValueError('\\ud800')"
    )
    _, text = answered(student, odd)
    assert "ValueError: ?" in text
    assert text.encode()


@pytest.mark.slow
def test_their_own_cells_may_fail(student: Student) -> None:
    own = {"cell_type": "code", "metadata": {}, "source": "%timeit 1\nx = undefined"}
    student.write("01_first.ipynb", FIRST_ANSWERS)
    change(student, lambda notebook: notebook["cells"].append(own))
    result = student.tito("module", "test", "1")
    assert result.exit_code == 0
    assert "one of your own, fails; that costs no points" in result.output
    assert "NameError: name 'undefined' is not defined" in result.output


def test_demonstrations_of_the_lesson_are_not_run_again(student: Student) -> None:
    assert run.only_definitions("import a\nslow()\ndef f():\n    return 1") == (
        "import a\ndef f():\n    return 1"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no notebook: it is not JSON (line 1"),
        (b'{"cells": [{"cell_ty', "is no notebook: it is not JSON"),
        (b"[1, 2]", "it has no list of cells"),
        (b'{"cells": 3}', "it has no list of cells"),
        (b'{"cells": [{"source": 3}]}', "it has no list of cells"),
        (b"\xff\xfe\x00", "is no text in UTF-8"),
        (b"[" * 100_000, "it is not JSON (lists in lists"),
    ],
)
def test_a_file_that_is_no_notebook(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "01_first.ipynb"
    path.write_bytes(content)
    with pytest.raises(folder.WorkspaceError) as error:
        notebook.read(path)
    assert words in str(error.value)


@pytest.mark.slow
def test_a_broken_file_is_theirs_and_stays_until_they_reset_it(student: Student) -> None:
    path = student.file("01_first.ipynb")
    path.write_bytes(b"\x00 not JSON")
    for command in ("test", "complete"):
        result = student.tito("module", command, "1")
        assert result.exit_code == 1
        assert "01_first.ipynb is no notebook" in result.output
    assert student.tito("status").exit_code == 0
    assert student.tito("module", "start", "1").exit_code == 0
    assert path.read_bytes() == b"\x00 not JSON"
    assert student.tito("module", "reset", "1").exit_code == 0
    (kept,) = (student.root / ".tito/backups").rglob("01_first.ipynb")
    assert kept.read_bytes() == b"\x00 not JSON"


@pytest.mark.parametrize("source", ["x = 1\0", "x = '\ud800'", "-" * 200_000 + "1", "+1" * 100_000])
def test_a_cell_that_python_cannot_even_parse(student: Student, source: str) -> None:
    own = {"cell_type": "code", "metadata": {}, "source": source, "outputs": []}
    change(student, lambda notebook: notebook["cells"].insert(1, own))
    path = student.file("01_first.ipynb")
    before = path.read_bytes()
    workspace = folder.require(student.root)
    assert plain(notebook.read(path)[1].source)
    updated = update.update(workspace, course.find("1"))
    assert updated is not None and (updated.backup or path).read_bytes() == before


def test_a_slice_in_an_error_is_no_emoji() -> None:
    with console.out.capture() as told:
        say("x[:a:] of :warning:")
    assert told.get() == "x[:a:] of :warning:\n"


def test_a_folder_that_python_cannot_import_from(tmp_path: Path) -> None:
    """With a colon in its path PYTHONPATH would name two folders, and the reference would run."""
    with pytest.raises(folder.WorkspaceError, match="choose another name"):
        begin.init(tmp_path / "a:b", "ipynb")
    assert not list(tmp_path.iterdir())
    (tmp_path / "c:d" / folder.MARK).mkdir(parents=True)
    with pytest.raises(folder.WorkspaceError, match="choose another name"):
        folder.require(tmp_path / "c:d")


@pytest.mark.parametrize("name", ["²", "٣", "9" * 5_000])
def test_digits_that_are_no_number_of_a_module(name: str) -> None:
    with pytest.raises(folder.WorkspaceError, match="there is no module"):
        course.find(name)


@pytest.mark.slow
def test_a_cell_that_was_deleted(student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    change(student, lambda notebook: notebook.update(cells=without(notebook, "count")))
    output = student.tito("module", "test", "1").output
    assert "its cell is missing" in output
    assert "2 of 6 points" in output


def without(notebook: dict[str, Any], id: str) -> list[Any]:
    return [c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") != id]


def test_tests_that_were_deleted_or_weakened_run_all_the_same(student: Student) -> None:
    student.write("01_first.ipynb", {"count": "def normalize_dim(dim, ndim):\n    return 0\n"})
    change(student, lambda notebook: notebook.update(cells=without(notebook, "count-values")))
    student.write("01_first.ipynb", {"count-errors": "pass"})
    output = student.tito("module", "test", "1").output
    assert "count-values (3 points) fails" in output
    assert "count-errors (1 point) fails" in output


def test_a_cell_that_was_copied(student: Student) -> None:
    change(student, lambda notebook: notebook["cells"].append(notebook["cells"][-3]))
    result = student.tito("module", "test", "1")
    assert result.exit_code == 1
    assert "has the cell 'size' twice" in result.output


@pytest.mark.slow
def test_the_file_is_gone(student: Student) -> None:
    student.file("01_first.ipynb").unlink()
    result = student.tito("module", "test", "1")
    assert result.exit_code == 1
    assert "begin with `tito module start 01`" in result.output
    assert student.tito("module", "start", "1").exit_code == 0
    assert student.file("01_first.ipynb").exists()


DAMAGED = (
    "",
    "{",
    "[]",
    '{"modules": 3, "format": "ipynb"}',
    '{"modules": {"first": {"hints": 3}}, "format": "ipynb"}',
    '{"modules": {"first": {"unknown": 3}}, "format": "ipynb"}',
    '{"modules": {}, "format": "doc"}',
)


@pytest.mark.slow
def test_a_damaged_state_is_kept_and_begun_anew(student: Student) -> None:
    student.complete("first", FIRST_ANSWERS)
    workspace = folder.require(student.root)
    for content in DAMAGED:
        workspace.state.write_text(content)
        assert state.load(workspace) == state.State()
    kept = workspace.backups.rglob("state.json")
    assert sorted(path.read_text() for path in kept) == sorted(DAMAGED)
    report = json.loads(student.tito("status", "--json").stdout)
    assert report["modules"][0]["status"] == "completed"  # of that nothing is lost


@pytest.mark.slow
def test_a_completed_module_that_is_damaged_is_named(student: Student) -> None:
    student.complete("first", FIRST_ANSWERS)
    (student.root / ".tito/completed/first.json").write_text("{")
    result = student.tito("status")
    assert result.exit_code == 1
    assert "first.json is damaged" in result.output
    assert "tito module complete first" in result.output


@pytest.mark.slow
def test_a_package_that_was_edited_by_hand_is_kept(student: Student) -> None:
    path = student.root / "tinytorch/shapes.py"
    reference = path.read_text()
    path.write_text("mine")
    result = student.tito("module", "test", "1")
    assert "a file of tinytorch/ was changed by hand; it is now" in result.output
    assert path.read_text() == reference
    (kept,) = (student.root / ".tito/backups").rglob("shapes.py")
    assert kept.read_text() == "mine"


@pytest.mark.slow
def test_tito_imports_nothing_from_a_workspace(student: Student, repository: Path) -> None:
    """Neither from the current folder, as with `python -m`, nor from PYTHONPATH."""
    for name in ("typer", "rich", "json", "tinytorch/files", "tinytorch/__init__"):
        (student.root / f"{name}.py").write_text("raise RuntimeError('a student was imported')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(student.root)])}
    environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[3])
    for command in (["status"], ["module", "hint", "1"], ["--version"]):
        result = subprocess.run(
            [sys.executable, "-m", "tito", *command],
            cwd=student.root, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert "a student was imported" not in result.stderr
        assert "Traceback" not in result.stderr
