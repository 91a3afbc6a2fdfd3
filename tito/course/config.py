"""A course directory of nbgrader, and its settings: all in the one file that nbgrader reads too."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from tito.course.exam.job import Budget
from tito.course.students.policy import Policy
from tito.scripts import ROOT

CONFIG = "nbgrader_config.py"
NO_NAME = "default_course"  # nbgrader's, for a course without a name
STEPS = ("source", "release", "submitted", "autograded", "feedback")
LOG = logging.getLogger("tito.course")
TEMPLATE = '''"""Settings of this course, for `tito course` and for nbgrader."""

import os

c = get_config()
c.CourseDirectory.root = os.path.dirname(os.path.abspath(__file__))
c.CourseDirectory.course_id = {course_id!r}
{database}
c.ClearSolutions.code_stub = {{"python": {stub!r}}}

# What one submission may use. The sandbox holds it to that.
c.TinyTorch.cell_seconds = {budget.cell_seconds}
c.TinyTorch.compile_seconds = {budget.compile_seconds}  # numba's own, not counted in the cells
c.TinyTorch.seconds = {budget.seconds}
c.TinyTorch.memory_bytes = {budget.memory_bytes}
c.TinyTorch.processes = {budget.processes}
# For one assignment only: c.TinyTorch.assignments = {{"13_kernels": {{"cell_seconds": 60}}}}

# When it is due, and what lateness costs: a part of the assignment's points for each day begun.
# c.TinyTorch.deadlines = {{"02_tensor": "2026-10-01 23:59 Europe/Berlin"}}
# c.TinyTorch.late = {{"free_days": 3, "penalty_per_day": 0.1, "most_days": 7, "grace_minutes": 10}}
# What a learning platform calls it: c.TinyTorch.titles = {{"02_tensor": "Homework 2"}}
'''
SQLITE = '# c.CourseDirectory.db_url = "postgresql+psycopg://user@host/gradebook"'


@contextmanager
def quiet() -> Iterator[Callable[[], str]]:
    """Keep nbgrader, and what it depends on, from printing; its last errors can be asked for.

    Its warnings are of the age of other libraries; nothing here can change that.
    """
    errors: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage().strip().splitlines()[-1])

    logger = logging.getLogger("traitlets")
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [Keep(logging.ERROR)], False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield lambda: "; ".join(errors[-2:])
    finally:
        logger.handlers, logger.propagate = handlers, propagate


class CourseError(Exception):
    """Something about the course is not as it has to be; the text says what to do."""


class GradebookError(CourseError):
    """The database of the gradebook does not answer: run the command again when it does."""


@dataclass(frozen=True)
class Course:
    """A course directory.

    Attributes:
        config: all that is in nbgrader_config.py.
        budgets: of assignments that have one of their own.
        policy: deadlines, and what lateness costs.
        titles: what learning platforms call assignments.
    """

    root: Path
    config: Any
    budget: Budget
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    titles: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path) -> Course:
        """The course in a folder.

        Raises:
            CourseError: there is none, or its settings cannot be read.
        """
        from traitlets.config.loader import PyFileConfigLoader

        root = root.resolve()
        if not (root / CONFIG).is_file():
            raise CourseError(f"there is no course in {root}: tito course init {root}")
        try:
            config = PyFileConfigLoader(CONFIG, path=str(root)).load_config()
            settings = dict(config.get("TinyTorch", {}))
            if not config.CourseDirectory.get("course_id"):
                config.CourseDirectory.course_id = NO_NAME  # nbgrader's own tables refer to it
            own = dict(settings.pop("assignments", {}))
            policy = Policy.read(settings.pop("deadlines", {}), settings.pop("late", {}))
            titles = dict(settings.pop("titles", {}))
            budget = _budget(settings)
            budgets = {name: _budget({**settings, **values}) for name, values in own.items()}
            _check_assignments(root, [*policy.deadlines, *budgets, *titles])
        except Exception as error:  # it is a program of the instructor's
            raise CourseError(f"{root / CONFIG}: {type(error).__name__}: {error}") from None
        return cls(root, config, budget, budgets, policy, titles)

    def budget_for(self, assignment: str) -> Budget:
        """What a submission for an assignment may use."""
        return self.budgets.get(assignment, self.budget)

    def directory(self, assignment: str = "", student: str = "*", notebook: str = "*") -> Any:
        """nbgrader's view of the course, with an assignment chosen."""
        from nbgrader.coursedir import CourseDirectory

        directory = CourseDirectory(config=self.config)
        directory.root = str(self.root)
        directory.assignment_id = assignment
        directory.student_id = student
        directory.notebook_id = notebook
        return directory

    def folder(self, step: str, student: str, assignment: str) -> Path:
        """Where nbgrader keeps a step of an assignment; the student of the first steps is "."."""
        return Path(self.directory().format_path(step, student, assignment))

    def require(self, assignment: str) -> None:
        """Raise CourseError if there is no such assignment: a typing error would go unnoticed."""
        if not self.folder("source", ".", assignment).is_dir():
            raise self.not_generated(assignment)

    def not_generated(self, assignment: str) -> CourseError:
        """What to say of an assignment that is not there; `generate 02` makes one that has another
        name, 02_tensor."""
        for folder in sorted(self.root.glob("source/*_*/")):
            if assignment in folder.name.split("_", 1):
                return CourseError(f"there is no assignment {assignment!r}: say {folder.name}")
        return CourseError(
            f"the assignment {assignment!r} is not generated: tito course generate {assignment}"
        )

    @property
    def db_url(self) -> str:
        return str(self.directory().db_url)

    def gradebook(self) -> Any:
        """nbgrader's gradebook, for a `with`.

        Raises:
            GradebookError: the database does not answer.
        """
        import sqlalchemy
        from nbgrader.api import Gradebook

        directory = self.directory()
        check_foreign_keys()
        try:
            with quiet():
                return Gradebook(directory.db_url, directory.course_id)
        except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
            said = str(error).splitlines()[0]
            raise GradebookError(f"the gradebook does not answer: {said}") from error


def _check_assignments(root: Path, names: Iterable[str]) -> None:
    """Refuse a setting for an assignment that is a lesson's by another name, "tensor" or
    "02_tenzor": it would never be used. One of your own may be there later.

    Raises:
        CourseError: there is such a name.
    """
    lessons = [path.parent.name for path in (ROOT / "modules").glob("*/lesson.md")]
    there = {*lessons, *(path.name for path in root.glob("source/*"))}
    for name in set(names) - there:
        same = [lesson for lesson in lessons if name.lower() in lesson.split("_", 1)]
        if meant := same or get_close_matches(name, lessons, 1, 0.85):
            raise CourseError(f"there is no assignment {name!r}: say {meant[0]}")


@cache
def check_foreign_keys() -> None:
    """SQLite holds references between tables only if it is asked to, connection by connection."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def ask(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _python_on_path() -> Iterator[None]:
    """For a new database nbgrader calls the program alembic, which lies beside our Python."""
    before = os.environ.get("PATH")
    here = str(Path(sys.executable).parent)
    os.environ["PATH"] = here if before is None else f"{here}{os.pathsep}{before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def _budget(settings: Mapping[str, Any]) -> Budget:
    known = {each.name for each in fields(Budget)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise CourseError(f"no such setting: TinyTorch.{unknown[0]}; known: {sorted(known)}")
    return Budget(**settings)


def create(root: Path, *, course_id: str = "", db_url: str = "") -> Course:
    """Make a course directory and its gradebook.

    Raises:
        CourseError: there is one already, or the database does not answer.
    """
    from tito.lessons.exercise import STUB

    path = root / CONFIG
    if path.exists():
        raise CourseError(f"there is a course in {root.resolve()} already: {path} exists")
    root.mkdir(parents=True, exist_ok=True)
    database = f"c.CourseDirectory.db_url = {db_url!r}" if db_url else SQLITE
    text = TEMPLATE.format(
        course_id=course_id or NO_NAME, database=database, stub=STUB, budget=Budget()
    )
    path.touch(mode=0o600)  # the address of a database may hold a password
    path.write_text(text, encoding="utf-8")
    course = Course.load(root)
    try:
        from tito.course.tables import database as tables

        with _python_on_path(), course.gradebook(), tables(course):
            pass
    except CourseError:
        path.unlink()
        raise
    for step in STEPS:
        (course.root / step).mkdir(exist_ok=True)
    return course
