"""The benchmark of several processes runs, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "distributed.py"


@pytest.mark.slow
def test_the_benchmark_says_overhead_and_links() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--rounds", "3", "--json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "no link explains" in done.stderr:
        pytest.skip("the machine is too busy for a model of latency and bandwidth")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["cpu_seconds"]) == {"ours", "ours, data_parallel", "torch", "torch, DDP"}
    assert all(seconds > 0 for seconds in found["cpu_seconds"].values())
    assert set(found["links"]) == {"gloo", "our ring"}
