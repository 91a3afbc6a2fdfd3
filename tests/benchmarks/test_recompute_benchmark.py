"""The benchmark of recomputation runs, its gradients agree, and what it writes can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "recompute.py"


def run(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--small", "--rounds", "1", "--json",
         str(tmp_path / "r.json"), *arguments],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads((tmp_path / "r.json").read_text()), done.stdout


@pytest.mark.slow
def test_measured(tmp_path: Path) -> None:
    found, table = run(tmp_path, "--budgets", "1.0", "0.85", "0.02", "0.01", "--plot",
                       str(tmp_path / "r.svg"), "--memory-limit", "1MiB")  # fmt: skip
    rows = {row["name"]: row for row in found["rows"]}
    assert {"eager", "ours 1", "ours 0.85", "ours lowest", "min-cut 0.5", "blocks"} <= rows.keys()
    assert all(row["bit_equal"] for row in rows.values())
    assert rows["ours 0.85"]["peak"] <= rows["ours 0.85"]["budget"]
    assert "budgets 0.02, 0.01 of the peak" in table  # one line for all that cannot be met
    assert rows["ours lowest"]["peak"] == min(
        row["peak"] for name, row in rows.items() if name.startswith("ours")
    )
    assert (tmp_path / "r.svg").exists()


@pytest.mark.slow
def test_simulated(tmp_path: Path) -> None:
    found, _ = run(
        tmp_path,
        "--plot",
        str(tmp_path / "r.png"),
        "--simulate",
        "--budgets",
        "0.85",
        "--model",
        "gpt2",
        "--rows",
        "32",
    )
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["everything"]["slower"] == 0
    assert rows["ours 0.85"]["of_everything"] <= 0.85
    assert rows["ours 0.85"]["slower"] <= rows["muTWO 0.85"]["slower"]
