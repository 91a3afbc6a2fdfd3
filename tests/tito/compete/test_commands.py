from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tito.cli import app
from tito.compete.event import Event

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


@needs_sandbox
@pytest.mark.slow
def test_a_run_gives_a_table_and_a_wrong_entry_its_verdict(
    open_event: Event, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HONEST)
    options = ["--event", str(open_event.folder), "--launches", "2", "--seed", "3"]
    done = CliRunner().invoke(app, ["compete", "run", str(file), *options, "--json"])
    assert done.exit_code in (0, 3)  # 3: this machine was busy
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["scores"][1]["name"] == "entry" and 0.5 < told["scores"][1]["ratio"] < 2
    assert len(told["launches"][0]["seconds"]["entry"]["square"]) == open_event.rounds
    assert told["machine"]["sandbox"].startswith("bubblewrap")
    done = CliRunner().invoke(app, ["compete", "duel", str(file), str(file), *options])
    assert done.exit_code in (0, 3) and "mine (second)" in done.output
    file.write_text(HONEST.replace("np.matmul(a, b)", "np.matmul(a, b) * 1.01"))
    failed = json.loads(call("run", str(file), *options, "--json", code=1))
    assert failed["verdict"] == "wrong" and "the reference is" in failed["text"]
