"""The benchmark of a first call runs: it takes the compiler's parts one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compile_time.py"


@pytest.mark.slow
def test_the_parts_of_a_first_call_are_timed() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--child", "MLP, batch 32"],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"import", "trace and passes", "library", "native code"}
    assert min(found.values()) > 0
