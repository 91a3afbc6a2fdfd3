"""`tito ladder` and `tito backend compare`, with the processes that they start."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tito.workspace.conftest import FORWARD, SECOND_ANSWERS, Student
from tito.ladder import commands, history, measure
from tito.ladder.commands import MATMUL, speed_line
from tito.ladder.tiers import TIERS
from tito.workspace.folder import Workspace

MINE = """
import numpy as np
from tinytorch.backends.numpy import NumpyBackend

class MyBackend(NumpyBackend):
    def matmul(self, a, b):
        {line}
        return np.matmul(a, b)
"""


def write_backend(student: Student, line: str = "pass") -> None:
    student.file("backends/mine.py").write_text(MINE.format(line=line))


def ladder(student: Student, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a ladder of the MLP, with little measured."""
    result = student.tito("ladder", "mlp", "--rounds", "1", "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def tiers(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tier["tier"]: tier for tier in result["tiers"]}


@pytest.mark.slow
def test_a_step_is_timed_on_the_students_package_and_kept(student: Student) -> None:
    student.complete("second", SECOND_ANSWERS)
    write_backend(student, "print('loud')")
    code, result = ladder(student, "--on", "mine,loops")
    assert (code, result["passed"], result["step"]) == (0, True, "mlp")
    loops, mine = tiers(result).values()
    assert (loops["tier"], mine["tier"]) == ("loops", "mine")
    assert loops["times_as_fast"] == 1 and loops["seconds"] > 0
    assert loops["share"]["own_calls"] > 0  # Linear.forward
    assert loops["share"]["own_flops"] == 0 < mine["share"]["own_flops"] < mine["share"]["flops"]
    assert result["completed"] == ["second"]
    (kept,) = history.load(Workspace(student.root), "mlp")
    assert tiers(kept)["mine"]["seconds"] == mine["seconds"]
    past = student.tito("ladder", "mlp", "--history")
    assert past.exit_code == 0 and "mine" in past.output


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_measured_is_shown_where_nothing_can_be_kept(
    student: Student, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """On a read-only folder minutes of measuring ended in the error alone."""
    found = [measure.Measured(TIERS[0], cpu=[0.25], wall=[0.25])]
    monkeypatch.setattr(commands, "run_tiers", lambda *_, **__: found)
    history.path_of(Workspace(student.root)).mkdir()  # root may write into read-only folders
    result = student.tito("ladder", "mlp", *(["--json"] if as_json else []))
    assert result.exit_code == 1 and "ladder.jsonl: Is a directory" in result.stderr
    assert "250 ms" in result.stdout or json.loads(result.stdout)["tiers"][0]["seconds"] == 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("b = b * np.float32(1.01)", "wrong", "the loss of step 1 is"),
        ("raise ValueError('not yet')", "failed", "ValueError: not yet (mine.py, line 7)"),
        ("import os; os._exit(3)", "failed", "ended by itself with exit code 3"),
        ("import os; os.abort()", "failed", "crashed with SIGABRT"),
    ],
)
def test_a_backend_that_is_not_right_is_not_timed_and_the_others_are(
    student: Student, line: str, status: str, says: str
) -> None:
    write_backend(student, line)
    code, result = ladder(student, "--on", "numpy,mine")
    assert (code, result["passed"]) == (1, False)
    found = tiers(result)
    assert found["numpy"]["status"] == "ok"
    assert found["mine"]["status"] == status and says in found["mine"]["says"]
    assert "seconds" not in found["mine"]


@pytest.mark.slow
def test_an_endless_loop_is_stopped(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CHECK_SECONDS", 2.0)
    write_backend(student, "while True: pass")
    code, result = ladder(student, "--on", "mine")
    assert code == 1 and "stopped after 2 s" in tiers(result)["mine"]["says"]
    assert history.load(Workspace(student.root), "mlp") == []


@pytest.mark.slow
def test_their_definitions_are_held_to_the_reference(student: Student) -> None:
    """A layer that leaves its bias out passes its tests here, and trains other numbers."""
    wrong = FORWARD[: FORWARD.index(" if self.bias")] + "\n"
    student.complete("second", {**SECOND_ANSWERS, "forward": wrong})
    code, result = ladder(student, "--on", "numpy")
    assert code == 1
    assert tiers(result)["numpy"]["status"] in ("wrong", "failed")


@pytest.mark.slow
def test_what_is_not_there_is_said_and_no_failure(student: Student) -> None:
    student.file("backends/mine.py").unlink()
    result = student.tito("ladder", "mlp", "--rounds", "1", "--on", "numpy,mine")
    assert result.exit_code == 0
    assert "mine: absent: not begun: tito backend new" in result.output
    assert "x numpy" in result.output and "NumPy for every op (backends)" in result.output
    assert "drawn: ladder.svg, ladder.png" in result.output
    assert student.file("ladder.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in student.file("ladder.svg").read_text()


def test_unknown_names_suggest(student: Student) -> None:
    result = student.tito("ladder", "cmn")
    assert result.exit_code == 2 and "there is no step 'cmn'. Did you mean 'cnn'?" in result.output
    result = student.tito("ladder", "--on", "loop")
    assert (
        result.exit_code == 2 and "there is no tier 'loop'. Did you mean 'loops'?" in result.output
    )


@pytest.mark.slow
def test_when_their_loops_multiply_a_line_says_what_that_costs(student: Student) -> None:
    line = speed_line(Workspace(student.root), ["tinytorch/backends/naive/__init__.py::f"])
    assert line == ""
    line = speed_line(Workspace(student.root), [MATMUL])
    assert re.fullmatch(
        r"a step of the MLP of 1986 costs .+s on your loops and .+s on NumPy, [\d.]+ times less: "
        r"a backend of your own begins with `tito backend new`",
        line,
    )


def test_it_is_for_a_workspace(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = Student(tmp_path).tito("ladder")
    assert result.exit_code == 1 and "is not in a workspace" in result.stderr


@pytest.mark.slow
def test_a_race_sets_a_backend_beside_loops_numpy_and_ours(student: Student) -> None:
    path = student.file("elsewhere.py")
    path.write_text(MINE.format(line="pass").replace("MyBackend", "Fast"))
    options = ("--rounds", "1", "--step", "mlp", "--json")
    result = student.tito("backend", "compare", "elsewhere.py:Fast", *options)
    assert result.exit_code == 0, result.output
    (step,) = json.loads(result.stdout)
    assert list(tiers(step)) == ["loops", "numpy", "elsewhere.py:Fast", "optimized"]


@pytest.mark.slow
def test_all_tiers_agree_on_the_cnn(student: Student) -> None:
    result = student.tito("ladder", "cnn", "--rounds", "1", "--json")
    found = tiers(json.loads(result.stdout))
    assert {name: tier["status"] for name, tier in found.items()} == dict.fromkeys(found, "ok")
    assert found["compiled"]["times_as_fast"] > found["numpy"]["times_as_fast"] > 2
