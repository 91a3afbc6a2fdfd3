"""Server and database are killed while entries come in: nothing that was acknowledged is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system_tools import postgres_server
from tests.tito.leaderboard.conftest import ENTRY, report, told
from tests.tito.leaderboard.test_browser import Server, free_port
from tito.leaderboard import events, people
from tito.leaderboard.database import Database
from tito.leaderboard.tables import Job, Submission

ENTRIES, KILLS, STUDENTS = 300, 2, 10


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "board.db")
    else:
        with postgres_server() as (url, _):
            yield url


def prepare(url: str) -> tuple[list[str], str]:
    """Tokens of students and of a runner."""
    database = Database(url)
    database.migrate()
    with database.write() as session:
        teacher = people.add_person(session, "teacher", "instructor", None)
        room = people.add_classroom(session, "class", teacher)
        events.add_event(session, teacher, room, "fast", "matmul", quota=ENTRIES)
        students = [
            people.add_person(session, f"student {i}", "student", room.id) for i in range(STUDENTS)
        ]
        tokens = [people.new_token(session, s, "test") for s in students]
        runner = people.add_person(session, "runner", "runner", None)
        measuring = people.new_token(session, runner, "test")
    database.close()
    return tokens, measuring


class Asker:
    """Asks with a token. A connection is made once: each new one takes longer than an answer."""

    def __init__(self, server: Server, token: str) -> None:
        self._http = httpx.Client(
            base_url=f"{server.address}/api",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60.0,
        )

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, **options: Any) -> httpx.Response | None:
        """The answer; None if there was none."""
        try:
            return self._http.post(path, **options)
        except httpx.HTTPError:
            return None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_kill_9_loses_nothing(kind: str, tmp_path: Path) -> None:
    with url_of(kind, tmp_path) as url:
        tokens, measuring = prepare(url)
        server = Server(tmp_path, url, free_port())
        server.start()
        acknowledged: set[int] = set()
        refused: list[str] = []
        sent = threading.Semaphore(0)

        def send(student: int) -> None:
            asker = Asker(server, tokens[student])
            for i in range(ENTRIES // STUDENTS):
                text = ENTRY.format(mark=f"{student} {i}").encode()
                while True:
                    answer = asker.post("/events/fast/submissions", content=text)
                    if answer is not None and answer.status_code == 201:
                        acknowledged.add(answer.json()["submission"])
                    elif answer is not None and answer.status_code == 400:
                        refused.append(answer.json()["detail"])  # it was kept, and not said
                    else:  # away, or too many requests in a moment
                        time.sleep(0.2)
                        continue
                    break
                sent.release()
            asker.close()

        threads = [threading.Thread(target=send, args=(i,)) for i in range(STUDENTS)]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            for _ in range(ENTRIES // (KILLS + 2)):
                sent.acquire()
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
        assert all("letter by letter" in text for text in refused), refused
        assert len(acknowledged) + len(refused) == ENTRIES

        runner = Asker(server, measuring)
        measured: list[int] = []
        killed = False
        while True:
            answer = runner.post("/runner/jobs")
            if answer is None:
                continue
            if answer.status_code == 200 and answer.json() is None:
                break
            job = answer.json()
            scores = [told(e["name"], 2.0) for e in job["entries"]]
            body = {"lease": job["lease"], "report": report(told("numpy", 1.0), *scores)}
            if len(measured) == ENTRIES // 2 and not killed:
                killed = True
                server.kill()
                server.start()
            result = None
            while result is None:
                result = runner.post(f"/runner/jobs/{job['id']}/result", json=body)
            assert result.status_code == 204, result.text
            measured.append(job["id"])
        server.kill()
        runner.close()
        database = Database(url)
        with database.read() as session:
            kept = {s.id for s in session.query(Submission)}
            jobs = session.query(Job).all()
            assert acknowledged <= kept and len(kept) == ENTRIES
            assert {len(job.runs) for job in jobs} == {1}
            assert len(measured) == len(set(measured)) == len(jobs) == ENTRIES
        database.close()
