"""`tito backend check`: the user's class in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tito import scripts
from tito.cli import app

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


def check(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and what the child printed on stdout."""
    printed: list[str] = []
    run = scripts.run_script

    def captured(path: Path, given: list[str]) -> tuple[int, str]:
        code, text = run(path, given, capture=True)
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
    assert code == 2 and "is neither FILE.py:CLASS" in text
