"""Ranks: best score of each person, and ties where intervals overlap.

An entry's rank is one more than the number of entries whose interval lies wholly above its own. So
nobody is ranked below another by luck. Machines of two classes are never in one ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tito.leaderboard.jobs import RETRIED
from tito.leaderboard.tables import Event, Job, JobEntry, Outcome, Person, Run, Submission


@dataclass(frozen=True)
class Row:
    """A line of a board."""

    rank: int
    submission: Submission
    person: Person
    outcome: Outcome

    @property
    def score(self) -> float:
        """How many times as fast as the numpy baseline."""
        return self.outcome.score or 0.0

    def to_dict(self) -> dict[str, Any]:
        """For pages, programs and spreadsheets."""
        return {
            "rank": self.rank, "pseudonym": self.person.pseudonym, "score": self.score,
            "low": self.outcome.low, "high": self.outcome.high, "submission": self.submission.id,
            "machine": self.outcome.run.machine_class,
        }  # fmt: skip


def machine_classes(session: Session, event: Event) -> list[str]:
    """Kinds of machine that this event's entries were measured on, the most used first."""
    query = (
        select(Run.machine_class, func.count())
        .join(Job)
        .where(Job.version_id == event.version.id)
        .join(Run.outcomes)
        .where(Outcome.score.is_not(None))
        .group_by(Run.machine_class)
        .order_by(func.count().desc(), Run.machine_class)
    )
    return [name for name, _ in session.execute(query)]


def scored(session: Session, event: Event, machine_class: str | None = None) -> list[Outcome]:
    """Of each submission the outcome that counts: its latest on this class of machine.

    A run that was noisy, or failed by no fault of the entry, takes no score away.

    The final run, in which the first ten are measured together, comes after all others; what an
    instructor has measured again after it counts more.
    """
    classes = machine_classes(session, event)
    chosen = machine_class or (classes[0] if classes else "")
    query = (
        select(Outcome)
        .join(Run)
        .join(Job)
        .join(JobEntry, (JobEntry.job_id == Job.id)
              & (JobEntry.submission_id == Outcome.submission_id))
        .where(
            Job.version_id == event.version.id,
            Run.machine_class == chosen,
            Job.kind.in_(("measure", "final")),
            Outcome.verdict.not_in(RETRIED),
        )
        .order_by(Outcome.id)
    )  # fmt: skip
    latest: dict[int, Outcome] = {}
    for outcome in session.scalars(query):
        assert outcome.submission_id is not None
        latest[outcome.submission_id] = outcome
    return [o for o in latest.values() if o.verdict == "ok" and o.score is not None]


def ranking(session: Session, event: Event, machine_class: str | None = None) -> list[Row]:
    """The board of an event: the best of each person that is neither hidden nor disqualified."""
    best: dict[int, tuple[Submission, Outcome]] = {}
    for outcome in scored(session, event, machine_class):
        submission = session.get_one(Submission, outcome.submission_id)
        if submission.hidden or submission.disqualified is not None:
            continue
        before = best.get(submission.person_id)
        if before is None or (outcome.low or 0) > (before[1].low or 0):
            best[submission.person_id] = submission, outcome
    found = sorted(best.values(), key=lambda pair: (-(pair[1].low or 0), pair[0].id))
    intervals = [(o.low or 0.0, o.high or 0.0) for _, o in found]
    return [
        Row(rank, submission, submission.person, outcome)
        for rank, (submission, outcome) in zip(ranks(intervals), found, strict=True)
    ]


def ranks(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """The rank of each interval.

    Example:
        >>> ranks([(2.0, 2.1), (1.9, 2.05), (1.5, 1.6)])
        [1, 1, 3]
    """
    return [1 + sum(low > high for low, _ in intervals) for _, high in intervals]


def record(session: Session, event: Event) -> list[tuple[float, float]]:
    """When the best score so far rose, and to what."""
    steps: list[tuple[float, float]] = []
    for outcome in sorted(scored(session, event), key=lambda o: o.run.created):
        submission = session.get_one(Submission, outcome.submission_id)
        if submission.hidden or submission.disqualified is not None or submission.baseline:
            continue
        if not steps or (outcome.score or 0) > steps[-1][1]:
            steps.append((outcome.run.created, outcome.score or 0.0))
    return steps
