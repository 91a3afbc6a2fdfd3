from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tito.cli import app
from tito.compete import commands, measure, result
from tito.compete.event import BUILT_IN, Event, Problem
from tito.compete.process import Contestant

HONEST = """
import numpy as np

class Entry:
    def matmul(self, a, b):
        return np.matmul(a, b)
"""


def call(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["compete", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_events_and_starters(tmp_path: Path) -> None:
    names = [each["name"] for each in json.loads(call("list", "--json"))]
    assert "matmul" in names and "cnn_step" in names
    assert "Products of float32 matrices" in call("list")
    out = tmp_path / "mine.py"
    assert "tito compete run" in call("new", "matmul", "--out", str(out))
    assert "# tito: event = matmul" in out.read_text()
    assert "is there already" in call("new", "matmul", "--out", str(out), code=2)
    assert "matmul" in call("new", "chess", code=2)
    nowhere = str(tmp_path / "absent" / "mine")
    assert "cannot be written: No such file" in call("new", "matmul", "--out", nowhere, code=2)
    assert "cannot be read or written: No such" in call("aa", "matmul", "--file", nowhere, code=3)
    folder = ("aa", "matmul", "--file", str(tmp_path))
    assert "cannot be read or written: Is a directory" in call(*folder, code=3)


def test_a_file_that_cannot_be_entered_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("# tito: event = matmul\nimport os\nclass A: pass\n")
    assert "line 2: 'os' is not among" in call("run", str(file), code=1)
    file.write_text("class A: pass\n")
    assert "does not say its event" in call("run", str(file), code=1)
    assert "no event 'chess'" in call("run", str(file), "--event", "chess", code=1)
    assert "Did you mean" in call("run", str(file), "--event", "matmul", "--beside", "nmpy", code=2)
    other = tmp_path / "other.py"
    other.write_text("# tito: event = conv2d\nclass A: pass\n")
    file.write_text("# tito: event = matmul\nclass A: pass\n")
    assert "is for matmul and" in call("duel", str(file), str(other), code=2)


def test_a_file_that_was_handed_in_does_not_choose_code_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event's task runs in this process: only who types --event says that it is theirs."""
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "event.toml").write_text((BUILT_IN / "matmul" / "event.toml").read_text())
    (folder / "task.py").write_text("raise SystemExit('code of a student')")
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("# tito: event = evil\nclass A: pass\n")
    said = call("run", "mine.py", code=1)
    assert "there is no event 'evil'" in said and "--event evil" in said and "student" not in said


def test_all_baselines_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert commands._beside("all") == ["naive", "blocked", "optimized", "torch"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert commands._beside("all") == ["naive", "blocked", "optimized"]
    assert commands._beside("torch,naive") == ["torch", "naive"] and commands._beside("") == []


@needs_sandbox
@pytest.mark.slow
def test_the_naive_backend_is_measured_in_sizes_that_it_can_bear(
    open_event: Event, tmp_path: Path
) -> None:
    """Against NumPy in the same sizes; nobody else is."""
    file = tmp_path / "mine.py"
    file.write_text(HONEST)
    options = ["--event", str(open_event.folder), "--seconds", "1", "--seed", "3"]
    done = CliRunner().invoke(
        app, ["compete", "run", str(file), *options, "--beside", "naive", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout[done.stdout.index("{") :])
    found = {
        n: [r["case"] for r in told["rows"] if r["name"] == n] for n in ("numpy", "entry", "naive")
    }
    usual, small = ["square", "b transposed"], ["small square", "small b transposed"]
    assert found == {"numpy": usual + small, "entry": usual, "naive": small}
    ratios = {s["name"]: s["ratio"] for s in told["scores"]}
    assert ratios["naive"] < ratios["entry"]  # by far: loops in Python


def test_kernels_are_compiled_once_and_can_be_read_in_the_sandbox(
    open_event: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "cache" / "kernels" / "key" / "gemm.bin"
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[str] = []

    class Compiling:
        def __init__(self, contestant: Contestant, event: Event, *, confined: bool) -> None:
            assert not confined and (tmp_path / "cache").is_dir()
            asked.append(contestant.name)

        def measure(self, problem: Problem, seconds: float) -> None:
            kernel.parent.mkdir(parents=True, exist_ok=True)
            kernel.touch(mode=0o600)

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(measure, "Worker", Compiling)
    entry = Contestant("optimized", tmp_path / "mine.py", "Entry")
    measure._fill_cache(open_event, [Contestant("numpy"), entry, Contestant("blocked")])
    assert asked == ["blocked", "closed"]  # never what an entry compiles
    assert stat.S_IMODE(kernel.stat().st_mode) == (0o644 if os.geteuid() == 0 else 0o600)


@needs_sandbox
@pytest.mark.slow
def test_a_run_gives_a_table_and_a_wrong_entry_its_verdict(
    open_event: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HONEST)
    # whatever the machine: time for the fewest launches, and an interval that is too wide
    options = ["--event", str(open_event.folder), "--seconds", "0.01", "--seed", "3"]
    monkeypatch.setattr(result, "NOISY", 1.0)
    done = CliRunner().invoke(app, ["compete", "run", str(file), *options, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["scores"][1]["name"] == "entry" and told["scores"][1]["ratio"] > 0
    assert len(told["launches"][0]["seconds"]["entry"]["square"]) == open_event.rounds
    assert told["machine"]["sandbox"].startswith("bubblewrap")
    done = CliRunner().invoke(app, ["compete", "duel", str(file), str(file), *options])
    assert done.exit_code == 0 and "mine (second)" in done.output
    assert "3 launches, up to 2 pairs" in done.output and "--seconds buys more" in done.output
    file.write_text(HONEST.replace("np.matmul(a, b)", "np.matmul(a, b) * 1.01"))
    failed = json.loads(call("run", str(file), *options, "--json", code=1))
    assert failed["verdict"] == "wrong" and "the reference is" in failed["text"]
