"""Server, database or runner is killed: nothing that was acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.orm import selectinload

from tests.system_tools import needs_sandbox, postgres_server
from tests.tito.leaderboard.conftest import ENTRY, report, told
from tests.tito.leaderboard.test_browser import Server, free_port, small_event
from tito.leaderboard import events, jobs, people
from tito.leaderboard.database import Database
from tito.leaderboard.tables import Job, Run, Submission

ENTRIES, KILLS, STUDENTS = 300, 2, 10
MEASURING_SECONDS = 300.0


@contextmanager
def killing(victim: str, folder: Path) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A server, and what kills it, or its database, and starts that again."""
    with ExitStack() as stack:
        url = str(folder / "board.db")
        database = None
        if "PostgreSQL" in victim:
            database = stack.enter_context(postgres_server())
            url = database.url
        server = Server(folder, url, free_port())

        def kill() -> None:
            killed: Any = database if victim == "PostgreSQL" else server
            killed.kill()
            killed.start()

        yield server, kill


def prepare(url: str, based_on: str = "matmul") -> tuple[list[str], str]:
    """Tokens of students and of a runner."""
    database = Database(url)
    database.migrate()
    with database.write() as session:
        teacher = people.add_person(session, "teacher", "instructor", None)
        room = people.add_classroom(session, "class", teacher)
        events.add_event(session, teacher, room, "fast", based_on, quota=ENTRIES, launches=2)
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
            timeout=300.0,
        )

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, **options: Any) -> httpx.Response | None:
        """The answer; None if there was none."""
        try:
            return self._http.post(path, **options)
        except httpx.HTTPError:
            return None


@pytest.mark.slow(seconds=40)
@pytest.mark.exhaustive_beyond(1)
@pytest.mark.parametrize("victim", ["server on PostgreSQL", "PostgreSQL", "server"])
def test_kill_9_loses_nothing(victim: str, tmp_path: Path) -> None:
    """And whoever was not killed goes on by itself."""
    with killing(victim, tmp_path) as (server, kill):
        tokens, measuring = prepare(server.url)
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
            kill()
        for thread in threads:
            thread.join()
        assert all("letter by letter" in text for text in refused), refused
        assert len(acknowledged) + len(refused) == ENTRIES

        runner = Asker(server, measuring)
        measured: list[int] = []
        killed = False
        while True:
            answer = runner.post("/runner/jobs")
            if answer is None or answer.status_code == 503:
                time.sleep(0.1)
                continue
            assert answer.status_code == 200, answer.text
            if answer.json() is None:
                break
            job = answer.json()
            scores = [told(e["name"], 2.0) for e in job["entries"]]
            body = {"lease": job["lease"], "report": report(told("numpy", 1.0), *scores)}
            if len(measured) == ENTRIES // 2 and not killed:
                killed = True
                kill()
            result = None
            while result is None or result.status_code == 503:
                result = runner.post(f"/runner/jobs/{job['id']}/result", json=body)
            assert result.status_code == 204, result.text
            measured.append(job["id"])
        server.kill()
        runner.close()
        database = Database(server.url)
        with database.read() as session:
            kept = {s.id for s in session.query(Submission)}
            found = session.query(Job).all()
            assert acknowledged <= kept and len(kept) == ENTRIES
            assert {len(job.runs) for job in found} == {1}
            assert len(measured) == len(set(measured)) == len(found) == ENTRIES
        database.close()


@pytest.mark.slow
@needs_sandbox
def test_an_entry_of_a_killed_runner_is_measured_by_the_next(tmp_path: Path) -> None:
    folder = small_event(tmp_path)
    server = Server(tmp_path, str(tmp_path / "board.db"), free_port())
    tokens, measuring = prepare(server.url, str(folder))
    server.start()
    database = Database(server.url)
    token = tmp_path / "runner.token"
    token.write_text(measuring)
    command = [sys.executable, "-m", "tito", "leaderboard", "runner", "--server", server.address,
               "--token-file", token]  # fmt: skip
    student = Asker(server, tokens[0])
    try:
        text = (folder / "starter.py").read_bytes()
        answer = student.post("/events/fast/submissions", content=text)
        assert answer is not None and answer.status_code == 201
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _until(database, lambda job: job.state == "running")
        first.kill()
        first.wait()
        with database.write() as session:
            job = session.get_one(Job, 1)
            assert job.state == "running" and job.lease_until is not None and not job.runs
            job.lease_until -= jobs.LEASE_SECONDS  # nobody waits for it here
        second = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            job = _until(database, lambda job: job.runs)
        finally:
            second.kill()
            second.wait()
        assert job.attempts >= 2  # more where it was noisy, and is measured again
        verdicts = {o.contestant: o.verdict for o in job.runs[0].outcomes}
        assert verdicts["submission 1"] in ("ok", "noisy")
    finally:
        student.close()
        server.kill()
        database.close()


def _until(database: Database, reached: Callable[[Job], object]) -> Job:
    deadline = time.monotonic() + MEASURING_SECONDS
    while time.monotonic() < deadline:
        with database.read() as session:
            options = selectinload(Job.runs).selectinload(Run.outcomes)
            job = session.get_one(Job, 1, options=[options])
            if reached(job):
                return job
        time.sleep(0.2)
    raise TimeoutError(f"the job is {job.state}: {job.note}")
