from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tito.cli import app
from tito.lessons.build import build_lesson
from tito.lessons.model import LessonError
from tito.lessons.watch import watch_lessons
from tito.scripts import ROOT

from .conftest import Repository

runner = CliRunner()


def test_three_versions_from_one_lesson(repository: Repository, tmp_path: Path) -> None:
    course = repository.course()
    output = tmp_path / "built"
    files = build_lesson(course, course.lessons[0], output)
    assert [str(path.relative_to(output)) for path in files] == [
        "instructor/01_sizes/01_sizes.ipynb",
        "student/01_sizes/01_sizes.ipynb",
        "pages/01_sizes.md",
    ]
    assert build_lesson(course, course.lessons[0], output) == []  # nothing has changed
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_page_has_everything_but_answers(repository: Repository, tmp_path: Path) -> None:
    course = repository.course()
    build_lesson(course, course.lessons[0], tmp_path)
    page = (tmp_path / "pages/01_sizes.md").read_text(encoding="utf-8")
    assert page.startswith("# 01 Sizes\n") and page.count("# 01 Sizes") == 1
    assert "def area(sides: Sequence[int]) -> int:" in page and "Hint 1" in page
    assert "- `tinytorch/sizes.py::area`" in page
    assert "equal(area((2, 3)), 6" in page
    hidden = "**Test: area-errors** (1 point). Checks: negative sides. Why: there are none. Hidden."
    assert hidden in page
    assert "math.prod(sides)" not in page and "raises(SizeError" not in page


def test_a_wrong_lesson_writes_nothing(repository: Repository, tmp_path: Path) -> None:
    repository.edit("for: scale", "for: scales")
    course = repository.course()
    with pytest.raises(LessonError):
        build_lesson(course, course.lessons[0], tmp_path / "built")
    assert not (tmp_path / "built").exists()


def test_a_lesson_by_any_of_its_names(repository: Repository) -> None:
    course = repository.course()
    for name in ("1", "01", "sizes", "Sizes", "01_sizes"):
        assert course.find(name) is course.lessons[0]
    assert course.find("size") is None


def test_watching_builds_again_and_survives_mistakes(repository: Repository) -> None:
    built: list[list[str]] = []
    wrong: list[list[str]] = []

    def bursts():  # type: ignore[no-untyped-def]
        yield  # nothing has changed
        repository.edit("Text above.", "Another text.")
        yield
        repository.edit("for: scale", "for: scales")
        yield
        repository.edit("title: Sizes", "titel: Sizes")
        yield
        repository.edit("titel: Sizes", "title: Sizes")
        repository.edit("for: scales", "for: scale")
        repository.edit("of nothing is 1", "of nothing is one", "tinytorch/sizes.py")
        yield

    watch_lessons(
        repository.root,
        repository.root / "built",
        bursts(),
        lambda files: built.append([path.parts[-3] for path in files]),
        lambda problems: wrong.append([problem.message for problem in problems]),
    )
    assert [len(files) for files in built] == [3, 0, 3, 0, 0, 1]
    assert [bool(problems) for problems in wrong] == [False, False, False, True, True, False]
    assert "unknown option titel" in wrong[4][0]


def test_the_watch_command(repository: Repository, tmp_path: Path) -> None:
    """It sees a change on the disk, and Ctrl-C ends it."""
    root, output = str(repository.root), str(tmp_path / "built")
    command = [sys.executable, "-u", "-m", "tito", "lessons", "watch"]
    watcher = subprocess.Popen(
        [*command, "--root", root, "--output", output],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    try:
        assert [next(watcher.stdout).startswith("built") for _ in range(3)] == [True] * 3
        changed = ""
        for attempt in range(100):  # the watch begins a moment after the first build
            text = f"Text {attempt} above."
            repository.edit("Text above." if attempt == 0 else f"Text {attempt - 1} above.", text)
            if select.select([watcher.stdout], [], [], 0.5)[0]:
                changed = next(watcher.stdout)
                break
        assert "01_sizes" in changed
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=300) == 130
    finally:
        watcher.kill()
        watcher.stdout.close()
        watcher.wait()


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError(name='yaml')")
    result = subprocess.run(
        [sys.executable, "-m", "tito", "lessons", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    expected = "lessons need pyyaml, which is not installed: pip install 'tinytorch[course]'"
    assert expected in " ".join(result.stderr.split())


def test_the_commands(repository: Repository, tmp_path: Path) -> None:
    root = ["--root", str(repository.root)]
    result = runner.invoke(app, ["lessons", "list", "--json", *root])
    assert json.loads(result.stdout)[0]["slug"] == "sizes"
    assert "sizes" in runner.invoke(app, ["lessons", "list", *root]).stdout
    built = ["lessons", "build", "1", "--output", str(tmp_path / "built"), *root]
    assert "01_sizes: 3 files written" in runner.invoke(app, built).stdout
    assert "nothing has changed" in runner.invoke(app, built).stdout
    result = runner.invoke(app, ["lessons", "check", *root])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{repository.lesson_path}:1: there is no drawing in Mermaid" in result.stderr


def test_the_commands_say_what_is_wrong_and_where(repository: Repository) -> None:
    root = ["--root", str(repository.root)]
    result = runner.invoke(app, ["lessons", "build", "size", *root])
    assert result.exit_code == 2 and "Did you mean 'sizes'" in " ".join(result.output.split())
    repository.edit("for: scale", "for: scales")
    line = repository.line_of("id: scale-values") - 2
    for command in ("check", "prove", "build"):
        output = ["--output", str(repository.root)] if command == "build" else []
        result = runner.invoke(app, ["lessons", command, *output, *root])
        assert result.exit_code == 1
        assert f"{repository.lesson_path}:{line}: test scale-values is for scales" in result.stderr
    result = runner.invoke(app, ["lessons", "check", "--json", *root])
    assert json.loads(result.stdout)[-1]["line"] == line
    repository.edit("title: Sizes", "titel: Sizes")
    result = runner.invoke(app, ["lessons", "list", *root])
    assert result.exit_code == 1 and "unknown option titel" in result.stderr
