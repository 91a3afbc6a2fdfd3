"""Each file that was handed in, and what it got each time that it was graded.

A file is written before its row, under a name with its digest: a row never names a file that is
not there, and what an interrupted run has left is in nobody's way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError

from tito.course.config import Course
from tito.course.files import write_whole
from tito.course.tables import ATTEMPT, RESULT, stamp

FOLDER = "attempts"
TRIES = 5  # two graders may keep the same file at once


@dataclass(frozen=True)
class Result:
    """What an attempt got.

    Attributes:
        tests: by grade_id: points, and how many there are.
    """

    graded: str
    state: str
    score: float
    max_score: float
    tests: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Attempt:
    """A file that was handed in.

    Attributes:
        number: counts from 1 for each student, assignment and name of a file.
        submitted: when the student did, in UTC.
        kept: when we first saw it.
    """

    assignment: str
    student: str
    file: str
    number: int
    digest: str
    submitted: str
    kept: str
    path: str = ""
    results: list[Result] = field(default_factory=list)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def keep(
    course: Course,
    engine: Engine,
    assignment: str,
    student: str,
    file: str,
    content: bytes,
    submitted: datetime,
) -> int:
    """Keep what was handed in; the number of the attempt.

    The same content is the same attempt if it is the newest one, or has the same time.
    """
    digest = digest_of(content)
    for _ in range(TRIES):
        known = _known(engine, assignment, student, file)
        same = [r for r in known if r["digest"] == digest]
        found = [r for r in same if r is known[-1] or r["submitted"] == stamp(submitted)]
        number = int(found[-1]["number"] if found else known[-1]["number"] + 1 if known else 1)
        path = _path(course, assignment, student, file, number, digest)
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content)
        if found:
            return number
        row = {
            "assignment": assignment,
            "student": student,
            "file": file,
            "number": number,
            "digest": digest,
            "submitted": stamp(submitted),
            "kept": stamp(),
        }
        try:
            with engine.begin() as connection:
                connection.execute(insert(ATTEMPT).values(**row))
        except IntegrityError:
            continue  # somebody else had this number first
        return number
    raise OSError(f"an attempt of {student} for {assignment} could not be numbered: run this again")


def _known(engine: Engine, assignment: str, student: str, file: str) -> list[Any]:
    """The rows of a file of a student, by number."""
    mine = (
        (ATTEMPT.c.assignment == assignment)
        & (ATTEMPT.c.student == student)
        & (ATTEMPT.c.file == file)
    )
    with engine.connect() as connection:
        query = select(ATTEMPT).where(mine).order_by(ATTEMPT.c.number)
        return list(connection.execute(query).mappings())


def is_before(
    engine: Engine, assignment: str, student: str, file: str, time: datetime, content: bytes
) -> bool:
    """Whether a time is before that of an attempt with this content."""
    known, digest = _known(engine, assignment, student, file), digest_of(content)
    return any(row["digest"] == digest and stamp(time) < row["submitted"] for row in known)


def _path(
    course: Course, assignment: str, student: str, file: str, number: int, digest: str
) -> Path:
    return course.root / FOLDER / student / assignment / f"{number:03d}-{digest[:12]}" / file


def graded(
    engine: Engine,
    assignment: str,
    student: str,
    notebook: str,
    digest: str,
    state: str,
    tests: Mapping[str, tuple[float, float]],
) -> None:
    """Add what an attempt got; what it got before stays."""
    row = {
        "assignment": assignment,
        "student": student,
        "notebook": notebook,
        "digest": digest,
        "graded": stamp(),
        "state": state,
        "score": sum(points for points, _ in tests.values()),
        "max_score": sum(most for _, most in tests.values()),
        "tests": json.dumps(dict(tests), sort_keys=True),
    }
    with engine.begin() as connection:
        connection.execute(insert(RESULT).values(**row))


def attempts(
    course: Course, engine: Engine, assignment: str = "", student: str = ""
) -> list[Attempt]:
    """What is kept, with the results of each, by assignment, student, file and number."""
    found = select(ATTEMPT)
    results = select(RESULT).order_by(RESULT.c.id)
    for name, wanted in (("assignment", assignment), ("student", student)):
        if wanted:
            found = found.where(ATTEMPT.c[name] == wanted)
            results = results.where(RESULT.c[name] == wanted)
    order = [ATTEMPT.c[name] for name in ("assignment", "student", "file", "number")]
    with engine.connect() as connection:
        rows: list[Any] = list(connection.execute(found.order_by(*order)).mappings())
        got: list[Any] = list(connection.execute(results).mappings())
    made = []
    for row in rows:
        path = _path(
            course, row["assignment"], row["student"], row["file"], row["number"], row["digest"]
        )
        made.append(
            Attempt(
                **row,
                path=str(path.relative_to(course.root)),
                results=[_result(each) for each in got if _is_of(each, row)],
            )
        )
    return made


def _is_of(result: Mapping[str, Any], attempt: Mapping[str, Any]) -> bool:
    same = all(result[name] == attempt[name] for name in ("assignment", "student", "digest"))
    return same and attempt["file"] == f"{result['notebook']}.ipynb"


def _result(row: Mapping[str, Any]) -> Result:
    tests = {name: (points, most) for name, (points, most) in json.loads(row["tests"]).items()}
    return Result(row["graded"], row["state"], row["score"], row["max_score"], tests)


def handed_in(folder: Path, file: Path) -> datetime:
    """When a file in `submitted/` was handed in: what `collect` noted, or when it was changed."""
    from nbgrader.utils import parse_utc

    noted = folder / "timestamp.txt"
    if noted.is_file():
        try:
            time: datetime = parse_utc(noted.read_text(encoding="utf-8").strip())
            return time.replace(tzinfo=UTC)
        except ValueError:
            pass  # somebody else has written it
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)
