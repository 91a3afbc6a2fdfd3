"""Collect submissions from a folder or a zip file, as a learning platform gives them out.

What students send is data: links are left out, so are names that lead elsewhere, and sizes end
somewhere. Whatever is not taken is listed with the reason.
"""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path, PurePosixPath

from sqlalchemy.engine import Engine

from tito.course.config import Course, CourseError
from tito.course.files import NAME, write_whole
from tito.course.history import attempts, audit
from tito.course.platforms import Destination, DestinationError, destination, without_top
from tito.course.students.identity import student_of
from tito.course.tables import database

LARGEST_BYTES = 30 << 20
MOST_FILES = 20_000
RATIO, RATIO_FROM = 200, 1 << 20  # what packs better than this, from this size on, is a bomb
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError,
    RuntimeError,
)  # fmt: skip
TIMESTAMP = "timestamp.txt"
COLLECTED, UPDATED, UNCHANGED, IGNORED = "collected", "updated", "unchanged", "ignored"
BY_THE_WAY = "a system or a platform left it behind"
EXTENDED_TIME = 0x5455  # Info-ZIP, "proginfo/extrafld.txt": seconds since 1970 in UTC
OLDER, PASSED_OVER = "older", "passed over"
A_NEWER_ONE = "a newer one is there"
TAKEN = COLLECTED, UPDATED, UNCHANGED
COUNTED = *TAKEN, IGNORED, OLDER


@dataclass(frozen=True)
class File:
    """Something that was sent: its path below the folder or in the archive.

    Attributes:
        read: gives its content, when it is known that it is wanted.
        problem: why it cannot be taken.
    """

    path: str
    time: datetime
    read: Callable[[], bytes]
    problem: str = ""


@dataclass(frozen=True)
class Collected:
    """What became of a file."""

    file: str
    student: str
    what: str
    detail: str = ""


class DamagedError(Exception):
    """A file cannot be read; the text says why."""


def collect(
    course: Course,
    assignment: str,
    source: Path,
    pattern: str | None = None,
    zone: tzinfo | None = None,
) -> list[Collected]:
    """Put the submissions for an assignment where nbgrader looks for them.

    Args:
        source: a folder or a zip file, with files named as `platforms` knows them.
        pattern: how a file's path names the student, if otherwise: a regular expression with a
            group `student`, and perhaps one `file`.
        zone: of the times in a zip file, which have none; this machine's if not given.

    Returns:
        What became of each file, those that were not taken as well; and, without a file, each
        student of whom some were taken, but no notebook of the assignment.

    Raises:
        CourseError: the assignment, the folder or the pattern is not as it has to be.
    """
    notebooks = [p.stem for p in sorted(course.folder("source", ".", assignment).glob("*.ipynb"))]
    if not notebooks:
        raise course.not_generated(assignment)
    form = _compiled(pattern) if pattern else None
    with database(course) as engine, _opened(source, zone) as files:
        results = _taken(course, engine, assignment, notebooks, form, files)
        count = {what: sum(each.what == what for each in results) for what in COUNTED}
        audit.note(engine, "collect", assignment, source=str(source), **count)
    return results


def _taken(
    course: Course,
    engine: Engine,
    assignment: str,
    notebooks: list[str],
    form: re.Pattern[str] | None,
    files: list[File],
) -> list[Collected]:
    """Take the newest file for each place; the older ones are kept as attempts."""
    known = student_of(engine, assignment)
    newest: dict[tuple[str, str], tuple[tuple[int, ...], File]] = {}
    results = []
    wanted, older = [], []
    for file in files:
        if _is_by_the_way(file.path):
            results.append(Collected(file.path, "", PASSED_OVER, BY_THE_WAY))
        else:
            wanted.append(file)
    top = "" if form else without_top([f.path for f in wanted], assignment, notebooks)
    for file in wanted:
        try:
            found = _destination(file.path.removeprefix(top), form, assignment, notebooks)
            _check(found, file)
        except DestinationError as error:
            results.append(Collected(file.path, "", IGNORED, str(error)))
            continue
        student = known.get(found.account, found.student) if found.account else found.student
        key = student, found.name
        one = (*found.order, int(file.time.timestamp())), file
        other = newest.get(key)
        newest[key] = one if other is None or one[0] > other[0] else other
        if other is not None:
            before = other if newest[key] is one else one
            older.append((key, before))
            results.append(Collected(before[1].path, student, OLDER, A_NEWER_ONE))
    keep = partial(attempts.keep, course, engine, assignment)
    for (student, name), (_, file) in sorted(older, key=lambda each: each[1][0]):
        with suppress(DamagedError):  # of two attempts the newer one counts, and that is read below
            keep(student, name, file.read(), file.time)
    results += [
        _store(course, engine, assignment, student, name, file)
        for (student, name), (_, file) in sorted(newest.items(), key=lambda item: item[0])
    ]
    names = " or ".join(f"{name}.ipynb" for name in notebooks)
    for student in sorted({each.student for each in results if each.what in TAKEN}):
        folder = course.folder("submitted", student, assignment)
        if not any((folder / f"{name}.ipynb").exists() for name in notebooks):
            text = f"nothing to grade: no file is called {names}"
            results.append(Collected("", student, IGNORED, text))
    return results


def _destination(
    path: str, form: re.Pattern[str] | None, assignment: str, notebooks: list[str]
) -> Destination:
    if form is None:
        return destination(path, assignment, notebooks)
    found = form.fullmatch(path)
    if found is None:
        raise DestinationError("it does not match the pattern")
    return Destination(found["student"], found.groupdict().get("file") or f"{notebooks[0]}.ipynb")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        form = re.compile(pattern)
    except re.error as error:
        raise CourseError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
    if "student" not in form.groupindex:
        raise CourseError(f"the pattern {pattern!r} has no group (?P<student>...)")
    return form


def _is_by_the_way(path: str) -> bool:
    """Files that systems and platforms leave behind, and the time that we note ourselves."""
    parts = PurePosixPath(path).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts if part != "..")
    return hidden or parts[-1:] == (TIMESTAMP,)


def _check(found: Destination, file: File) -> None:
    """Names that lead nowhere else, and content that is there."""
    if not NAME.fullmatch(found.student):
        raise DestinationError(
            f"{found.student!r} cannot name a student: 1 to 100 of A-Z a-z 0-9 ._@+-, no sign first"
        )
    if not NAME.fullmatch(found.name):
        raise DestinationError(f"{found.name!r} cannot be the name of a file")
    if file.problem:
        raise DestinationError(file.problem)


def _store(
    course: Course, engine: Engine, assignment: str, student: str, name: str, file: File
) -> Collected:
    try:
        content = file.read()
    except (DamagedError, OSError) as error:
        return Collected(file.path, student, IGNORED, str(error))
    folder = course.folder("submitted", student, assignment)
    target = folder / name
    before = target.read_bytes() if target.is_file() else None
    keep = partial(attempts.keep, course, engine, assignment, student, name)
    if before is not None and before != content:
        # put here by hand, perhaps, and never graded
        keep(before, attempts.handed_in(folder, target))
        if attempts.is_before(engine, assignment, student, name, file.time, before):
            keep(content, file.time)
            return Collected(file.path, student, OLDER, A_NEWER_ONE)
    keep(content, file.time)
    if before != content:
        write_whole(target, content)
    if name.endswith(".ipynb") and (before != content or _is_without_time(target)):
        stamp = file.time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        write_whole(folder / TIMESTAMP, f"{stamp}\n".encode())
    what = COLLECTED if before is None else UNCHANGED if before == content else UPDATED
    return Collected(file.path, student, what)


def _is_without_time(notebook: Path) -> bool:
    """Whether the time beside a notebook is an older one's, or none: collecting may have been
    killed between the two."""
    noted = notebook.with_name(TIMESTAMP)
    return not noted.is_file() or noted.stat().st_mtime_ns < notebook.stat().st_mtime_ns


@contextmanager
def _opened(source: Path, zone: tzinfo | None) -> Iterator[list[File]]:
    if source.is_dir():
        yield _limited(_in_folder(source), source)
        return
    if not zipfile.is_zipfile(source):
        raise CourseError(f"{source} is neither a folder nor a zip file")
    try:
        archive = zipfile.ZipFile(source)
    except UNREADABLE as error:
        raise CourseError(f"{source} is damaged: {error}; download it again") from None
    with archive:
        yield _limited(_in_archive(archive, zone), source)


def _limited(files: Iterator[File], source: Path) -> list[File]:
    found = []
    for file in files:
        found.append(file)
        if len(found) > MOST_FILES:
            raise CourseError(f"{source} has more than {MOST_FILES:,} files")
    return found


def _in_folder(folder: Path) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        state = path.lstat()
        time = datetime.fromtimestamp(state.st_mtime, UTC)
        problem = _too_large(state.st_size)
        inside = path.resolve().is_relative_to(folder.resolve())
        if path.is_symlink() or not path.is_file() or not inside:
            problem = "it is a link"
        yield File(path.relative_to(folder).as_posix(), time, path.read_bytes, problem)


def _too_large(size: int) -> str:
    return f"it is larger than {LARGEST_BYTES >> 20} MiB" if size > LARGEST_BYTES else ""


def _in_archive(archive: zipfile.ZipFile, zone: tzinfo | None) -> Iterator[File]:
    for entry in archive.infolist():
        if entry.filename.endswith("/"):  # is_dir() stumbles over an empty name
            continue
        path = str(PurePosixPath(entry.filename))
        problem = _too_large(entry.file_size)
        if entry.file_size > max(RATIO_FROM, RATIO * entry.compress_size):
            problem = f"{entry.compress_size:,} bytes unpack to {entry.file_size:,}: a zip bomb"
        if (entry.external_attr >> 16) & 0o170000 == 0o120000:
            problem = "it is a link"
        if entry.flag_bits & 1:
            problem = "it is encrypted"
        yield File(path, _time(entry, zone), _reader(archive, entry), problem)


def _reader(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(entry) as stream:
                content = stream.read(LARGEST_BYTES + 1)  # whatever the archive says of its size
        except UNREADABLE as error:
            raise DamagedError(f"it is damaged: {error}") from None
        if len(content) > LARGEST_BYTES:
            raise DamagedError(_too_large(len(content)))
        return content

    return read


def _time(entry: zipfile.ZipInfo, zone: tzinfo | None) -> datetime:
    """When a file was changed: by the second if Info-ZIP's extra field says it, else in a zone."""
    extra = entry.extra
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == EXTENDED_TIME and size >= 5 and len(extra) >= 9 and extra[4] & 1:
            return datetime.fromtimestamp(struct.unpack("<i", extra[5:9])[0], UTC)
        extra = extra[4 + size :]
    try:
        local = datetime(*entry.date_time)
    except ValueError:
        local = datetime(1980, 1, 1)
    return local.astimezone() if zone is None else local.replace(tzinfo=zone)
