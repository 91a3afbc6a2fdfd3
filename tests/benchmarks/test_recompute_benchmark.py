"""The benchmark of recomputation runs, its gradients agree, and what it writes can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "recompute.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--small", "--rounds", "1", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.mark.slow
def test_measured(tmp_path: Path) -> None:
    budgets = ("--budgets", "1.0", "0.85", "0.02", "0.01")
    done = run("--json", *budgets, "--plot", str(tmp_path / "r.svg"), "--memory-limit", "1MiB")
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert {"eager", "ours 1", "ours 0.85", "ours lowest", "min-cut 0.5", "blocks"} <= rows.keys()
    assert all(row["bit_equal"] for row in rows.values())
    assert rows["ours 0.85"]["peak"] <= rows["ours 0.85"]["budget"]
    assert "budgets 0.02, 0.01 of the peak" in done.stderr  # one line for all that cannot be met
    assert rows["ours lowest"]["peak"] == min(
        row["peak"] for name, row in rows.items() if name.startswith("ours")
    )
    assert (tmp_path / "r.svg").exists()


@pytest.mark.exhaustive
def test_simulated(tmp_path: Path) -> None:
    how = ("--simulate", "--budgets", "0.85", "--model", "gpt2", "--rows", "32")
    done = run("--json", *how, "--plot", str(tmp_path / "r.png"))
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["everything"]["slower"] == 0
    assert rows["ours 0.85"]["of_everything"] <= 0.85
    assert rows["ours 0.85"]["slower"] <= rows["muTWO 0.85"]["slower"]
    table = run(*how, "--plot", str(tmp_path / "r.png")).stdout
    assert "muTWO 0.85" in table and "plot: " in table
