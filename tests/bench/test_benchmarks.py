"""The scripts in benchmarks/ run, and give what their tables need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def report(script: str, *arguments: str) -> Any:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--json", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_training_compares_three_that_compute_the_same() -> None:
    """The script itself ends with an error if the losses differ."""
    results = report("training.py", "--backend", "numpy", "--rounds", "2")["results"]
    assert [row["name"] for row in results] == [
        "MLP, batch 1",
        "MLP, batch 32",
        "MLP, batch 256",
        "LeNet, batch 32",
    ]
    for row in results:
        assert set(row["seconds"]) == {"ours", "numpy", "torch"}
        assert row["ratios"].keys() == {"numpy", "torch"} and min(row["ratios"].values()) > 0


@pytest.mark.slow
def test_compiled_steps_compute_the_same_as_pytorch() -> None:
    """The script itself ends with an error if the losses differ."""
    arguments = ("--no-torch-compile", "--rounds", "2", "--only", "MLP, batch 1")
    results = report("compiled.py", *arguments)["results"]
    assert [row["name"] for row in results] == ["MLP, batch 1", "MLP, batch 1, Adam"]
    assert set(results[0]["seconds"]) == {"ours", "eager", "torch", "numpy"}
    assert results[0]["flops"] == 2 * (2 * 784 * 128 + 3 * 128 * 10)


@pytest.mark.slow
def test_dispatch_compares_ops_and_imports() -> None:
    found = report("dispatch.py", "--backend", "numpy", "--rounds", "2")
    assert {row["name"].partition(",")[0] for row in found["results"]} >= {"add", "mul", "relu"}
    assert all(min(row["seconds"].values()) > 0 for row in found["results"])
    assert found["worst_of_torch"] == max(1 / row["ratios"]["torch"] for row in found["results"])
    assert found["imports"]["ratio"] > 1  # it imports NumPy too
