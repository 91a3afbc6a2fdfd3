from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing

ROOT = Path(__file__).parents[2]
Tito = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True, scope="session")
def _commands_are_made_once() -> Iterator[None]:
    """Typer makes all commands anew for each `CliRunner.invoke`, which takes 0.1 s."""
    make = typer.testing._get_command
    typer.testing._get_command = cache(make)
    yield
    typer.testing._get_command = make


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
            timeout=1800,
        )

    return run
