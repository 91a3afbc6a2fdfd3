"""Tables of our own, beside nbgrader's and in the same database: each change is a transaction.

Times are text in UTC, `2026-10-01T21:59:00+00:00`: SQLite and PostgreSQL order them alike. What is
never changed (`AUDIT`) refuses UPDATE and DELETE by a trigger, in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import sqlalchemy
from sqlalchemy import DDL, Column, Float, Integer, MetaData, String, Table, Text, event
from sqlalchemy.engine import Engine

from tito.course.config import Course, GradebookError, check_foreign_keys

NAME, LONG_NAME, TIME, DIGEST = String(128), String(255), String(32), String(64)

METADATA = MetaData()
SUBMISSION = Table(
    "tito_submission",
    METADATA,
    Column("assignment", LONG_NAME, primary_key=True),
    Column("student", NAME, primary_key=True),
    Column("notebook", LONG_NAME, primary_key=True),
    Column("state", TIME, nullable=False),
    Column("digest", DIGEST, nullable=False),
    Column("detail", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
)
ROSTER = Table(  # a file of a platform as it came; scope is an assignment where ids are its own
    "tito_roster",
    METADATA,
    Column("platform", TIME, primary_key=True),
    Column("scope", LONG_NAME, primary_key=True),
    Column("text", Text, nullable=False),
    Column("imported", TIME, nullable=False),
)
IDENTITY = Table(  # who is meant by what a platform writes
    "tito_identity",
    METADATA,
    Column("kind", TIME, primary_key=True),
    Column("scope", LONG_NAME, primary_key=True),
    Column("key", LONG_NAME, primary_key=True),
    Column("student", NAME, nullable=False),
)
EXTENSION = Table(
    "tito_extension",
    METADATA,
    Column("assignment", LONG_NAME, primary_key=True),
    Column("student", NAME, primary_key=True),
    Column("until", TIME, nullable=False),
    Column("reason", Text, nullable=False),
)
ATTEMPT = Table(
    "tito_attempt",
    METADATA,
    Column("assignment", LONG_NAME, primary_key=True),
    Column("student", NAME, primary_key=True),
    Column("file", LONG_NAME, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("digest", DIGEST, nullable=False),
    Column("submitted", TIME, nullable=False),
    Column("kept", TIME, nullable=False),
)
RESULT = Table(  # each time that an attempt was graded; tests is JSON
    "tito_result",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("assignment", LONG_NAME, nullable=False),
    Column("student", NAME, nullable=False),
    Column("notebook", LONG_NAME, nullable=False),
    Column("digest", DIGEST, nullable=False),
    Column("graded", TIME, nullable=False),
    Column("state", TIME, nullable=False),
    Column("score", Float, nullable=False),
    Column("max_score", Float, nullable=False),
    Column("tests", Text, nullable=False),
)
REGRADE = Table(  # before and after are JSON; no `finished` is a regrade that was interrupted
    "tito_regrade",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("assignment", LONG_NAME, nullable=False),
    Column("began", TIME, nullable=False),
    Column("finished", TIME),
    Column("before", Text, nullable=False),
    Column("after", Text),
)
REQUEST = Table(
    "tito_request",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("assignment", LONG_NAME, nullable=False),
    Column("student", NAME, nullable=False),
    Column("test", LONG_NAME, nullable=False),
    Column("asked", TIME, nullable=False),
    Column("text", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("answered", TIME),
    Column("answered_by", NAME),
)
AUDIT = Table(
    "tito_audit",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("time", TIME, nullable=False),
    Column("who", NAME, nullable=False),
    Column("action", TIME, nullable=False),
    Column("assignment", LONG_NAME, nullable=False),
    Column("student", NAME, nullable=False),
    Column("details", Text, nullable=False),
)

for _change in ("UPDATE", "DELETE"):
    _trigger = DDL(
        f"CREATE TRIGGER tito_audit_no_{_change.lower()} BEFORE {_change} ON tito_audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
    )
    event.listen(AUDIT, "after_create", _trigger.execute_if(dialect="sqlite"))
_function = DDL(
    "CREATE OR REPLACE FUNCTION tito_audit_is_kept() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$"
)
_trigger = DDL(
    "CREATE TRIGGER tito_audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON tito_audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION tito_audit_is_kept()"
)
for _each in (_function, _trigger):
    event.listen(AUDIT, "after_create", _each.execute_if(dialect="postgresql"))


@contextmanager
def database(course: Course) -> Iterator[Engine]:
    """The course's database with our tables in it, also where an older version has made it.

    Raises:
        GradebookError: it does not answer.
    """
    check_foreign_keys()
    try:
        engine = sqlalchemy.create_engine(course.db_url, poolclass=sqlalchemy.NullPool)
        METADATA.create_all(engine)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        said = str(error).splitlines()[0]
        raise GradebookError(f"the gradebook does not answer: {said}") from error
    try:
        yield engine
    finally:
        engine.dispose()


def stamp(time: datetime | None = None) -> str:
    """A time as the tables have it; now, if none is given.

    >>> stamp(datetime(2026, 10, 1, 23, 59, tzinfo=UTC))
    '2026-10-01T23:59:00+00:00'
    """
    return (time or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")


def plain(text: str) -> str:
    """A text without the one character that PostgreSQL does not take."""
    return text.replace("\0", "")
