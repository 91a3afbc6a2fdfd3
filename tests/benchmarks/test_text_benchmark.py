from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_tokenizers_are_compared_after_their_ids() -> None:
    command = [sys.executable, "text.py", "--json", "--rounds=2", "--megabytes=0.3", "--sizes=400"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    train, encode = json.loads(done.stdout)["results"]
    assert train["ratios"].keys() >= {"tokenizers"}
    assert encode["ratios"].keys() >= {"ours, warm", "tiktoken", "tokenizers"}
    assert encode["ratios"]["tiktoken"] > 1
