"""Collect submissions from a folder or a zip file, as a learning platform gives them out.

What students send is data: links are left out, so are names that lead elsewhere, and sizes end
somewhere.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from tito.course.config import Course, CourseError

LARGEST_BYTES = 30 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
TIMESTAMP = "timestamp.txt"
COLLECTED, UPDATED, UNCHANGED, IGNORED = "collected", "updated", "unchanged", "ignored"


@dataclass(frozen=True)
class File:
    """Something that was sent: its path below the folder or in the archive."""

    path: str
    time: datetime
    size: int
    content: bytes | None  # None: a link, or too large


@dataclass(frozen=True)
class Collected:
    """What became of a file."""

    file: str
    student: str
    what: str
    detail: str = ""


def collect(
    course: Course, assignment: str, source: Path, pattern: str | None = None
) -> list[Collected]:
    """Put the submissions for an assignment where nbgrader looks for them.

    Args:
        source: a folder or a zip file.
        pattern: how a file's path names the student: a regular expression with a group `student`.
            By default STUDENT/ASSIGNMENT/NOTEBOOK.ipynb, STUDENT/NOTEBOOK.ipynb, STUDENT.ipynb.

    Raises:
        CourseError: the assignment, the folder or the pattern is not as it has to be.
    """
    notebooks = [p.stem for p in sorted(course.folder("source", ".", assignment).glob("*.ipynb"))]
    if not notebooks:
        raise CourseError(
            f"the assignment {assignment!r} is not generated: tito course generate {assignment}"
        )
    forms = [_compiled(pattern)] if pattern else _default_forms(assignment, notebooks)
    newest: dict[tuple[str, str], File] = {}
    results = []
    with _opened(source) as files:
        for file in files:
            found = next((m for form in forms if (m := form.fullmatch(file.path))), None)
            if found is None or _is_by_the_way(file.path):
                continue
            student = found["student"]
            name = found.groupdict().get("file") or f"{notebooks[0]}.ipynb"
            problem = _problem(student, name, file)
            if problem:
                results.append(Collected(file.path, student, IGNORED, problem))
            elif (student, name) not in newest or file.time > newest[student, name].time:
                newest[student, name] = file
        results += [
            _store(course, assignment, student, name, file)
            for (student, name), file in sorted(newest.items())
        ]
    return results


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        form = re.compile(pattern)
    except re.error as error:
        raise CourseError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
    if "student" not in form.groupindex:
        raise CourseError(f"the pattern {pattern!r} has no group (?P<student>...)")
    return form


def _default_forms(assignment: str, notebooks: list[str]) -> list[re.Pattern[str]]:
    """A student's folder, with whatever files are in it, or a notebook with a student's name."""
    folder = rf"(?P<student>[^/]+)/(?:{re.escape(assignment)}/)?(?P<file>[^/]+)"
    return [re.compile(folder), re.compile(r"(?P<student>[^/]+)\.ipynb")]


def _is_by_the_way(path: str) -> bool:
    """Files that systems and platforms leave behind, and the time that we note ourselves."""
    parts = PurePosixPath(path).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts if part != "..")
    return hidden or parts[-1] == TIMESTAMP


def _problem(student: str, name: str, file: File) -> str:
    if not NAME.fullmatch(student):
        return f"{student!r} cannot be the name of a student: letters, digits and ._@+- only"
    if not NAME.fullmatch(name):
        return f"{name!r} cannot be the name of a file"
    if file.content is None:
        large = file.size > LARGEST_BYTES
        return f"it is larger than {LARGEST_BYTES >> 20} MiB" if large else "it is a link"
    return ""


def _store(course: Course, assignment: str, student: str, name: str, file: File) -> Collected:
    assert file.content is not None
    folder = course.folder("submitted", student, assignment)
    target = folder / name
    before = target.read_bytes() if target.is_file() else None
    if before == file.content:
        return Collected(file.path, student, UNCHANGED)
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(file.content)
    stamp = file.time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if name.endswith(".ipynb"):
        (folder / TIMESTAMP).write_text(stamp + "\n", encoding="utf-8")
    return Collected(file.path, student, COLLECTED if before is None else UPDATED)


@contextmanager
def _opened(source: Path) -> Iterator[Iterator[File]]:
    if source.is_dir():
        yield _in_folder(source)
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            yield _in_archive(archive)
    else:
        raise CourseError(f"{source} is neither a folder nor a zip file")


def _in_folder(folder: Path) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        state = path.lstat()
        time = datetime.fromtimestamp(state.st_mtime, UTC)
        plain = path.is_file() and not path.is_symlink() and state.st_size <= LARGEST_BYTES
        inside = path.resolve().is_relative_to(folder.resolve())
        content = path.read_bytes() if plain and inside else None
        yield File(path.relative_to(folder).as_posix(), time, state.st_size, content)


def _in_archive(archive: zipfile.ZipFile) -> Iterator[File]:
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        time = datetime(*entry.date_time, tzinfo=UTC)
        path = str(PurePosixPath(entry.filename))
        linked = (entry.external_attr >> 16) & 0o170000 == 0o120000
        with archive.open(entry) as stream:
            content = stream.read(LARGEST_BYTES + 1)  # whatever the archive says of its size
        plain = not linked and len(content) <= LARGEST_BYTES
        yield File(path, time, len(content), content if plain else None)
