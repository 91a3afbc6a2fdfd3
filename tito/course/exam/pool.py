"""Run many jobs at once: on this machine, or on a cluster of Dask.

Both take JSON and give JSON; the function that makes one of the other is the grader's own. What a
student wrote runs in the sandbox that this function starts, never in the worker itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from typing import Any, Protocol

from tito.course.exam.job import InfrastructureError, Job, Transcript
from tito.course.exam.run import run_job

AHEAD = 4  # jobs that wait for each that runs
CONNECT_SECONDS = 20
LOST_WORKERS = 3  # that one job may outlive


def run_text(text: str, stop: Event | None = None) -> str:
    """A job to its transcript, both as JSON; what the machine did wrong is in it as well."""
    try:
        return json.dumps(asdict(run_job(Job.from_json(text), stop)))
    except InfrastructureError as error:
        return json.dumps({"infrastructure": str(error)})


def transcript(text: str) -> Transcript:
    """The transcript in an answer of `run_text`.

    Raises:
        InfrastructureError: there is none.
    """
    data = json.loads(text)
    if "infrastructure" in data:
        raise InfrastructureError(data["infrastructure"])
    return Transcript(**data)


class Pool(Protocol):
    """Runs jobs in any order."""

    def run(self, jobs: Iterator[tuple[Any, Job]]) -> Iterator[tuple[Any, Transcript | Exception]]:
        """Names and jobs to names and transcripts, or to what came in between."""
        ...


class LocalPool:
    """Threads that wait for sandboxes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def run(self, jobs: Iterator[tuple[Any, Job]]) -> Iterator[tuple[Any, Transcript | Exception]]:
        running: dict[Future[str], Any] = {}
        stop = Event()
        with ThreadPoolExecutor(self.size) as threads:
            try:
                while True:
                    for name, job in jobs:
                        running[threads.submit(run_text, job.to_json(), stop)] = name
                        if len(running) >= self.size * AHEAD:
                            break
                    if not running:
                        return
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), _result(future)
            finally:
                stop.set()  # after an interrupt nothing runs on
                threads.shutdown(wait=False, cancel_futures=True)


class DaskPool:
    """Workers of a cluster; a job whose worker is lost goes to another one."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, jobs: Iterator[tuple[Any, Job]]) -> Iterator[tuple[Any, Transcript | Exception]]:
        from distributed import as_completed

        names: dict[str, Any] = {}
        completed = as_completed()
        slots = max(sum(self.client.nthreads().values()), 1)

        def add() -> None:
            for name, job in jobs:
                future = self.client.submit(run_text, job.to_json(), pure=False)
                names[future.key] = name
                completed.add(future)
                if completed.count() >= slots * AHEAD:
                    return

        add()
        for future in completed:
            yield names.pop(future.key), _result(future)
            add()


def _result(future: Any) -> Transcript | Exception:
    try:
        return transcript(future.result())
    except Exception as error:  # a worker may be lost in many ways
        return error


@contextmanager
def dask_pool(scheduler: str | None, size: int) -> Iterator[DaskPool]:
    """A pool on the cluster with this scheduler, or on one started here for the purpose.

    Raises:
        InfrastructureError: the cluster does not answer, or Dask is not installed.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise InfrastructureError(
            "a cluster needs Dask, which is not installed: pip install 'tinytorch[cluster]'"
        ) from None
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": LOST_WORKERS}):
        if scheduler is None:
            with (
                distributed.LocalCluster(
                    n_workers=size,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=None,
                    # its metrics: on a port that no second cluster of this machine can have
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                yield DaskPool(client)
            return
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise InfrastructureError(
                f"there is no scheduler at {scheduler}: {error}; start one with `dask scheduler`"
            ) from None
        with client:
            yield DaskPool(client)
