"""The queue: nothing is lost, nothing is measured twice, nobody else's result is taken."""

from __future__ import annotations

import json
import threading
import time

import pytest
from sqlalchemy import text

from tests.tito.leaderboard.conftest import Board, Measuring, report, told
from tito.leaderboard import jobs
from tito.leaderboard.tables import Job


def state_of(board: Board, number: int = 1) -> tuple[str, int]:
    with board.database.read() as session:
        job = session.get_one(Job, number)
        return job.state, job.attempts


def expire(board: Board) -> None:
    with board.database.write() as session:
        for job in session.query(Job).filter(Job.state == "running"):
            job.lease_until = time.time() - 1


def test_first_come_first_measured(board: Board, measuring: Measuring) -> None:
    ada = board.join("ada")
    for mark in "abc":
        board.submit(ada, mark)
    assert [measuring.measure(2.0)["id"] for _ in "abc"] == [1, 2, 3]
    assert measuring.take() is None


@pytest.mark.slow_beyond(1)
def test_each_job_is_given_to_one_runner(board_on_either: Board) -> None:
    board = board_on_either
    for i in range(4):
        author = board.join(f"author {i}")
        for mark in "abc":
            board.submit(author, f"{i}{mark}")
    taken: list[int] = []

    def run(runner: Measuring) -> None:
        while job := runner.take():
            taken.append(job["id"])

    runners = [Measuring(board, f"runner {i}") for i in range(4)]
    threads = [threading.Thread(target=run, args=(r,)) for r in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 13))


def test_a_silent_runner_loses_its_job_and_its_result(board: Board, measuring: Measuring) -> None:
    board.submit(board.join("ada"))
    first = measuring.take()
    other = Measuring(board, "runner two")
    assert other.take() is None
    expire(board)
    second = other.take()
    assert second["id"] == first["id"]
    late = measuring.finish(first, told("submission 1", 9.0))
    assert late.status_code == 409 and "not yours" in late.json()["detail"]
    assert other.finish(second, told("submission 1", 2.0)).status_code == 204
    again = other.finish(second, told("submission 1", 3.0))
    assert again.status_code == 409
    assert state_of(board) == ("done", 2)


def test_a_clock_that_is_set_back_holds_up_neither_jobs_nor_authors(
    board: Board, measuring: Measuring
) -> None:
    ada = board.join("ada")
    board.submit(ada)
    measuring.take()
    year = 365 * 24 * 3600.0
    with board.database.write() as session:  # as a clock that was a year ahead left them
        job = session.get_one(Job, 1)
        assert job.lease_until is not None
        job.lease_until += year
        job.entries[0].submission.created += year
    left = ada.api().get("/api/events").json()[0]
    assert left["quota_left"] == left["quota"]
    assert measuring.take()["id"] == 1


def test_a_job_that_cannot_be_read_holds_up_no_other(board: Board, measuring: Measuring) -> None:
    ada = board.join("ada")
    for mark in "ab":
        board.submit(ada, mark)
    with board.database.write() as session:
        damaged = (
            "INSERT INTO event_version SELECT 2, event_id, digest, '[', created FROM event_version"
        )
        session.execute(text(damaged))
        session.execute(text("UPDATE job SET version_id = 2 WHERE id = 1"))
    assert measuring.api.post("/api/runner/jobs").status_code == 500
    assert measuring.take()["id"] == 2


def test_a_heartbeat_keeps_the_lease(board: Board, measuring: Measuring) -> None:
    board.submit(board.join("ada"))
    job = measuring.take()
    with board.database.write() as session:
        session.get_one(Job, 1).lease_until = time.time() + 1
    path = f"/api/runner/jobs/{job['id']}/heartbeat"
    assert measuring.api.post(path, json={"lease": job["lease"], "progress": 0.5}).is_success
    assert measuring.api.post(path, json={"lease": "forged", "progress": 0.5}).status_code == 409
    with board.database.read() as session:
        found = session.get_one(Job, 1)
        assert found.lease_until is not None
        assert found.lease_until > time.time() + 30 and found.progress == 0.5


def test_a_runner_that_stops_gives_its_job_back(board: Board, measuring: Measuring) -> None:
    board.submit(board.join("ada"))
    job = measuring.take()
    body = {"lease": job["lease"], "note": "stopped"}
    assert measuring.api.post("/api/runner/jobs/1/release", json=body).is_success
    assert state_of(board) == ("waiting", 0)


@pytest.mark.parametrize("verdict", jobs.RETRIED)
def test_what_is_not_the_entrys_fault_is_tried_again_and_never_scored(
    board: Board, measuring: Measuring, verdict: str
) -> None:
    ada = board.join("ada")
    board.submit(ada)
    for attempt in range(1, jobs.MAX_ATTEMPTS + 1):
        job = measuring.take()
        measuring.finish(job, told("numpy", 1.0), told("submission 1", 2.0, verdict))
        expected = "done" if attempt == jobs.MAX_ATTEMPTS else "waiting"
        assert state_of(board) == (expected, attempt)
    assert ada.api().get("/api/events/fast/board").json() == []
    assert ada.api().get("/api/submissions/1").json()["verdict"] == verdict
    assert board.submit(ada).status_code == 200  # the same code: it has no score by no fault of its
    assert "your submission 2, letter by letter" in board.submit(ada).text


def test_a_baseline_that_fails_is_our_fault(board: Board, measuring: Measuring) -> None:
    ada = board.join("ada")
    board.submit(ada)
    for _ in range(jobs.MAX_ATTEMPTS):
        measuring.finish(measuring.take(), told("numpy", None, "infrastructure", "no memory"))
    answer = ada.api().get("/api/submissions/1").json()
    assert answer["verdict"] == "infrastructure" and "numpy: no memory" in answer["text"]


def test_a_job_that_takes_its_runners_down_is_given_up(board: Board, measuring: Measuring) -> None:
    ada = board.join("ada")
    board.submit(ada)
    for _ in range(jobs.MAX_ATTEMPTS):
        assert measuring.take() is not None
        expire(board)
    assert measuring.take() is None
    answer = ada.api().get("/api/submissions/1").json()
    assert answer["state"] == "done" and answer["verdict"] == "infrastructure"
    assert "given up after 3 attempts" in answer["text"]


def test_only_a_runner_may_take_jobs_and_send_results(board: Board, measuring: Measuring) -> None:
    ada = board.join("ada")
    board.submit(ada)
    job = measuring.take()
    for who in (ada, board.instructor):
        assert who.api().post("/api/runner/jobs").status_code == 403
        body = {"lease": job["lease"], "report": {}}
        assert who.api().post("/api/runner/jobs/1/result", json=body).status_code == 403
    other = Measuring(board, "runner two")
    assert other.finish(job, told("submission 1", 99.0)).status_code == 409


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("value", ["NaN", "Infinity", '"fast"', "null"])
def test_a_result_that_is_no_number_is_refused(
    board: Board, measuring: Measuring, value: str
) -> None:
    board.submit(board.join("ada"))
    job = measuring.take()
    body = {"lease": job["lease"], "report": report(told("submission 1", 7654.0))}
    text = json.dumps(body).replace('"ratio": 7654.0', f'"ratio": {value}')
    answer = measuring.api.post(
        "/api/runner/jobs/1/result", content=text, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert state_of(board)[0] == "running"
