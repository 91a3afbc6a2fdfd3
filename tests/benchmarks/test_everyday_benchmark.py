"""The benchmark of lines between layers: each gives what PyTorch's does, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch
from tinytorch.replay.function import HOT

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_every_line_agrees_with_pytorch_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import everyday

    monkeypatch.setattr(everyday, "WARM", HOT + 2)  # the last calls run programs
    with tinytorch.using_backend("optimized"):
        names = [case.name for case in everyday.cases([*everyday.LINES, *everyday.IN_PLACE])]
    assert {name.rpartition(", ")[0] for name in names} == {*everyday.LINES, *everyday.IN_PLACE}
    assert sum(name.endswith("training") for name in names) > len(everyday.LINES) // 2


@pytest.mark.slow
def test_lines_are_compared_with_pytorch() -> None:
    command = [sys.executable, "everyday.py", "--rounds=2", "--only=x[:, 1];x *= 1"]
    done = subprocess.run(
        [*command, "--json"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = [r["name"] for r in json.loads(done.stdout)["results"]]
    assert names == ["x[:, 1], forward", "x[:, 1], training", "x *= 1, forward"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert "x[:, 1], training" in done.stdout and "above 1.3 in" in done.stdout
    wrong = subprocess.run([*command[:2], "--only=Nothing"], cwd=BENCHMARKS, check=False)
    assert wrong.returncode == 2
