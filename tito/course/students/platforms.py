"""The learning platforms whose tables are known."""

from __future__ import annotations

from tito.course.config import CourseError
from tito.course.students.canvas import Canvas
from tito.course.students.columns import Platform
from tito.course.students.gradescope import Gradescope
from tito.course.students.moodle import Moodle
from tito.course.students.sheet import Sheet

PLATFORMS: dict[str, Platform] = {p.name: p for p in (Canvas(), Moodle(), Gradescope())}


def platform_of(sheet: Sheet, name: str) -> Platform:
    """The platform whose table it is.

    Raises:
        CourseError: it is none's.
    """
    for platform in PLATFORMS.values():
        if platform.knows(sheet):
            return platform
    raise CourseError(
        f"{name} is no table of Canvas (Student, ID, Section), Moodle (Identifier, Grade) or "
        f"Gradescope (First Name, SID, Email): its columns are {', '.join(sheet.header[:6])}; "
        "columns have to be in English"
    )
