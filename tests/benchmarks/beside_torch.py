"""Runs a benchmark that sets us beside PyTorch, as a reader does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The script with two rounds."""
    command = [sys.executable, script, "--rounds=2", *options]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)


def seconds_of(script: str, *options: str) -> dict[str, dict[str, Any]]:
    """The seconds of each case, by its name, from `--json`."""
    done = run(script, *options, "--json")
    assert done.returncode == 0, done.stderr
    return {r["name"]: r["seconds"] for r in json.loads(done.stdout)["results"]}
