"""Kernels in a process of their own, whose environment is not this one's."""

from __future__ import annotations

import os
import subprocess
import sys


def run_script(source: str, **environment: str) -> str:
    """What a Python program prints; it must end well."""
    process = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
