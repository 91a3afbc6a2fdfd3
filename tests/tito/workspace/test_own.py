"""Scripts on the student's package, and how much of what ran was theirs."""

from __future__ import annotations

import cProfile
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tito.conftest import Tito
from tests.tito.workspace.conftest import FIRST_ANSWERS, SECOND_ANSWERS, Student
from tito.workspace import own, trace as trace_module
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.own import last_json
from tito.workspace.share import measure
from tito.workspace.trace import Trace

DIMS = "tinytorch/functions/dims.py"
BACKEND = """
import numpy as np
from tinytorch.backends.numpy import NumpyBackend

class Mine(NumpyBackend):
    def matmul(self, a, b):
        return np.matmul(a, b)
"""
SCRIPT = """
import sys
import tinytorch
from tinytorch.backends.load import load_backend

tinytorch.set_backend(load_backend(sys.argv[2]))
for _ in range(2):
    (tinytorch.ones(3, 4) @ tinytorch.ones(4, 5)).sum()
print("{}")
"""
BREAKS_OFF = """
import os, sys
if "--first-epoch" in sys.argv:
    os._exit(1)
print('{"passed": true}')
"""
PACKAGE = "def f():\n    return 1\n\n\ndef g(x):\n    y = x\n    return y\n\n\nh = [lambda: 2]\n"
PACKAGE += "\n\ndef steps():\n    yield 1\n    yield 2\n"
COMPILED = """
import numba

def jit(function):
    return numba.njit(function)

@jit
def inner(x):
    return x + 1

@jit
def kernel(x):
    return inner(x)

@jit
def unused(x):
    return x

def outer():
    return kernel(1)
"""


def run(student: Student, *options: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stdout of the milestone, its own process included."""
    capfd.readouterr()
    result = student.tito("milestone", "run", "layer", *options)
    return result.exit_code, capfd.readouterr().out + result.stdout


@pytest.mark.slow
def test_a_milestone_runs_on_the_students_package(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    code, output = run(student, capfd=capfd)
    assert code == 0
    assert f"it ran from {student.root}/tinytorch" in output
    assert "yours were 0 of" in output
    assert "ran as ours, and can be yours:\n  01 first\n" in output
    assert f"    {DIMS}::infer_size\n" in output


@pytest.mark.slow
def test_it_says_what_was_theirs(student: Student, capfd: pytest.CaptureFixture[str]) -> None:
    student.complete("second", SECOND_ANSWERS)
    output = run(student, capfd=capfd)[1]
    assert "yours: tinytorch/nn/linear.py::Linear.forward, called once" in output
    assert f"    {DIMS}::infer_size\n" in output
    assert "02 second" not in output
    student.complete("first", FIRST_ANSWERS)
    code, output = run(student, "--require-all-mine", capfd=capfd)
    assert code == 0
    assert "every part that the course lets you write and that ran was yours" in output
    assert output.rstrip().endswith("all yours")
    report = json.loads(run(student, "--json", capfd=capfd)[1])
    assert report["passed"] is True
    assert report["yours"]["own"]["tinytorch/nn/linear.py::Linear.forward"] == 1
    assert 0 < report["yours"]["own_calls"] < report["yours"]["calls"]


@pytest.mark.slow
def test_the_arithmetic_is_theirs_if_their_kernel_does_it(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = student.file("backends/mine.py")
    backend.write_text(BACKEND)
    student.file("script.py").write_text(SCRIPT)
    assert (
        own.run_script(
            Workspace(student.root),
            student.file("script.py"),
            ["--backend", f"{backend}:Mine"],
            files=[backend],
            as_json=True,
            all_mine=False,
        )
        == 0
    )
    share = json.loads(capfd.readouterr().out)["yours"]
    products, sums = 2 * 3 * 4 * 5, 3 * 5
    assert (share["own_flops"], share["flops"]) == (2 * products, 2 * (products + sums))
    assert share["own"] == {"backends/mine.py::Mine.matmul": 2}


@pytest.mark.slow
def test_it_can_insist_on_all_of_it_before_it_trains(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    code, output = run(student, "--require-all-mine", capfd=capfd)
    assert code == 1
    assert output.index("required: every part") < output.index("ran as ours, and can be yours")
    assert "it ran from" not in output
    assert output.rstrip().endswith("parts that it needs are ours; not trained")
    code, output = run(student, "--require-all-mine", "--json", capfd=capfd)
    assert code == 1 and json.loads(output)["passed"] is False


@pytest.mark.slow
def test_a_trace_that_broke_off_is_no_proof(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    script = student.file("script.py")
    script.write_text(BREAKS_OFF)
    code = own.run_script(Workspace(student.root), script, [], as_json=True, all_mine=True)
    printed = capfd.readouterr()
    assert code == 1 and json.loads(printed.out)["passed"] is False
    assert "nothing is known of what ran" in printed.err


@pytest.mark.slow
def test_ctrl_c_in_the_traced_epoch_ends_all_of_it(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    script = student.file("script.py")
    script.write_text("import sys\nprint('ran', file=sys.stderr)\nraise KeyboardInterrupt\n")
    code = own.run_script(Workspace(student.root), script, [], as_json=True, all_mine=False)
    printed = capfd.readouterr()
    assert code == 130 and printed.err.count("ran\n") == 1
    assert "Traceback" not in printed.err and not printed.out


@pytest.mark.slow
def test_the_exit_code_of_the_script_comes_first(
    student: Student, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(student, "--backend", "naive", "--require-all-mine", capfd=capfd)[0] == 3


def test_outside_a_workspace_nothing_can_be_mine(tito: Tito) -> None:
    result = tito("milestone", "run", "xor", "--require-all-mine")
    assert result.returncode == 1
    assert "--require-all-mine is for a workspace" in result.stderr


@pytest.mark.slow
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
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "tinytorch"
    folder.mkdir()
    (folder / "small.py").write_text(PACKAGE)
    return folder


@pytest.fixture
def traced(small: Path) -> dict[str, Any]:
    """What ran of a small package: `f` twice, the lambda and a generator once, `g` not at all."""
    module = runpy.run_path(str(small / "small.py"))
    with Trace(str(small)) as trace:
        module["f"]()
        module["f"]()
        module["h"][0]()
        list(module["steps"]())
        cProfile.Profile().runcall(json.dumps, {})  # code elsewhere does not count
    return trace.report()


CALLS = [("<lambda>", 1), ("f", 2), ("steps", 1)]


def test_a_trace_counts_calls_of_functions_of_the_package(traced: dict[str, Any]) -> None:
    assert sorted((code["name"], code["calls"]) for code in traced["functions"]) == CALLS
    assert sys.gettrace() is None


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_with_monitoring_it_counts_the_same(small: Path, version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} here")
    code = (
        "import cProfile, json, runpy\n"
        f"Trace = runpy.run_path({trace_module.__file__!r}, run_name='trace')['Trace']\n"
        f"small = runpy.run_path({str(small / 'small.py')!r})\n"
        f"with Trace({str(small)!r}) as trace:\n"
        "    small['f'](), small['f'](), small['h'][0](), list(small['steps']())\n"
        "    cProfile.Profile().runcall(json.dumps, {})\n"
        "print(json.dumps(trace.report()))\n"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["functions"]
    assert sorted((code["name"], code["calls"]) for code in found) == CALLS


def test_the_share_of_a_trace(tmp_path: Path, traced: dict[str, Any]) -> None:
    f, g = "tinytorch/small.py::f", "tinytorch/small.py::g"
    share = measure(tmp_path, traced, [f], [f, g])
    assert (share.functions, share.own_functions) == (3, 1)
    assert (share.calls, share.own_calls) == (4, 2)
    assert share.own == {f: 2}
    assert share.missing == ()
    assert measure(tmp_path, traced, [], [f, g]).missing == (f,)


def test_compiled_functions_count_as_run_where_a_function_that_ran_names_them(
    small: Path,
) -> None:
    pytest.importorskip("numba")
    (small / "fast.py").write_text(COMPILED)
    module = runpy.run_path(str(small / "fast.py"))
    with Trace(str(small)) as trace:
        module["outer"]()
    found = {code["name"]: code["calls"] for code in trace.report()["functions"]}
    assert found == {"outer": 1, "kernel": 0, "inner": 0}
