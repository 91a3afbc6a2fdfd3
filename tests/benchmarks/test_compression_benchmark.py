from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.exhaustive
def test_what_was_made_smaller_is_set_beside_what_it_was() -> None:
    command = [sys.executable, "compression.py", "--json", "--rounds=2", "--small"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = {r["name"]: r for r in json.loads(done.stdout)["results"]}
    assert results["int8_dynamic, M = 16"]["ratios"].keys() == {"float32", "torch int8"}
    assert "whole" in results["half of 8 to 16 channels"]["ratios"]
    held = {
        name: results[f"{name}, M = 1"]["nbytes"] for name in ("int8", "rank n / 8", "50% zeros")
    }
    whole = 4 * 128**2
    assert held["50% zeros"] == whole and held["rank n / 8"] == whole / 4
    assert held["int8"] < 0.3 * whole
