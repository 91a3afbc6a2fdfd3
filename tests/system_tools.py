"""Programs that tests need and pip does not bring: `scripts/install-system-packages` does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

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


@contextmanager
def postgres_server() -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a database in a server of its own, and what stops the server.

    It refuses root, so root lends a user.
    """
    programs = require_tool("initdb").resolve().parent  # it may be a link to the server's folder
    user: dict[str, Any] = (
        {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    )
    folder = Path(tempfile.mkdtemp(prefix="tito-postgres-"))  # short: a socket's path is limited
    folder.chmod(0o777)
    data = folder / "data"
    initdb = [programs / "initdb", "-D", data, "-A", "trust", "-U", "tito", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **user)
    server = subprocess.Popen(
        [
            programs / "postgres",
            "-D",
            data,
            "-k",
            folder,
            "-F",
            "-c",
            "listen_addresses=",
        ],
        stderr=subprocess.DEVNULL,
        cwd=folder,
        **user,
    )

    def stop() -> None:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)

    try:
        ready = [programs / "pg_isready", "-h", folder, "-t", "1"]
        for _ in range(100):
            if subprocess.run(ready, stdout=subprocess.DEVNULL).returncode == 0:
                break
        yield f"postgresql+psycopg://tito@/postgres?host={folder}", stop
    finally:
        stop()
        shutil.rmtree(folder)
