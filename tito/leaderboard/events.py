"""Events of a class: their files as versions, and their phases.

open -> closing (the first ten are measured once more, in one run) -> closed (code is shown);
an instructor may freeze an open one, which takes no entries until it is thawed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tito.compete.event import EventError, load_event
from tito.compete.process import BASELINES
from tito.leaderboard import audit, board, jobs
from tito.leaderboard.tables import Classroom, Event, EventVersion, Job, Person, Run

NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,58}[a-z0-9]")
FILES = ("event.toml", "task.py", "starter.py")
FINALISTS = 10
FINAL_WAIT = 600.0


def read_files(folder: Path) -> dict[str, str]:
    """The files of an event, as text."""
    return {name: (folder / name).read_text("utf-8") for name in FILES}


def add_event(
    session: Session,
    actor: Person | None,
    classroom: Classroom,
    name: str,
    based_on: str,
    *,
    quota: int = 20,
    launches: int = 8,
    beside: tuple[str, ...] = (),
    deadline: float | None = None,
) -> Event:
    """Open an event for a class.

    Args:
        name: in addresses: small letters, digits and -.
        based_on: an event of `tito compete list`, or a folder with an event.toml.
        quota: submissions of a person in 24 hours.
        beside: baselines that are measured in every run, besides numpy.

    Raises:
        EventError: the name is taken or none, or there is no such event.
    """
    if not NAME.fullmatch(name):
        raise EventError(f"an event's name has 3 to 60 of a-z, 0-9 and -, not {name!r}")
    taken = select(Event).where(Event.classroom_id == classroom.id, Event.name == name)
    if session.scalar(taken):
        raise EventError(f"{classroom.name} has an event {name!r} already")
    for number, what in ((quota, "a quota"), (launches, "a number of launches")):
        if not 1 <= number <= 1000:
            raise EventError(f"{what} is between 1 and 1000, not {number}")
    unknown = set(beside) - set(BASELINES)
    if unknown:
        raise EventError(f"there is no baseline {', '.join(sorted(unknown))}")
    found = load_event(based_on)
    event = Event(
        classroom_id=classroom.id,
        name=name,
        title=found.title[:200],
        division=found.division,
        quota=quota,
        launches=launches,
        beside=list(beside),
        deadline=deadline,
    )
    session.add(event)
    session.flush()
    _add_version(session, event, read_files(found.folder))
    audit.note(session, actor, "open event", f"{classroom.name}: {name}", based_on)
    return event


def _add_version(session: Session, event: Event, files: dict[str, str]) -> None:
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    event.versions.append(EventVersion(digest=digest, files=files))
    session.flush()


def why_closed(event: Event, arrived: float | None = None) -> str | None:
    """None, or why it takes none that arrived then, by default now."""
    if event.state != "open":
        return f"the event {event.name} is {event.state}"
    if event.deadline is not None and (arrived or time.time()) > event.deadline:
        return f"the deadline of {event.name} has passed"
    return None


def change_state(session: Session, actor: Person, event: Event, state: str) -> None:
    """Freeze or thaw an event, or begin to close it.

    Raises:
        EventError: that is not possible from where it is, or entries wait to be measured.
    """
    session.refresh(event, with_for_update=True)  # entries that are being taken are waited for
    allowed = {"open": ("frozen", "closing"), "frozen": ("open", "closing")}
    if state not in allowed.get(event.state, ()):
        raise EventError(f"an event that is {event.state} cannot become {state}")
    if state == "closing" and (left := jobs.unmeasured(session, event)):
        raise EventError(
            f"{left} of the entries of {event.name} are not measured yet, and could be among the "
            "first: freeze it, and close it when they are"
        )
    event.state = state
    if state == "closing":
        first = [row.submission for row in board.ranking(session, event)[:FINALISTS]]
        entries = [s for s in first if s.baseline is None]
        if entries:
            jobs.enqueue(session, "final", event.version, entries, actor)
        else:
            event.state = "closed"
    audit.note(session, actor, event.state, event.name)


def finals_of_others(session: Session, runner: Person) -> list[int]:
    """Final runs that are for another kind of machine than the runner's: that of the board, or they
    would not be on it. A run that has waited for `FINAL_WAIT` seconds is for any runner."""
    finals = select(Job).where(
        Job.kind == "final", Job.state != "done", Job.created > time.time() - FINAL_WAIT
    )
    waiting = session.scalars(finals).all()
    if not waiting:
        return []
    last = select(Run.machine_class).where(Run.runner_id == runner.id).order_by(Run.id.desc())
    own = session.scalar(last.limit(1))
    return [
        job.id
        for job in waiting
        if own not in board.machine_classes(session, job.version.event)[:1]
    ]


def describe(event: Event) -> dict[str, Any]:
    """For a machine to read."""
    return {
        "name": event.name,
        "title": event.title,
        "division": event.division,
        "state": event.state,
        "deadline": event.deadline,
        "quota": event.quota,
        "version": event.version.digest[:12],
    }
