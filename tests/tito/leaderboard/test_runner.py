"""A runner: what it sends, and what it does when the server is away or another has the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tito.compete.event import load_event
from tito.compete.measure import Measured
from tito.leaderboard import events, runner
from tito.leaderboard.client import ServerError, UnreachableError

EVENT = """
title = "sums"
division = "open"
clock = "cpu"
rounds = 2
[limits]
compile_seconds = 60
call_seconds = 10
memory_mib = 2048
[[cases]]
name = "one"
rows = [20, 30]
columns = [20, 30]
"""


class Server:
    """Speaks as `Client` does, and keeps what it is told."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs, self.results = list(jobs), []
        self.released: list[int] = []
        self.failures: list[Exception] = []

    def about(self, machine: dict[str, Any]) -> None:
        self.machine = machine

    def take_job(self) -> dict[str, Any] | None:
        if self.failures:
            raise self.failures.pop()
        return self.jobs.pop(0) if self.jobs else None

    def heartbeat(self, job: int, lease: str, progress: float) -> None:
        raise ServerError("another runner has it")

    def finish(self, job: int, lease: str, report: dict[str, Any]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.results.append(report)

    def release(self, job: int, lease: str, note: str) -> None:
        self.released.append(job)


def job(*texts: str, event: str = EVENT) -> dict[str, Any]:
    files = events.read_files(load_event("elementwise").folder) | {"event.toml": event}
    entries = [
        {"name": f"submission {i}", "class_name": "Chain", "text": text}
        for i, text in enumerate(texts, 1)
    ]
    return {"id": 1, "lease": "x", "event": "sums", "files": files, "launches": 2, "beside": [],
            "entries": entries}  # fmt: skip


def starter() -> str:
    return load_event("elementwise").starter


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.0)


@pytest.mark.slow
@needs_sandbox
def test_it_measures_really_and_leaves_out_what_fails() -> None:
    public = (
        next(n for n in starter().splitlines() if n.startswith("class ")).split()[1].rstrip(":")
    )
    work = job(starter(), "class Chain:\n    pass\n")
    work["entries"][0]["class_name"] = public
    server = Server(work)
    server.heartbeat = lambda *_: None  # type: ignore[method-assign]
    said: list[str] = []
    assert runner.work(server, said.append, once=True) == 1
    (report,) = server.results
    verdicts = {o["contestant"]: o["verdict"] for o in report["outcomes"]}
    assert verdicts["submission 2"] == "error"
    assert verdicts["submission 1"] in ("ok", "noisy") and verdicts["numpy"] in ("ok", "noisy")
    own = next(o for o in report["outcomes"] if o["contestant"] == "submission 1")
    assert own["low"] <= own["score"] <= own["high"]
    launches = own["measurements"][0]["seconds"]
    assert len(launches) >= 2 and all(len(rounds) == 2 for rounds in launches)


def test_an_error_of_ours_is_said_and_the_queue_goes_on() -> None:
    server = Server(job("", event="title = 1"), job("", event="nothing"))
    assert runner.work(server, lambda line: None, once=True) == 2
    for report in server.results:
        (outcome,) = report["outcomes"]
        assert outcome["verdict"] == "infrastructure" and "event.toml" in outcome["text"]


def test_a_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "measure", lambda *a, **k: Measured([], None, {}, None))
    server = Server(job(""))
    server.failures = [UnreachableError("away"), UnreachableError("away")]
    said: list[str] = []
    assert runner.work(server, said.append, once=True) == 1
    assert said.count("away; trying again") == 2 and len(server.results) == 1
    server = Server(job(""))
    server.finish = _failing_twice(server)  # type: ignore[method-assign]
    runner.work(server, said.append, once=True)
    assert len(server.results) == 1


def _failing_twice(server: Server) -> Any:
    left = [UnreachableError("away"), UnreachableError("away")]

    def finish(job: int, lease: str, report: dict[str, Any]) -> None:
        if left:
            raise left.pop()
        server.results.append(report)

    return finish


def test_a_lost_lease_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 0.001)

    def measure(*_: object, begin: Any, **__: object) -> Measured:
        step = begin(10)
        while True:
            step()

    monkeypatch.setattr(runner, "measure", measure)
    said: list[str] = []
    server = Server(job(""))
    runner.work(server, said.append, once=True)
    assert "job 1: another runner has it now" in said and server.results == []


@pytest.mark.parametrize(("entries", "verdict"), [(1, "timeout"), (2, "infrastructure")])
def test_an_entry_that_sleeps_does_not_hold_up_the_queue(
    monkeypatch: pytest.MonkeyPatch, entries: int, verdict: str
) -> None:
    """Sleep costs no CPU time: with ten seconds in each call an entry was measured for hours."""
    monkeypatch.setattr(runner, "MOST_SECONDS", 0.0)

    def measure(*_: object, begin: Any, **__: object) -> Measured:
        step = begin(10)
        while True:
            step()

    monkeypatch.setattr(runner, "measure", measure)
    server = Server(job(*[""] * entries), job(""))
    assert runner.work(server, lambda line: None, once=True) == 2
    outcomes = server.results[0]["outcomes"]
    assert [o["verdict"] for o in outcomes] == [verdict] * entries
    assert "takes more than 0 minutes" in outcomes[0]["text"]


def test_ctrl_c_gives_the_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object, **__: object) -> Measured:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "measure", measure)
    server = Server(job(""))
    with pytest.raises(KeyboardInterrupt):
        runner.work(server, lambda line: None, once=True)
    assert server.released == [1]


def test_files_of_an_event_stay_in_their_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their names are the server's, which the runner does not trust with a path."""
    monkeypatch.setattr(runner, "measure", lambda *a, **k: Measured([], None, {}, None))
    monkeypatch.chdir(tmp_path)
    work = job("")
    work["files"]["../../escaped.py"] = "x = 1"
    server = Server(work)
    runner.work(server, lambda line: None, once=True)
    assert len(server.results) == 1 and not list(tmp_path.parent.glob("**/escaped.py"))
