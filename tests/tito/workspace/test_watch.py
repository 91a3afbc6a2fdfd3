"""`tito test --watch`: what the screen shows after saves and keys; a session on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

import pytest

from tests.tito.workspace.conftest import COUNT, FIRST_ANSWERS, ROOT, Student
from tito.cells import child_environment
from tito.workspace import course, folder
from tito.workspace.watch import SAVED, Session, loop


@pytest.fixture
def session(student: Student) -> Session:
    student.tito("module", "start", "1")
    return Session(folder.require(), course.find("1"))


def screens(session: Session, events: Iterable[str]) -> list[str]:
    drawn: list[str] = []
    loop(session, events, lambda lines: drawn.append("\n".join(lines)))
    return drawn


@pytest.mark.slow
def test_each_save_is_a_run_and_what_passes_makes_room(session: Session, student: Student) -> None:
    def at_work() -> Iterator[str]:
        student.write("01_first.ipynb", {"count": COUNT.replace("% max(ndim, 1)", "+ 0")})
        yield SAVED
        student.write("01_first.ipynb", {"count": COUNT})
        yield SAVED
        student.write("01_first.ipynb", FIRST_ANSWERS)
        yield SAVED

    first, fresh, wrong, half, whole = screens(session, at_work())
    assert "running the tests" in first
    assert "> count  0/4  not written yet" in fresh.replace("    ", "  ")
    assert "expected: 2" in wrong and "run at" in wrong
    assert "> size" in half and "4 of 6 points" in half
    assert "all tests pass: c puts your code" in whole


@pytest.mark.slow
def test_keys(session: Session, student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    session.run()
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    assert session.press("h") and session.hints == ["hint one"]
    assert session.press("h") and session.press("h") and session.notes[0].startswith("there are no")
    assert session.press("c") and session.notes[0].startswith("not yet")
    assert session.press("n") and session.exercise.id == "size" and session.hints == []
    assert session.press("o") and started[-1][1:] == ["-m", "tito", "module", "open", "01"]
    assert session.press("x") and not session.press("q")


@pytest.mark.slow
def test_c_completes(session: Session, student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    *_, last = screens(session, "c")
    assert "all 6 points; your code is now in tinytorch/" in last
    assert "return dim % max(ndim, 1)" in student.package_file("functions/dims.py")


@pytest.mark.slow
def test_a_notebook_that_is_broken_for_a_moment(session: Session, student: Student) -> None:
    path = student.file("01_first.ipynb")
    text = path.read_text()

    def at_work() -> Iterator[str]:
        path.write_text("{")
        yield SAVED
        path.write_text(text)
        yield SAVED

    *_, broken, whole = screens(session, at_work())
    assert "is no notebook" in broken and "run at" in whole


@pytest.mark.slow
def test_it_needs_a_terminal(student: Student) -> None:
    student.tito("module", "start", "1")
    result = student.tito("test", "1", "--watch")
    assert result.exit_code == 1 and "--watch needs a terminal" in result.output


@pytest.mark.slow
def test_on_a_terminal(student: Student) -> None:
    """The real lessons, since another process does not know of the small ones."""
    root = student.root.with_name("real")
    environment = child_environment([ROOT], {"COLUMNS": "100", "LINES": "40"})
    tito = [sys.executable, "-m", "tito"]
    subprocess.run([*tito, "init", str(root)], env=environment, check=True, capture_output=True)
    screen, keyboard = pty.openpty()
    child = subprocess.Popen(
        [*tito, "test", "01", "--watch"], cwd=root, env=environment,
        stdin=keyboard, stdout=keyboard, stderr=keyboard, start_new_session=True,
    )  # fmt: skip
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        end = time.monotonic() + 300
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([screen], [], [], 0.5)[0]:
                seen += os.read(screen, 65536).decode(errors="replace")

    until("q quit")
    os.write(screen, b"h")
    until("hint 1 of 3")
    seen = ""
    path = root / "01_setup.ipynb"
    path.write_text(path.read_text() + "\n")
    until("run at")
    os.write(screen, b"q")
    assert child.wait(30) == 1  # not all tests pass
    os.close(screen)
