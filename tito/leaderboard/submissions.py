"""Taking an entry: one text file that keeps its division's rules, within its author's quota."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased, joinedload

from tito.compete.entry import Entry, EntryError, parse_entry
from tito.leaderboard import audit, events, jobs
from tito.leaderboard.tables import (
    Code,
    Event,
    Job,
    JobEntry,
    Outcome,
    Person,
    Run,
    Submission,
)

DAY = 24 * 3600.0


class RefusedError(Exception):
    """An entry is not taken; the text says why."""


@dataclass(frozen=True)
class Quota:
    """Of a person in an event."""

    used: int
    allowed: int

    @property
    def left(self) -> int:
        """How many more now."""
        return max(0, self.allowed - self.used)


def quota(session: Session, event: Event, person_id: int) -> Quota:
    """What a person has used in the last 24 hours."""
    now = time.time()
    used = session.scalar(
        select(func.count())
        .select_from(Submission)
        .where(
            Submission.event_id == event.id,
            Submission.person_id == person_id,
            Submission.created.between(now - DAY, now + DAY),  # beyond: the clock was set back
        )
    )
    return Quota(used or 0, event.quota)


def find_event(session: Session, person: Person, name: str) -> Event:
    """An event of the person's class by name.

    Raises:
        RefusedError: there is none, or several; the message has those that there are.
    """
    mine = visible_events(session, person)
    found = [event for event in mine if event.name == name]
    if len(found) == 1:
        return found[0]
    if found:  # an instructor sees those of all classes
        raise RefusedError(f"{len(found)} classes have an event {name!r}: open its page instead")
    known = ", ".join(e.name for e in mine) or "none"
    raise RefusedError(f"there is no event {name[:80]!r} for you; there are: {known}")


def visible_events(session: Session, person: Person) -> list[Event]:
    """The events of a person's class; all of them for an instructor."""
    query = select(Event).order_by(Event.id.desc())
    if person.role != "instructor":
        query = query.where(Event.classroom_id == person.classroom_id)
    return list(session.scalars(query))


def submit(
    session: Session,
    person: Person,
    event: Event,
    data: bytes,
    filename: str,
    arrived: float | None = None,
) -> Submission:
    """Take an entry and put it in the queue.

    Args:
        arrived: when it was here: before a deadline many wait for each other.

    Raises:
        RefusedError: the event takes none, the quota is used up, the file breaks a rule, or the
            same person has the same code in the event already, unless it ended without a score by
            no fault of its own.
    """
    session.refresh(event, with_for_update={"read": True})  # it does not close until this is kept
    closed = events.why_closed(event, arrived)
    if closed:
        raise RefusedError(closed)
    # The row of the person is locked, so that two requests at once cannot both be the last one.
    session.execute(select(Person.id).where(Person.id == person.id).with_for_update())
    entry = _read(data, filename, event)
    have = quota(session, event, person.id)
    if have.left == 0:
        raise RefusedError(
            f"you have used your {have.allowed} entries of the last 24 hours in {event.name}"
        )
    same = latest(
        session,
        Submission.event_id == event.id,
        Submission.person_id == person.id,
        Submission.code_sha256 == entry.sha256,
        most=1,
    )
    if same and not same[0].is_unscored:
        raise RefusedError(
            f"this is the code of your submission {same[0].submission.id}, letter by letter"
        )
    if session.get(Code, entry.sha256) is None:
        with suppress(IntegrityError), session.begin_nested():  # another may enter it right now
            session.add(Code(sha256=entry.sha256, text=entry.text))
    made = Submission(
        event_id=event.id,
        person_id=person.id,
        code_sha256=entry.sha256,
        class_name=entry.class_name,
    )
    session.add(made)
    session.flush()
    jobs.enqueue(session, "measure", event.version, [made], person)
    audit.note(session, person, "submit", f"submission {made.id}", event.name)
    return made


def _read(data: bytes, filename: str, event: Event) -> Entry:
    name = PurePath(filename.replace("\\", "/")).name or "entry.py"
    try:
        entry = parse_entry(data, "".join(c for c in name if c.isprintable())[:80])
        entry.check_rules(event.division)
    except EntryError as error:
        raise RefusedError(str(error)) from None
    return entry


def submit_baseline(session: Session, person: Person, event: Event, name: str) -> Submission:
    """Enter a backend of ours."""
    made = Submission(event_id=event.id, person_id=person.id, baseline=name)
    session.add(made)
    session.flush()
    jobs.enqueue(session, "measure", event.version, [made], person)
    return made


class Latest(NamedTuple):
    """A submission, its newest measurement, and what the last run of it found."""

    submission: Submission
    job: Job
    outcome: Outcome | None

    @property
    def is_unscored(self) -> bool:
        """Whether it ended without a score, by a fault of the machine or of ours."""
        verdict = self.outcome.verdict if self.outcome else None
        return self.job.state == "done" and verdict in (None, *jobs.RETRIED)


def latest(
    session: Session, *conditions: ColumnElement[bool], most: int | None = None
) -> list[Latest]:
    """Submissions that meet the conditions, the newest first, in one query with their events.

    Args:
        most: as many at the most.

    Example:
        >>> latest(session, Submission.person_id == 7, most=20)  # doctest: +SKIP
    """
    measuring, of_it = aliased(Job), aliased(Run)
    newest = (
        select(func.max(measuring.id))
        .join(JobEntry, JobEntry.job_id == measuring.id)
        .where(JobEntry.submission_id == Submission.id, measuring.kind == "measure")
        .correlate(Submission)
        .scalar_subquery()
    )
    last = select(func.max(of_it.id)).where(of_it.job_id == Job.id).correlate(Job).scalar_subquery()
    query = (
        select(Submission, Job, Outcome)
        .select_from(Submission)
        .join(Job, Job.id == newest)
        .outerjoin(Outcome, (Outcome.run_id == last) & (Outcome.submission_id == Submission.id))
        .where(*conditions)
        .options(joinedload(Submission.event))
        .order_by(Submission.id.desc())
        .limit(most)
    )
    return [Latest(*row) for row in session.execute(query)]
