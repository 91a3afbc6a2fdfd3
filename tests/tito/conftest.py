from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Tito = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tito() -> Tito:
    """Run the command line in a process of its own, with its output in a pipe."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tito", *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
