"""A measuring machine: it asks the server for jobs, one at a time, and measures them here.

The entry's code runs in the sandbox of `tito.compete`, never in this process. The event's files are
the instructor's, and are trusted.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tito.compete.event import load_event
from tito.compete.fingerprint import fingerprint
from tito.compete.measure import Measured, measure
from tito.compete.process import Contestant
from tito.compete.result import Row
from tito.leaderboard.client import Client, ServerError, UnreachableError

BASELINE = "numpy"
POLL_SECONDS = 2.0
HEARTBEAT_SECONDS = 10.0
MOST_SECONDS = 1800.0  # of an entry; CPU time counts no sleep, and one takes a minute
GIVE_UP_SECONDS = 600.0  # a result is not thrown away because the server restarts


class Heartbeat:
    """Tells the server, beside the measurement, that it goes on; the measurement never waits."""

    def __init__(self, client: Client, job: dict[str, Any]) -> None:
        self._client, self._job = client, job
        self._ended = threading.Event()
        self.progress, self.lost = 0.0, False
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self._client.heartbeat(self._job["id"], self._job["lease"], self.progress)
            except UnreachableError:
                continue  # the lease may last until it is back
            except ServerError:
                self.lost = True
                return


class LeaseLost(Exception):
    """Measuring on would be for nothing."""


class TooLong(Exception):
    """It holds up all others."""


def work(
    client: Client,
    say: Callable[[str], None],
    *,
    confined: bool = True,
    once: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Measure jobs until stopped; returns how many.

    Args:
        say: is given a line for each thing that happens.
        once: return when the queue is empty.
        stop: asked between jobs.
    """
    done = 0
    client.about(machine := fingerprint(confined))
    say(f"measuring on {machine['cpu']}, {machine['sandbox']}")
    while not stop():
        try:
            job = client.take_job()
        except UnreachableError as error:
            say(f"{error}; trying again")
            time.sleep(POLL_SECONDS)
            continue
        if job is None:
            if once:
                return done
            time.sleep(POLL_SECONDS)
            continue
        say(f"job {job['id']}: {', '.join(e['name'] for e in job['entries'])} in {job['event']}")
        _handle(client, job, machine, say, confined)
        done += 1
    return done


def _handle(
    client: Client,
    job: dict[str, Any],
    machine: dict[str, str],
    say: Callable[[str], None],
    confined: bool,
) -> None:
    try:
        with Heartbeat(client, job) as heartbeat:
            told = _measure(job, machine, heartbeat, confined)
    except LeaseLost:
        say(f"job {job['id']}: another runner has it now")
        return
    except TooLong:
        is_one = len(job["entries"]) == 1  # of several nobody knows whose fault it is
        text = f"measuring it takes more than {MOST_SECONDS / 60:.0f} minutes"
        told = failure(job, machine, text, "timeout" if is_one else "infrastructure")
    except KeyboardInterrupt:
        client.release(job["id"], job["lease"], "the runner was stopped")
        raise
    except Exception as error:  # whatever it is, it is ours: the queue must go on
        told = failure(job, machine, f"{type(error).__name__}: {error}")
    say(f"job {job['id']}: {', '.join(o['verdict'] for o in told['outcomes'])}")
    _send(client, job, told, say)


def _send(
    client: Client, job: dict[str, Any], told: dict[str, Any], say: Callable[[str], None]
) -> None:
    """Hand the result over, and try again while the server is away."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            client.finish(job["id"], job["lease"], told)
            return
        except UnreachableError as error:
            if time.monotonic() > deadline:
                say(f"job {job['id']}: the result is lost, {error}")
                return
            time.sleep(POLL_SECONDS)
        except ServerError as error:
            say(f"job {job['id']}: {error}")
            return


def _measure(
    job: dict[str, Any], machine: dict[str, str], heartbeat: Heartbeat, confined: bool
) -> dict[str, Any]:
    deadline = time.monotonic() + MOST_SECONDS * len(job["entries"])
    with tempfile.TemporaryDirectory(prefix="tito-runner-") as name:
        folder = Path(name) / "event"
        folder.mkdir()
        for file, text in job["files"].items():
            (folder / Path(file).name).write_text(text, "utf-8")
        event = load_event(str(folder))
        contestants = [Contestant(BASELINE)]
        for i, entry in enumerate(job["entries"]):
            if entry["text"] is None:
                contestants.append(Contestant(entry["name"]))
                continue
            path = Path(name) / f"entry_{i}.py"
            path.write_text(entry["text"], "utf-8")
            contestants.append(Contestant(entry["name"], path, entry["class_name"]))
        named = {c.name for c in contestants}
        contestants += [Contestant(b) for b in job["beside"] if b not in named]

        def begin(total: int) -> Callable[[], None]:
            done = 0

            def step() -> None:
                nonlocal done
                done += 1
                heartbeat.progress = done / total
                if heartbeat.lost:
                    raise LeaseLost
                if time.monotonic() > deadline:
                    raise TooLong

            return step

        unique = list({c.name: c for c in contestants}.values())
        return report(
            measure(event, unique, job["launches"], confined=confined, begin=begin), machine
        )


def machine_class(machine: dict[str, str]) -> str:
    """What must be equal for two results to be in one ranking."""
    return ", ".join(
        [machine["cpu"], f"{machine['cores']} cores", f"Python {machine['python']}",
         f"NumPy {machine['numpy']}", machine["blas"], f"numba {machine['numba']}",
         machine["sandbox"]]
    )  # fmt: skip


def report(measured: Measured, machine: dict[str, str]) -> dict[str, Any]:
    """What the server is told: for each contestant a verdict, and a score if there is one."""
    outcomes = [_failed(f.contestant, f.verdict, f.text) for f in measured.failed.values()]
    result = measured.result
    for total in result.scores if result else ():
        assert result is not None
        outcomes.append(
            {
                "contestant": total.name, "verdict": result.verdicts[total.name], "text": "",
                "score": total.ratio, "low": total.low, "high": total.high,
                "compile_seconds": result.compile_seconds[total.name],
                "measurements": [_case(r, measured) for r in result.rows if r.name == total.name],
            }
        )  # fmt: skip
    return {
        "machine": {**machine, "peak": measured.peak.flops if measured.peak else None},
        "machine_class": machine_class(machine),
        "outcomes": outcomes,
    }


def _case(row: Row, measured: Measured) -> dict[str, Any]:
    return {
        "case": row.case, "ratio": row.ratio, "low": row.low, "high": row.high,
        "milliseconds": row.milliseconds, "gflops": row.gflops,
        "seconds": [launch.seconds[row.name][row.case] for launch in measured.launches],
    }  # fmt: skip


def failure(
    job: dict[str, Any], machine: dict[str, str], text: str, verdict: str = "infrastructure"
) -> dict[str, Any]:
    """The report of a job that could not be measured."""
    outcomes = [_failed(e["name"], verdict, text[:2000]) for e in job["entries"]]
    return {
        "machine": {**machine, "peak": None},
        "machine_class": machine_class(machine),
        "outcomes": outcomes,
    }


def _failed(contestant: str, verdict: str, text: str) -> dict[str, Any]:
    return {
        "contestant": contestant, "verdict": verdict, "text": text, "score": None, "low": None,
        "high": None, "compile_seconds": None, "measurements": [],
    }  # fmt: skip
