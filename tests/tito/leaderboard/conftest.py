"""A leaderboard in a temporary file or in a PostgreSQL of its own, and people who use it."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import postgres_server
from tito.leaderboard import people
from tito.leaderboard.database import Database
from tito.leaderboard.web.app import create_app
from tito.leaderboard.web.guard import RateLimit
from tito.leaderboard.web.signin import COOKIE

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the test client, about its own HTTP library
    from fastapi.testclient import TestClient

ENTRY = """# tito: event = matmul
import numpy as np


class Mine:
    def matmul(self, a, b):
        return (a[:, :, np.newaxis] * b).sum(1)  # {mark}
"""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of SQLite with tables and nobody in it: migrating takes longer than copying."""
    path = tmp_path_factory.mktemp("leaderboard") / "board.db"
    made = Database(str(path))
    made.migrate()
    made.close()
    return path


@pytest.fixture
def database(tmp_path: Path, empty_file: Path) -> Iterator[Database]:
    made = Database(str(shutil.copy(empty_file, tmp_path)))
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The same on both kinds of database."""
    url = str(tmp_path / "board.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    made = Database(url)
    made.migrate()
    yield made
    if request.param == "postgresql":
        with made.engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    made.close()


@dataclass
class Someone:
    """A browser that is signed in, and the token that its join page showed."""

    browser: TestClient
    token: str

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.browser.get("/account").text)
        assert found is not None
        return found[1]

    def post(self, path: str, files: Any = None, **fields: Any) -> Any:
        return self.browser.post(path, data={"csrf": self.csrf(), **fields}, files=files)

    def api(self) -> TestClient:
        """As a program: with the token, and without a session."""
        return TestClient(
            self.browser.app,
            headers={"Authorization": f"Bearer {self.token}"},
            raise_server_exceptions=False,
        )


@dataclass
class Board:
    """A server with an instructor, a class and an event."""

    database: Database
    app: Any
    instructor: Someone

    def join(self, pseudonym: str, role: str = "student", room: int | None = 1) -> Someone:
        with self.database.write() as session:
            from tito.leaderboard.tables import Classroom

            classroom = session.get(Classroom, room) if role == "student" else None
            secret = people.invite(session, role, classroom, 1)
        return join(self.app, secret, pseudonym)

    def submit(self, who: Someone, mark: str = "") -> Any:
        file = ("mine.py", ENTRY.format(mark=mark).encode(), "text/x-python")
        return who.post("/events/1/submissions", files={"file": file})

    def log_of(self, caplog: pytest.LogCaptureFixture) -> str:
        return "\n".join(record.getMessage() for record in caplog.records)


def join(app: Any, secret: str, pseudonym: str) -> Someone:
    browser = TestClient(app, raise_server_exceptions=False)
    answer = browser.post("/join", data={"secret": secret, "pseudonym": pseudonym})
    assert answer.status_code == 200, answer.text
    token = re.search(r'id="token">([^<]+)', answer.text)
    assert token is not None
    return Someone(browser, token[1])


def start(database: Database) -> Board:
    app = create_app(database)
    with database.write() as session:
        secret = people.invite(session, "instructor", None, 1)
    board = Board(database, app, join(app, secret, "the instructor"))
    board.instructor.post("/instructor/classes", name="systems")
    made = board.instructor.post(
        "/instructor/events", classroom=1, name="fast", based_on="matmul", quota=3, launches=2
    )
    assert made.status_code == 200, made.text
    return board


@pytest.fixture(scope="session")
def ready(empty_file: Path) -> tuple[Path, str, str]:
    """A file with what `start` makes, and the instructor's token and cookie."""
    path = empty_file.with_name("ready.db")
    made = Database(str(shutil.copy(empty_file, path)))
    board = start(made)
    made.close()
    return path, board.instructor.token, board.instructor.browser.cookies[COOKIE]


@pytest.fixture
def board(
    ready: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Board]:
    """Tests send more forms in a second than people do: one test is about that."""
    monkeypatch.setattr(RateLimit, "_wait", lambda self, scope: 0.0)
    path, token, cookie = ready
    made = Database(str(shutil.copy(path, tmp_path)))
    app = create_app(made)
    browser = TestClient(app, raise_server_exceptions=False)
    browser.cookies.set(COOKIE, cookie)
    yield Board(made, app, Someone(browser, token))
    made.close()


@pytest.fixture
def board_on_either(either: Database, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(RateLimit, "_wait", lambda self, scope: 0.0)
    return start(either)


def told(name: str, score: float | None, verdict: str = "ok", text: str = "") -> dict[str, Any]:
    """What a runner says of a contestant."""
    measured = score is not None
    case = {
        "case": "square", "ratio": score, "low": score and score * 0.99,
        "high": score and score * 1.01, "milliseconds": 2.0, "gflops": 10.0,
        "seconds": [[1.0 / score] * 4] * 3 if score else [],
    }  # fmt: skip
    return {
        "contestant": name, "verdict": verdict, "text": text, "score": score,
        "low": case["low"], "high": case["high"], "compile_seconds": 0.5 if measured else None,
        "measurements": [case] if measured else [],
    }  # fmt: skip


def report(*outcomes: dict[str, Any], machine: str = "a machine") -> dict[str, Any]:
    return {"machine": {"cpu": "x", "peak": 5e10}, "machine_class": machine,
            "outcomes": list(outcomes)}  # fmt: skip


class Measuring:
    """A runner that says what a test tells it to say."""

    def __init__(self, board: Board, name: str = "runner one") -> None:
        self.api = board.join(name, "runner").api()

    def take(self) -> Any:
        answer = self.api.post("/api/runner/jobs")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def finish(self, job: Any, *outcomes: dict[str, Any], machine: str = "a machine") -> Any:
        body = {"lease": job["lease"], "report": report(*outcomes, machine=machine)}
        return self.api.post(f"/api/runner/jobs/{job['id']}/result", json=body)

    def measure(self, score: float, machine: str = "a machine") -> Any:
        """The next job, with this score for each of its entries."""
        job = self.take()
        scores = [told(e["name"], score) for e in job["entries"]]
        answer = self.finish(job, told("numpy", 1.0), *scores, machine=machine)
        assert answer.status_code == 204, answer.text
        return job


@pytest.fixture
def measuring(board: Board) -> Measuring:
    return Measuring(board)
