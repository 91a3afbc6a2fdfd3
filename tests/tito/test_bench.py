from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tito import INTERRUPTED, bench, scripts
from tito.cli import app

runner = CliRunner()

SCRIPT = '''"""Measures {name}.

More.
"""
import json, sys
if __name__ == "__main__":
    sys.exit({code}) if {code} else print(json.dumps({{"name": "{name}", "got": sys.argv[1:]}}))
'''


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two benchmarks and a helper."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(SCRIPT.format(name=name, code=0))
    (folder / "runner.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    return folder


def test_the_real_benchmarks_are_found() -> None:
    assert {"dispatch", "training"} <= set(bench.benchmarks())


def test_helpers_are_not_benchmarks(shelf: Path) -> None:
    result = runner.invoke(app, ["bench", "--list", "--json"])
    titles = {"first": "Measures first.", "second": "Measures second."}
    assert json.loads(result.output) == titles
    assert "first   Measures first." in runner.invoke(app, ["bench", "--list"]).output


def test_without_a_name_all_run_into_one_report(shelf: Path) -> None:
    result = runner.invoke(app, ["bench", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        name: {"name": name, "got": ["--json"]} for name in ("first", "second")
    }
    assert result.stderr == "== first, 1 of 2\n== second, 2 of 2\n"


def test_other_options_reach_the_script(shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = runner.invoke(app, ["bench", "first", "--rounds", "3", "--json"])
    assert result.exit_code == 0
    assert json.loads(capfd.readouterr().out)["got"] == ["--rounds", "3", "--json"]


def test_a_failing_benchmark_is_a_failure_of_the_command(shelf: Path) -> None:
    (shelf / "second.py").write_text(SCRIPT.format(name="second", code=3))
    result = runner.invoke(app, ["bench", "--json"])
    assert result.exit_code == 3
    assert list(json.loads(result.stdout)) == ["first"]


def test_ctrl_c_ends_all_benchmarks_and_not_only_the_one_that_runs(shelf: Path) -> None:
    (shelf / "first.py").write_text(SCRIPT.format(name="first", code=INTERRUPTED))
    result = runner.invoke(app, ["bench"])
    assert result.exit_code == INTERRUPTED
    assert "second" not in result.output


def test_what_cannot_run_here_is_left_out_unless_it_is_asked_for(shelf: Path) -> None:
    (shelf / "second.py").write_text(SCRIPT.format(name="second", code=77))
    result = runner.invoke(app, ["bench", "--json"])
    assert result.exit_code == 0
    assert list(json.loads(result.stdout)) == ["first"]
    assert runner.invoke(app, ["bench", "second"]).exit_code == 77


def test_an_unknown_benchmark_suggests_and_lists(shelf: Path) -> None:
    result = runner.invoke(app, ["bench", "frist"])
    assert result.exit_code == 2
    assert "there is no benchmark 'frist'. Did you mean 'first'?" in result.output


@pytest.mark.parametrize("given", [["--backend", "mine"], ["--backend=mine"]])
def test_a_students_backend_is_named_by_file_and_class(
    shelf: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    given: list[str],
) -> None:
    path = shelf.parent / "own.py"
    path.write_text("class Mine: pass\n")
    given = [each.replace("mine", str(path)) for each in given]
    result = runner.invoke(app, ["bench", "first", *given, "--json"])
    assert result.exit_code == 0
    got = json.loads(capfd.readouterr().out)["got"]
    assert got[-2].endswith(f"{path}:Mine") and got[-1] == "--json"
    result = runner.invoke(app, ["bench", "first", "--backend", "mine"])
    assert result.exit_code == 1 and "make one in a workspace" in result.stderr


def test_a_hidden_vector_unit_is_hidden_from_the_script(
    shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tools = shelf.parent / "tools"
    tools.mkdir()
    (tools / "without.py").write_text("import sys; print('without', sys.argv[1:])\n")
    assert runner.invoke(app, ["bench", "first", "--hide", "avx512"]).exit_code == 0
    assert capfd.readouterr().out == f"without ['avx512', '{shelf / 'first.py'}']\n"


def test_recording_is_what_the_script_of_machines_does(
    shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (shelf / "machines.py").write_text(SCRIPT.format(name="machines", code=0))
    assert runner.invoke(app, ["bench", "--record"]).exit_code == 0
    assert json.loads(capfd.readouterr().out) == {"name": "machines", "got": ["--record"]}
