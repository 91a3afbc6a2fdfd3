"""What the leaderboard keeps. Times are seconds since the epoch, in UTC by definition."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

ROLES = ("student", "instructor", "runner", "house")
EVENT_STATES = ("open", "frozen", "closing", "closed")
JOB_KINDS = ("measure", "duel", "final")
JOB_STATES = ("waiting", "running", "done")


def one_of(column: str, allowed: tuple[str, ...]) -> CheckConstraint:
    """The database itself refuses another value."""
    return CheckConstraint(f"{column} IN ({', '.join(map(repr, allowed))})", name=column)


class Base(DeclarativeBase):
    """Constraints have names, so that a migration can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {float: Double, dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012


class Classroom(Base):
    """People who see the same events."""

    __tablename__ = "classroom"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)


class Person(Base):
    """Somebody under a pseudonym. A runner and a baseline of the house are persons too."""

    __tablename__ = "person"
    __table_args__ = (one_of("role", ROLES),)
    id: Mapped[int] = mapped_column(primary_key=True)
    pseudonym: Mapped[str] = mapped_column(String(40), unique=True)
    role: Mapped[str] = mapped_column(String(12))
    classroom_id: Mapped[int | None] = mapped_column(ForeignKey("classroom.id"))
    created: Mapped[float] = mapped_column(default=time.time)
    seen: Mapped[float | None]
    about: Mapped[dict[str, Any]] = mapped_column(default=dict)  # of a runner: its machine


class Invitation(Base):
    """A join link: whoever has it may become a person of this role."""

    __tablename__ = "invitation"
    __table_args__ = (one_of("role", ROLES),)
    id: Mapped[int] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(12))
    classroom_id: Mapped[int | None] = mapped_column(ForeignKey("classroom.id"))
    uses_left: Mapped[int]
    expires: Mapped[float]


class Token(Base):
    """For the API and to sign in: shown once, kept as a hash."""

    __tablename__ = "token"
    id: Mapped[int] = mapped_column(primary_key=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("person.id"), index=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    label: Mapped[str] = mapped_column(String(80))
    created: Mapped[float] = mapped_column(default=time.time)
    revoked: Mapped[float | None]
    person: Mapped[Person] = relationship()


class Session(Base):
    """A browser that is signed in."""

    __tablename__ = "session"
    id: Mapped[int] = mapped_column(primary_key=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("person.id"), index=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    csrf: Mapped[str] = mapped_column(String(64))
    expires: Mapped[float]
    person: Mapped[Person] = relationship()


class Event(Base):
    """A contest of a class. Its rules and cases are in its versions."""

    __tablename__ = "event"
    __table_args__ = (one_of("state", EVENT_STATES), UniqueConstraint("classroom_id", "name"))
    id: Mapped[int] = mapped_column(primary_key=True)
    classroom_id: Mapped[int] = mapped_column(ForeignKey("classroom.id"))
    name: Mapped[str] = mapped_column(String(60))
    title: Mapped[str] = mapped_column(String(200))
    division: Mapped[str] = mapped_column(String(12))
    state: Mapped[str] = mapped_column(String(12), default="open")
    deadline: Mapped[float | None]
    quota: Mapped[int]  # submissions of a person in 24 hours
    launches: Mapped[int]
    beside: Mapped[list[Any]] = mapped_column(default=list)  # baselines that are measured too
    created: Mapped[float] = mapped_column(default=time.time)
    versions: Mapped[list[EventVersion]] = relationship(order_by="EventVersion.id")

    @property
    def version(self) -> EventVersion:
        """The one that new entries are measured by."""
        return self.versions[-1]


class EventVersion(Base):
    """An event's files as they were: results of two versions are never mixed."""

    __tablename__ = "event_version"
    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[int] = mapped_column(ForeignKey("event.id"), index=True)
    digest: Mapped[str] = mapped_column(String(64))
    files: Mapped[dict[str, Any]]
    created: Mapped[float] = mapped_column(default=time.time)
    event: Mapped[Event] = relationship(overlaps="versions")


class Code(Base):
    """An entry's text, once for all who send the same."""

    __tablename__ = "code"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str] = mapped_column(Text)


class Submission(Base):
    """An entry of a person; `baseline` in place of code for one of the house."""

    __tablename__ = "submission"
    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[int] = mapped_column(ForeignKey("event.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("person.id"), index=True)
    code_sha256: Mapped[str | None] = mapped_column(ForeignKey("code.sha256"))
    class_name: Mapped[str] = mapped_column(String(200), default="")
    baseline: Mapped[str | None] = mapped_column(String(20))
    created: Mapped[float] = mapped_column(default=time.time)
    hidden: Mapped[bool] = mapped_column(default=False)
    disqualified: Mapped[str | None] = mapped_column(Text)  # the reason
    event: Mapped[Event] = relationship()
    person: Mapped[Person] = relationship()
    code: Mapped[Code | None] = relationship()


class Job(Base):
    """A measurement that is to be taken. Whoever holds its lease takes it."""

    __tablename__ = "job"
    __table_args__ = (
        one_of("kind", JOB_KINDS),
        one_of("state", JOB_STATES),
        Index("ix_job_queue", "state", "id"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(12))
    version_id: Mapped[int] = mapped_column(ForeignKey("event_version.id"))
    state: Mapped[str] = mapped_column(String(12), default="waiting")
    attempts: Mapped[int] = mapped_column(default=0)
    progress: Mapped[float] = mapped_column(default=0.0)
    lease: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[float | None]
    runner_id: Mapped[int | None] = mapped_column(ForeignKey("person.id"))
    asked_by: Mapped[int | None] = mapped_column(ForeignKey("person.id"))
    created: Mapped[float] = mapped_column(default=time.time)
    started: Mapped[float | None]
    finished: Mapped[float | None]
    note: Mapped[str] = mapped_column(Text, default="")
    version: Mapped[EventVersion] = relationship()
    entries: Mapped[list[JobEntry]] = relationship(order_by="JobEntry.position")
    runs: Mapped[list[Run]] = relationship(order_by="Run.id")


class JobEntry(Base):
    """A submission that a job measures."""

    __tablename__ = "job_entry"
    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), primary_key=True)
    submission_id: Mapped[int] = mapped_column(
        ForeignKey("submission.id"), primary_key=True, index=True
    )
    position: Mapped[int]
    submission: Mapped[Submission] = relationship()


class Run(Base):
    """One attempt at a job, with the machine that it was taken on."""

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    runner_id: Mapped[int] = mapped_column(ForeignKey("person.id"))
    machine_class: Mapped[str] = mapped_column(String(300), index=True)
    machine: Mapped[dict[str, Any]]
    created: Mapped[float] = mapped_column(default=time.time)
    outcomes: Mapped[list[Outcome]] = relationship(order_by="Outcome.id")


class Outcome(Base):
    """What a run found of one contestant: a verdict, and if it is "ok" a score."""

    __tablename__ = "outcome"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), index=True)
    submission_id: Mapped[int | None] = mapped_column(ForeignKey("submission.id"), index=True)
    contestant: Mapped[str] = mapped_column(String(80))
    verdict: Mapped[str] = mapped_column(String(20))
    text: Mapped[str] = mapped_column(Text, default="")
    score: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    compile_seconds: Mapped[float | None]
    run: Mapped[Run] = relationship(overlaps="outcomes")
    measurements: Mapped[list[Measurement]] = relationship(order_by="Measurement.id")


class Measurement(Base):
    """A contestant in one case, with every sample."""

    __tablename__ = "measurement"
    id: Mapped[int] = mapped_column(primary_key=True)
    outcome_id: Mapped[int] = mapped_column(ForeignKey("outcome.id"), index=True)
    case: Mapped[str] = mapped_column(String(80))
    ratio: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    milliseconds: Mapped[float]
    gflops: Mapped[float]
    seconds: Mapped[list[Any]]  # of each launch, round by round


class Audit(Base):
    """Who did what. Rows are added, and never changed."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(default=time.time)
    actor_id: Mapped[int | None] = mapped_column(ForeignKey("person.id"))
    action: Mapped[str] = mapped_column(String(60))
    subject: Mapped[str] = mapped_column(String(120))
    details: Mapped[str] = mapped_column(Text, default="")
    actor: Mapped[Person | None] = relationship()
