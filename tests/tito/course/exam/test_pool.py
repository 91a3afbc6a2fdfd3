"""Many jobs at once, here and on a cluster: each gets its own answer, or what came in between."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tito.course.exam import pool
from tito.course.exam.job import Budget, InfrastructureError, Job, Question, Transcript, Unit
from tito.course.exam.pool import LocalPool, dask_pool, run_text, transcript
from tito.course.exam.values import decode


def jobs(count: int) -> Iterator[tuple[int, Job]]:
    for number in range(count):
        question = Question("test", f"__tito__.got(0, x + {number})", True)
        yield number, Job((Unit("0", "x = 100"),), (question,), Budget(seconds=600))


def values(answers: Iterator[tuple[Any, Transcript | Exception]]) -> dict[int, int]:
    found = {}
    for name, answer in answers:
        assert isinstance(answer, Transcript), answer
        found[name] = decode(answer.tests["test"]["claims"][0]["got"])
    return found


@needs_sandbox
def test_every_job_gets_its_own_answer() -> None:
    assert values(LocalPool(2).run(jobs(5))) == {n: 100 + n for n in range(5)}
    assert values(LocalPool(2).run(jobs(0))) == {}


def test_jobs_are_made_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "run_text", lambda text, stop: '{"infrastructure": "no"}')
    made = []

    def counted() -> Iterator[tuple[int, Job]]:
        for name, job in jobs(100):
            made.append(name)
            yield name, job

    answers = LocalPool(1).run(counted())
    next(answers)
    assert len(made) <= 2 * pool.AHEAD
    assert len(list(answers)) == 99


def test_what_the_machine_does_wrong_travels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: Job, stop: Any) -> Transcript:
        raise InfrastructureError("no disk")

    monkeypatch.setattr(pool, "run_job", fail)
    _, job = next(jobs(1))
    with pytest.raises(InfrastructureError, match="no disk"):
        transcript(run_text(job.to_json()))


@pytest.mark.slow
@needs_sandbox
def test_a_cluster_is_found_by_its_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with dask_pool(None, 1) as own:
        address = own.client.scheduler_info()["address"]
        with dask_pool(address, 1) as other:
            assert values(other.run(jobs(3))) == {0: 100, 1: 101, 2: 102}


@pytest.mark.slow
def test_clusters_do_not_ask_for_the_same_port() -> None:
    with socket.socket() as busy:
        with suppress(OSError):  # busy already, which is as good
            busy.bind(("127.0.0.1", 8787))  # of a dashboard, where Dask is left to choose
            busy.listen()
        with dask_pool(None, 1) as pool:
            assert len(pool.client.nthreads()) == 1


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_no_fault_of_a_student(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "CONNECT_SECONDS", 1)
    with (
        pytest.raises(InfrastructureError, match=r"there is no scheduler at tcp://127\.0\.0\.1:9"),
        dask_pool("tcp://127.0.0.1:9", 1),
    ):
        pass
