from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Replay = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def replay() -> Replay:
    """Run a milestone in a process of its own, after code that may plant a fault."""

    def run(
        folder: str, fault: str = "", *arguments: str, name: str = "main.py"
    ) -> subprocess.CompletedProcess[str]:
        script = ROOT / "milestones" / folder / name
        launch = (
            f"import runpy, sys\nsys.argv = {[str(script), *arguments]!r}\n"
            f"sys.path.insert(0, {str(script.parent)!r})\n{fault}\n"
            f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        )
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", launch],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1800,
        )

    return run
