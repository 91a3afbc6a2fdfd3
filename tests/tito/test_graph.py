from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system_tools import require_tool
from tito.cli import app

runner = CliRunner()

STEP = """
import tinytorch
from tinytorch import nn, optim
from tinytorch.nn import functional as F

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = optim.SGD(model.parameters(), lr=0.1)

def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

def example_inputs():
    return tinytorch.ones(4, 8), tinytorch.tensor([0, 1, 2, 0])

def logarithm(x):
    return x.log()

def double(x):
    return x * 2.0 + x * 2.0

def wrong(x):
    return 1 / 0

def nothing():
    return 1
"""


@pytest.fixture
def step(tmp_path: Path) -> Path:
    file = tmp_path / "training_step.py"
    file.write_text(STEP)
    return file


def tito(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tito", "graph", *arguments], capture_output=True, text=True
    )


@pytest.mark.slow
def test_show_prints_the_whole_step_with_its_lines(step: Path) -> None:
    shown = tito("show", f"{step}:step")
    assert shown.returncode == 0, shown.stderr
    assert "%model_0_weight : float32[16, 8] = placeholder[model.0.weight]" in shown.stdout
    assert "# optimizer" in shown.stdout
    nodes = json.loads(tito("show", f"{step}:step", "--json").stdout)
    assert {"forward", "backward", "optimizer"} == {node["phase"] for node in nodes}
    assert any(node["line"] and "training_step.py:11" in node["line"] for node in nodes)
    table = tito("show", f"{step}:double", "-i", "float32[3]", "--table")
    assert "call_function" in table.stdout


def test_run_prints_results_and_compares_backends(step: Path) -> None:
    command = ("run", f"{step}:double", "--input", "float64[3]")
    (result,) = json.loads(tito(*command, "--json").stdout)
    assert result["meta"] == "float64[3]"
    both = tito(*command, "--backend", "naive", "--against", "numpy")
    assert "every node agrees on naive and numpy" in both.stdout


def test_run_finds_the_first_nan(step: Path) -> None:
    found = tito("run", f"{step}:logarithm", "-i", "float32[8]", "--find-nan")
    assert found.returncode == 1
    assert "log(%x)` is not finite" in found.stderr
    assert "training_step.py:20" in found.stderr


@pytest.mark.slow
def test_optimize_reports_each_pass(step: Path) -> None:
    command = ("optimize", f"{step}:double", "-i", "float32[3]", "--passes", "cse,dce")
    report = json.loads(tito(*command, "--json", "--diff").stdout)
    assert report["nodes_after"] == report["nodes_before"] - 1
    assert [p["name"] for p in report["passes"] if p["changed"]] == ["cse"]
    text = tito(*command, "--diff").stdout
    assert "-    %mul_1 : float32[3] = mul(%x, 2.0)" in text
    unknown = tito("optimize", f"{step}:double", "-i", "float32[3]", "--passes", "csee")
    assert unknown.returncode == 1 and "there is no pass 'csee'; there are" in unknown.stderr


@pytest.mark.slow
def test_profile_measures_every_node_and_draws_the_memory(step: Path, tmp_path: Path) -> None:
    plot = tmp_path / "memory.png"
    profiled = tito("profile", f"{step}:step", "--report", str(plot), "--limit", "3")
    assert profiled.returncode == 0, profiled.stderr
    assert "live KiB" in profiled.stdout and "\npeak " in profiled.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    report = tmp_path / "profile.json"
    rows = json.loads(tito("profile", f"{step}:step", "--json", "--report", str(report)).stdout)
    assert json.loads(report.read_text()) == rows
    assert all(row["seconds"] > 0 for row in rows)
    assert {"node", "seconds", "flops", "bytes", "live_bytes"} == set(rows[0])


@pytest.mark.slow
def test_draw_writes_pictures(step: Path, tmp_path: Path) -> None:
    require_tool("dot")
    for name in ("net.svg", "net.png", "net.mmd"):
        drawn = tito("draw", f"{step}:step", str(tmp_path / name), "--by", "time")
        assert drawn.returncode == 0, drawn.stderr
    assert "<svg" in (tmp_path / "net.svg").read_text()
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "net.mmd").read_text().startswith("flowchart")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nowhere.py:f"], "there is no file nowhere.py"),
        (["show", "f"], "is not of the form FILE.py:NAME"),
        (["show", "notes.md:f"], "is not of the form FILE.py:NAME"),
        (["run", f"{__file__}:f", "--find-nan", "--against", "naive"], "give one of them"),
    ],
)
def test_a_wrong_target_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, ["graph", *arguments])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.slow
def test_mistakes_in_the_request_are_said_in_a_sentence(step: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (["show", f"{step}:stop"], "has no 'stop'; it has model, step, "),
        (["show", f"{step}:double", "-i", "float32[3"], "is not a dtype and a shape"),
        (["show", f"{step}:double", "-i", "float12[3]"], "is not a TinyTorch dtype"),
        (["show", f"{step}:double", "-i", "int64[3]<0"], "the limit is for integers, and above 0"),
        (["show", f"{step}:double", "-i", "float32[3]<5"], "the limit is for integers, and abov"),
        (["show", f"{step}:double"], "double(x) does not take 2 arguments: too many positional"),
        (["show", f"{step}:nothing", "-i", "float32[3]"], "nothing() does not take 1 arguments"),
        (["show", f"{step}:__name__"], "is no function or Module, but of type str"),
    ):
        result = tito(*arguments)
        assert result.returncode == 1
        assert message in result.stderr and "Traceback" not in result.stderr
    where = tito("show", f"{step}:stop", "--verbose").stderr
    assert "Traceback" in where and "has no 'stop'" in where.splitlines()[-1]
    step.write_text("def f(x):\n    return x\n\ndef nothing():\n    return 1\n")
    assert tito("show", f"{step}:nothing").stdout == "graph():\n    return ()\n"
    assert "Give the file a function example_inputs()" in tito("show", f"{step}:f").stderr
    picture = runner.invoke(app, ["graph", "draw", f"{step}:f", "net.gif"])
    assert picture.exit_code == 2 and ".mmd" in picture.output


def test_an_error_of_the_users_own_is_shown_where_it_is(step: Path) -> None:
    result = tito("show", f"{step}:wrong", "-i", "float32[3]")
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr and "training_step.py" in result.stderr
