"""Programs that tests need and pip does not bring: `scripts/install-system-packages` does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

needs_sandbox = pytest.mark.usefixtures("working_sandbox")  # of tests/conftest.py
POSTGRESQL = "/usr/lib/postgresql"  # Debian keeps the server's programs off the PATH


def require_tool(name: str) -> Path:
    """The path of a program; without it the test is skipped, or fails where all must be there."""
    servers = [str(path) for path in sorted(Path(POSTGRESQL).glob("*/bin"), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *servers]))
    if found is not None:
        return Path(found)
    refuse(f"{name} is not installed: run scripts/install-system-packages")


def refuse(reason: str) -> NoReturn:
    """Skip the test, or fail it where nothing may be missing."""
    if os.environ.get("TINYTORCH_REQUIRE_TOOLS"):  # set by .ci/run
        pytest.fail(reason)
    pytest.skip(reason)
