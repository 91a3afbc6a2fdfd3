"""`tito init`, and what a workspace does when the reference changes or tito is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tito.workspace.conftest import COUNT, FIRST_ANSWERS, ROOT, Student
from tito.workspace import completed, folder, module, package, state

DIMS = "tinytorch/functions/dims.py"


@pytest.fixture
def clone(repository: Path) -> Path:
    """The repository with a package of its own, to be changed."""
    import shutil

    (repository / "tinytorch").unlink()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tinytorch", repository / "tinytorch", ignore=ignored)
    return repository


def test_init_makes_lessons_without_answers_and_a_package(student: Student) -> None:
    there = {path.name for path in student.root.iterdir()}
    expected = {"01_first.ipynb", "02_second.ipynb", "tinytorch", "README.md"}
    assert expected <= there
    text = student.file("01_first.ipynb").read_text()
    assert "not written yet" in text
    assert "extent" not in text  # a word of the solution
    assert "raises(IndexError" not in text  # the hidden test
    changed = subprocess.run(
        ["diff", "-r", "-x", "__pycache__", ROOT / "tinytorch", student.root / "tinytorch"],
        capture_output=True,
        text=True,
    )
    assert changed.stdout == ""


def test_init_again_leaves_the_format_as_it_was(student: Student) -> None:
    for wanted, form in (("py", "py"), ("", "py"), ("ipynb", "ipynb"), ("", "ipynb")):
        arguments = ["--format", wanted] if wanted else []
        assert student.tito("init", str(student.root), *arguments).exit_code == 0
        assert {path.suffix for path in student.root.glob("0*")} == {f".{form}"}


def test_init_again_brings_up_to_date_and_keeps_what_was_written(
    student: Student, repository: Path
) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    mine = student.file("01_first.ipynb").read_text()
    lesson = repository / "modules/02_second/lesson.md"
    lesson.write_text(lesson.read_text().replace("title: Second", "title: Better"))
    (student.root / "tinytorch/shapes.py").unlink()
    assert student.tito("init", str(student.root)).exit_code == 0
    assert student.file("01_first.ipynb").read_text() == mine
    assert "02 Better" in student.file("02_second.ipynb").read_text()  # not yet written in
    assert (student.root / "tinytorch/shapes.py").exists()


def test_init_refuses_what_is_not_its_own(
    student: Student, tmp_path: Path, repository: Path
) -> None:
    result = student.tito("init", str(repository))
    assert result.exit_code == 1
    assert "exists and is not tito's" in result.output
    result = student.tito("init", str(student.root / "inner"))
    assert result.exit_code == 1
    assert "is inside the workspace" in result.output
    (tmp_path / "file").write_text("")
    assert "is a file" in student.tito("init", str(tmp_path / "file")).output
    result = student.tito("init", str(tmp_path / "other"), "--format", "doc")
    assert result.exit_code == 2
    assert "there is no format 'doc'" in result.output


@pytest.mark.slow
def test_status_shows_where_they_stand(student: Student) -> None:
    student.complete("first", FIRST_ANSWERS)
    output = student.tito("status").output
    assert "01  first   completed  ############  6/6     2/2          13" in output
    assert "02  second  not begun  ............  0/3     0/2          0" in output
    assert "yours: 2 of the course's 4 definitions (50%), 13 of the framework's" in output
    assert "next: tito module start 02" in output


@pytest.mark.slow
def test_a_newer_reference_comes_with_the_next_command(student: Student, clone: Path) -> None:
    student.complete("first", FIRST_ANSWERS)
    dims, new = clone / DIMS, clone / "tinytorch/new.py"
    dims.write_text(dims.read_text() + "\n\nNEW = 1\n")
    new.write_text("x = 1\n")
    student.tito("module", "test", "2")
    mine = (student.root / DIMS).read_text()
    assert "NEW = 1" in mine and COUNT.strip() in mine
    assert (student.root / "tinytorch/new.py").exists()
    new.unlink()
    student.tito("module", "test", "2")
    assert not (student.root / "tinytorch/new.py").exists()


@pytest.mark.slow
def test_a_definition_that_is_no_more_is_named_and_the_rest_stays(
    student: Student, clone: Path
) -> None:
    student.complete("first", FIRST_ANSWERS)
    dims = clone / DIMS
    dims.write_text(dims.read_text().replace("def infer_size(", "def infer_sizes("))
    output = student.tito("module", "test", "2").output
    assert "not in your package, as TinyTorch has changed: size: the package cannot take" in output
    assert COUNT.strip() in (student.root / DIMS).read_text()


@pytest.mark.slow
def test_a_command_that_was_killed_is_made_good_by_the_next(student: Student) -> None:
    """Killed between keeping the code and making the package, or while writing the package."""
    student.complete("first", FIRST_ANSWERS)
    workspace = folder.require(student.root)
    pieces = [piece for c in completed.load(workspace) for piece in c.pieces]
    whole = (student.root / DIMS).read_text()
    package.make(workspace, pieces[:1])
    (student.root / "tinytorch/ops.py").unlink()
    assert (student.root / DIMS).read_text() != whole
    module.refresh(workspace)
    assert (student.root / DIMS).read_text() == whole
    assert (student.root / "tinytorch/ops.py").exists()
    assert not list((student.root / ".tito").rglob("backups"))


WRITER = """
import sys
from pathlib import Path
from tito.workspace import state
from tito.workspace.folder import Workspace
workspace = Workspace(Path(sys.argv[1]))
while True:
    with state.edit(workspace) as remembered:
        remembered.module("first").points += 1
    print("written", flush=True)
"""


def test_a_kill_at_any_time_leaves_a_whole_state(tmp_path: Path) -> None:
    (tmp_path / ".tito").mkdir()
    workspace = folder.Workspace(tmp_path)
    last = 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.02)
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        json.loads(workspace.state.read_text())
        now = state.load(workspace).module("first").points
        assert now > last
        last = now
    assert not workspace.backups.exists()


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / ".tito").mkdir()
    code = WRITER.replace("while True:", "for _ in range(50):")
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert state.load(folder.Workspace(tmp_path)).module("first").points == 100
