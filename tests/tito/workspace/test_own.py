"""Scripts on the student's package, and how much of what ran was theirs."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.tito.conftest import Tito
from tests.tito.workspace.conftest import FIRST_ANSWERS, SECOND_ANSWERS, Student
from tito.workspace.folder import WorkspaceError
from tito.workspace.own import last_json
from tito.workspace.share import measure
from tito.workspace.trace import Trace

DIMS = "tinytorch/functions/dims.py"
PACKAGE = "def f():\n    return 1\n\n\ndef g(x):\n    y = x\n    return y\n\n\nh = [lambda: 2]\n"


def run(student: Student, *options: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stdout of the milestone, its own process included."""
    capfd.readouterr()
    result = student.tito("milestone", "run", "layer", *options)
    return result.exit_code, capfd.readouterr().out + result.stdout


def test_a_milestone_runs_on_the_students_package(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    code, output = run(student, capfd=capfd)
    assert code == 0
    assert f"it ran from {student.root}/tinytorch" in output
    assert "0 were yours: 0 of" in output
    assert f"ran as ours, and can be yours:\n  {DIMS}::infer_size" in output


def test_it_says_what_was_theirs(student: Student, capfd: pytest.CaptureFixture[str]) -> None:
    student.complete("second", SECOND_ANSWERS)
    output = run(student, capfd=capfd)[1]
    assert "2 were yours" in output  # forward, and one of the two formulas of the product
    assert "yours: tinytorch/nn/linear.py::Linear.forward, called once" in output
    assert f"  {DIMS}::infer_size" in output
    student.complete("first", FIRST_ANSWERS)
    code, output = run(student, "--require-all-mine", capfd=capfd)
    assert code == 0
    assert "every part that the course lets you write and that ran was yours" in output
    report = json.loads(run(student, "--json", capfd=capfd)[1])
    assert report["passed"] is True
    assert report["yours"]["own"]["tinytorch/nn/linear.py::Linear.forward"] == 1
    assert 0 < report["yours"]["own_lines"] < report["yours"]["lines"]


def test_it_can_insist_on_all_of_it(student: Student, capfd: pytest.CaptureFixture[str]) -> None:
    code, output = run(student, "--require-all-mine", capfd=capfd)
    assert code == 1
    assert "ran as ours, and can be yours" in output


def test_the_exit_code_of_the_script_comes_first(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(student, "--backend", "naive", "--require-all-mine", capfd=capfd)[0] == 3


def test_outside_a_workspace_nothing_can_be_mine(tito: Tito) -> None:
    result = tito("milestone", "run", "xor", "--require-all-mine")
    assert result.returncode == 1
    assert "--require-all-mine is for a workspace" in result.stderr


def test_what_their_code_prints_does_not_spoil_the_json(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    loud = SECOND_ANSWERS["forward"].replace(
        "        return", "        print('{', x)\n        return"
    )
    student.complete("second", {**SECOND_ANSWERS, "forward": loud})
    assert json.loads(run(student, "--json", capfd=capfd)[1])["passed"] is True


def test_a_script_that_prints_no_result_is_named() -> None:
    assert last_json('a\n{"b": 1}\n') == ("a\n", {"b": 1})
    with pytest.raises(WorkspaceError, match="has not printed its result, but: nothing"):
        last_json("nothing")


@pytest.fixture
def traced(tmp_path: Path) -> list[dict[str, object]]:
    """What ran of a small package: `f` twice, the lambda once, `g` not at all."""
    folder = tmp_path / "tinytorch"
    folder.mkdir()
    (folder / "small.py").write_text(PACKAGE)
    module = runpy.run_path(str(folder / "small.py"))
    with Trace(str(folder)) as trace:
        module["f"]()
        module["f"]()
        module["h"][0]()
        json.dumps({})  # code elsewhere does not count
    return trace.report()


def test_a_trace_counts_calls_of_functions_of_the_package(
    traced: list[dict[str, object]],
) -> None:
    found = {(code["name"], code["calls"]) for code in traced}
    assert found == {("f", 2), ("<lambda>", 1)}
    assert sys.gettrace() is None
    assert next(code["lines"] for code in traced if code["name"] == "f") == [1, 2]


def test_the_share_of_a_trace(tmp_path: Path, traced: list[dict[str, object]]) -> None:
    f, g = "tinytorch/small.py::f", "tinytorch/small.py::g"
    share = measure(tmp_path, traced, [f], [f, g])
    assert (share.functions, share.own_functions) == (2, 1)
    assert (share.lines, share.own_lines) == (3, 2)
    assert share.own == {f: 2}
    assert share.missing == ()
    assert measure(tmp_path, traced, [], [f, g]).missing == (f,)
