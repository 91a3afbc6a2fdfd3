"""The queue of measurements. A runner holds a lease; one that falls silent loses it.

A job is waiting, running or done. Leases are taken inside a transaction that no other can share:
`BEGIN IMMEDIATE` on SQLite, `FOR UPDATE SKIP LOCKED` on PostgreSQL.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from tito.leaderboard import audit
from tito.leaderboard.tables import (
    Event,
    EventVersion,
    Job,
    JobEntry,
    Measurement,
    Outcome,
    Person,
    Run,
    Submission,
)

LEASE_SECONDS = 60.0
MAX_ATTEMPTS = 3
RETRIED = ("noisy", "infrastructure")  # the machine's fault, or ours: never scored


class LeaseLostError(Exception):
    """The job is another's by now."""


def enqueue(
    session: Session,
    kind: str,
    version: EventVersion,
    entries: Sequence[Submission],
    asked_by: Person | None,
) -> Job:
    """Put a measurement at the end of the queue."""
    job = Job(
        kind=kind,
        version_id=version.id,
        asked_by=asked_by.id if asked_by else None,
        entries=[JobEntry(submission_id=s.id, position=i) for i, s in enumerate(entries)],
    )
    session.add(job)
    session.flush()
    return job


def take(session: Session, runner: Person, unfit: Sequence[int] = ()) -> Job | None:
    """Give the oldest job that nobody works on to a runner, but none of `unfit`; None if there is
    none."""
    now = time.time()
    latest = now + 2 * LEASE_SECONDS  # a lease beyond is of a clock that has been set back since
    job = session.scalar(
        select(Job)
        .where(
            or_(
                Job.state == "waiting",
                (Job.state == "running") & ~Job.lease_until.between(now, latest),
            ),
            Job.id.not_in(unfit),
        )
        .order_by(Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    if job is None:
        return None
    job.attempts += 1
    if job.attempts > MAX_ATTEMPTS:  # it takes its runners down with it
        _give_up(session, job, runner)
        return take(session, runner, unfit)
    job.state, job.runner_id, job.started = "running", runner.id, now
    job.lease, job.lease_until, job.progress = secrets.token_urlsafe(24), now + LEASE_SECONDS, 0.0
    return job


def _give_up(session: Session, job: Job, runner: Person) -> None:
    text = f"given up after {MAX_ATTEMPTS} attempts: no runner came back with a result"
    outcomes = [_unmeasured(e.submission_id, name_of(e.submission), text) for e in job.entries]
    job.runs.append(
        Run(runner_id=runner.id, machine_class="unknown", machine={}, outcomes=outcomes)
    )
    _finish(job, text)
    audit.note(session, None, "give up", f"job {job.id}", text)


def _unmeasured(submission_id: int, name: str, text: str) -> Outcome:
    return Outcome(
        submission_id=submission_id, contestant=name, verdict="infrastructure", text=text
    )


def held(session: Session, runner: Person, job_id: int, lease: str) -> Job:
    """A job whose lease the runner has.

    Raises:
        LeaseLostError: it has not, or no longer.
    """
    job = session.scalar(select(Job).where(Job.id == job_id).with_for_update())
    if (
        job is None
        or job.state != "running"
        or job.runner_id != runner.id
        or not secrets.compare_digest((job.lease or "").encode(), lease.encode())
    ):
        raise LeaseLostError(f"job {job_id} is not yours: its lease has gone to another, or ended")
    return job


def heartbeat(job: Job, progress: float) -> None:
    """The runner is alive, and this far."""
    job.lease_until = time.time() + LEASE_SECONDS
    job.progress = min(max(progress, 0.0), 1.0)


def give_back(job: Job, note: str) -> None:
    """The runner stops: the job is as if nobody had begun it."""
    job.attempts -= 1
    _wait(job, note)


def _wait(job: Job, note: str) -> None:
    job.state, job.lease, job.lease_until = "waiting", None, None
    job.progress, job.note = 0.0, note


def name_of(submission: Submission) -> str:
    """What a contestant is called while it is measured."""
    return submission.baseline or f"submission {submission.id}"


def record(session: Session, job: Job, runner: Person, report: dict[str, Any]) -> Run:
    """Keep what a runner measured; a verdict that is not the entry's fault is tried again.

    Args:
        report: see `runner.report`.
    """
    by_name = {name_of(e.submission): e.submission_id for e in job.entries}
    run = Run(runner_id=runner.id, machine=report["machine"], machine_class=report["machine_class"])
    for told in report["outcomes"]:
        outcome = Outcome(
            submission_id=by_name.get(told["contestant"]),
            contestant=told["contestant"],
            verdict=told["verdict"],
            text=told["text"].replace("\0", ""),
            score=told["score"],
            low=told["low"],
            high=told["high"],
            compile_seconds=told["compile_seconds"],
            measurements=[Measurement(**m) for m in told["measurements"]],
        )
        run.outcomes.append(outcome)
    failed = "; ".join(f"{o.contestant}: {o.text}" for o in run.outcomes if o.text)
    for name in by_name.keys() - {o.contestant for o in run.outcomes}:  # a baseline failed
        run.outcomes.append(_unmeasured(by_name[name], name, failed))
    job.runs.append(run)
    if any(o.verdict in RETRIED for o in run.outcomes if o.submission_id) and (
        job.attempts < MAX_ATTEMPTS
    ):
        _wait(job, f"attempt {job.attempts} was {_why(run)}: measured again")
    else:
        _finish(job, "")
    session.flush()
    return run


def _why(run: Run) -> str:
    return ", ".join(sorted({o.verdict for o in run.outcomes if o.verdict in RETRIED}))


def _finish(job: Job, note: str) -> None:
    job.state, job.lease, job.lease_until = "done", None, None
    job.finished, job.progress, job.note = time.time(), 1.0, note
    if job.kind == "final":
        job.version.event.state = "closed"


def unmeasured(session: Session, event: Event) -> int:
    """How many measurements of an event's entries are not done; duels do not count."""
    waiting = select(func.count()).where(
        Job.version_id == event.version.id, Job.kind == "measure", Job.state != "done"
    )
    return session.scalars(waiting).one()


def position(session: Session, job: Job) -> int:
    """How many jobs are before this one."""
    waiting = select(func.count()).where(Job.state == "waiting", Job.id < job.id)
    return session.scalars(waiting).one()
