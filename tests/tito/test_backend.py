"""`tito backend check`: the user's class in a process of its own."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tito import scripts
from tito.cli import app
from tito.workspace import backends, course
from tito.workspace.folder import Workspace, WorkspaceError

FILE = """
from tinytorch.backends.numpy import NumpyBackend

class Mine(NumpyBackend):
    def matmul(self, a, b):
        return super().matmul(a, b)

class Wrong(NumpyBackend):
    def matmul(self, a, b):
        return super().matmul(a, b) + 1

thing = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, which is the current folder; without lessons, which take a while to write."""
    monkeypatch.setattr(course, "folders", list)
    assert CliRunner().invoke(app, ["init", str(tmp_path / "own")]).exit_code in (0, 1)
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


def check(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and what the child printed on stdout."""
    printed: list[str] = []
    run = scripts.run_script

    def captured(path: Path, given: list[str], **options: Any) -> tuple[int, str]:
        code, text = run(path, given, capture=True, **options)
        printed.append(text)
        return code, text

    monkeypatch.setattr(scripts, "run_script", captured)
    result = CliRunner().invoke(app, ["backend", "check", *arguments])
    return result.exit_code, "".join(printed) + result.output


def test_a_right_backend_passes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = check(f"{file}:Mine", "--examples", "1", monkeypatch=monkeypatch)
    assert code == 0 and " ops give what NumPy gives" in text


def test_a_wrong_one_is_shown_with_the_call(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--op", "matmul", "--op", "add", "--json")
    code, text = check(f"{file}:Wrong", *options, monkeypatch=monkeypatch)
    report = json.loads(text)
    assert code == 1 and not report["passed"]
    problems = {op["op"]: op["problem"] for op in report["ops"]}
    assert problems["matmul"] and problems["add"] is None


@pytest.mark.parametrize("target", ["{}:thing", "{}:Nothing", "nosuch"])
def test_what_is_no_backend_is_refused(
    file: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = check(target.format(file), monkeypatch=monkeypatch)
    assert code == 1


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = check("nosuch.py:Mine", monkeypatch=monkeypatch)
    assert code == 1 and "there is no file nosuch.py" in text


def test_a_new_backend_is_right_and_can_be_checked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CliRunner().invoke(
        app, ["backend", "new", "fast", "--from", "numpy", "--kernel", "conv2d"]
    )
    assert made.exit_code == 0, made.output
    assert "def conv2d(self, x, w, b=None, *," in (workspace / "backends/fast.py").read_text()
    code, text = check("fast", "--examples", "2", "--op", "conv2d", monkeypatch=monkeypatch)
    assert code == 0 and "1 of 1 ops give what NumPy gives" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mine"], "is there: write in it, name another"),
        (["numpy"], "'numpy' cannot be the name of a backend of yours"),
        (["my-own"], "'my-own' cannot be the name"),
        (["own", "--from", "numpi"], "there is no backend 'numpi'. Did you mean 'numpy'?"),
        (["own", "--kernel", "matmull"], "there is no kernel 'matmull'. Did you mean 'matmul'?"),
    ],
)
def test_what_cannot_be_begun_is_said(workspace: Path, arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["backend", "new", *arguments])
    assert result.exit_code == 1 and says in result.stderr.replace("\n", " ")


def test_beginning_anew_keeps_a_backup(workspace: Path) -> None:
    (workspace / "backends/mine.py").write_text("mine = 1\n")
    assert CliRunner().invoke(app, ["backend", "new", "--replace"]).exit_code == 0
    (kept,) = workspace.glob(".tito/backups/*/backends/mine.py")
    assert kept.read_text() == "mine = 1\n"


def test_a_name_is_resolved_to_file_and_class(workspace: Path) -> None:
    mine = workspace / "backends/mine.py"
    here = Workspace(workspace)
    assert backends.resolve("mine", here) == f"{mine}:MyBackend"
    assert backends.resolve(str(mine), None) == f"{mine}:MyBackend"
    assert backends.resolve(f"{mine}:Other", None) == f"{mine}:Other"
    assert backends.resolve("optimized", here) == "optimized"
    mine.write_bytes(codecs.BOM_UTF8 + mine.read_bytes())  # as Windows' Notepad saves it
    assert backends.resolve("mine", here) == f"{mine}:MyBackend"
    assert backends.own_names(here) == ["mine"]
    with pytest.raises(WorkspaceError, match=r"no backends/mine.py here: make one in a workspace"):
        backends.resolve("mine", None)
    mine.write_text("class A: pass\nclass B: pass\n")
    with pytest.raises(WorkspaceError, match=r"has A, B: name the class of your backend"):
        backends.resolve("mine", here)
    mine.write_text("class A(:\n")
    with pytest.raises(WorkspaceError, match=r"mine.py is no Python"):
        backends.resolve("mine", here)
