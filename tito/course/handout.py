"""Hand out an assignment: a folder, and a zip file of it for a learning platform."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from tito.course.config import Course, CourseError

NEVER = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")


def release(course: Course, assignment: str, to: Path) -> tuple[Path, Path]:
    """Copy what students get to a folder; the folder and the zip file.

    Raises:
        CourseError: it is not generated, or something in it is not for students.
    """
    source = course.folder("release", ".", assignment)
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise course.not_generated(assignment)
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [mark for mark in NEVER if path.suffix == ".ipynb" and mark in text]
        if found:
            raise CourseError(f"{path} is not for students: it has {found[0]!r} in it")
    folder, archive = to / assignment, to / f"{assignment}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            name = path.relative_to(source)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
            packed.write(path, f"{assignment}/{name}")
    return folder, archive
