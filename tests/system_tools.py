"""Programs that tests need and pip does not bring: `scripts/install-system-packages` does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

needs_sandbox = pytest.mark.usefixtures("working_sandbox")  # of tests/conftest.py
POSTGRES_SECONDS = 300.0
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


class PostgresServer:
    """A server of its own, in a folder that is empty at first. It refuses root: root lends a user.

    Attributes:
        url: of its database.
    """

    def __init__(self, folder: Path) -> None:
        # a program may be a link to the server's folder
        self._programs = require_tool("initdb").resolve().parent
        self._folder = folder
        as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self._user: dict[str, Any] = as_user if os.geteuid() == 0 else {}
        self.url = f"postgresql+psycopg://tito@/postgres?host={folder}"
        options = ["-A", "trust", "-U", "tito", "--no-sync"]
        initdb = [self._programs / "initdb", "-D", folder / "data", *options]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **self._user)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers.

        After a kill it refuses while processes of the killed one are there; they end by themselves.
        """
        deadline = time.monotonic() + POSTGRES_SECONDS
        self._process = self._begin()
        ready = [self._programs / "pg_isready", "-h", self._folder, "-t", "1"]
        while subprocess.run(ready, stdout=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL did not start in {POSTGRES_SECONDS:.0f} s")
            if self._process.poll() is not None:
                self._process = self._begin()
            time.sleep(0.1)

    def _begin(self) -> subprocess.Popen[bytes]:
        own = ["-D", self._folder / "data", "-k", self._folder, "-F", "-c", "listen_addresses="]
        return subprocess.Popen(
            [self._programs / "postgres", *own],
            stderr=subprocess.DEVNULL, cwd=self._folder, **self._user,
        )  # fmt: skip

    def stop(self) -> None:
        """Shut it down."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=POSTGRES_SECONDS)

    def kill(self) -> None:
        """End its first process at once: `kill -9`."""
        self._process.kill()
        self._process.wait()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="tito-postgres-"))  # short: a socket's path is limited
    folder.chmod(0o777)
    try:
        server = PostgresServer(folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
