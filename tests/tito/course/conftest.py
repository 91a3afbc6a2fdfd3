"""A small course of our own: two exercises, three tests, one of them hidden."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tito.course.config import CONFIG, Course, quiet
from tito.course.states import GRADED, State, States
from tito.course.tables import database

ASSIGNMENT = "small"
DOUBLE = "def double(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION\n"
CLAMP = "def clamp(x):\n    ### BEGIN SOLUTION\n    return np.maximum(x, 0)\n    ### END SOLUTION\n"
TESTS = {
    "double-values": "from tito.checks import equal\nequal(double(4), 8)\nequal(double('a'), 'aa')",
    "clamp-values": (
        "from tito.checks import close, raises\n"
        "x = np.array([1.0, -2.0])\n"
        "close(clamp(x), np.maximum(x, 0), hint='nothing below zero')\n"
        "raises(TypeError, clamp, None)"
    ),
    "clamp-hidden": (
        "### BEGIN HIDDEN TESTS\nfrom tito.checks import equal\n"
        "equal(clamp(np.array([-41])), np.array([0]))\n### END HIDDEN TESTS"
    ),
}
POINTS = {"double-values": 2, "clamp-values": 3, "clamp-hidden": 5}


def cell(kind: str, name: str, source: str) -> dict[str, Any]:
    """A code cell with nbgrader's metadata."""
    metadata: dict[str, Any] = {
        "cell_type": "code", "grade_id": name, "schema_version": 3, "task": False,
        "grade": kind == "test", "solution": kind == "solution", "locked": kind != "solution",
    }  # fmt: skip
    if kind == "test":
        metadata["points"] = POINTS[name]
    return {
        "cell_type": "code", "id": name, "metadata": {"nbgrader": metadata}, "source": source,
        "outputs": [], "execution_count": None,
    }  # fmt: skip


def code(source: str, name: str = "own") -> dict[str, Any]:
    """A code cell that nbgrader does not know."""
    made = cell("given", name, source)
    made["metadata"] = {}
    return made


def instructor_notebook() -> dict[str, Any]:
    tests = {name: cell("test", name, source) for name, source in TESTS.items()}
    tests["clamp-hidden"]["metadata"]["tinytorch"] = {"checks": "whole numbers"}
    return {
        "cells": [
            cell("given", "imports", "import numpy as np"),
            cell("solution", "double", DOUBLE),
            tests["double-values"],
            code("print('twice two is', double(2))", "demo"),
            cell("solution", "clamp", CLAMP),
            tests["clamp-values"],
            tests["clamp-hidden"],
        ],
        "metadata": {"kernelspec": {"display_name": "P", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


Edit = Callable[[list[dict[str, Any]]], object]


def submission(edit: Edit | None = None) -> str:
    """The instructor's notebook as a student hands it in, after an edit of its cells."""
    notebook = deepcopy(instructor_notebook())
    if edit is not None:
        edit(notebook["cells"])
    return json.dumps(notebook)


def write(name: str, source: str) -> Edit:
    """Put a source into the cell of this name."""

    def edit(cells: list[dict[str, Any]]) -> None:
        next(c for c in cells if c["id"] == name)["source"] = source

    return edit


@pytest.fixture(scope="session")
def model_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course directory with the assignment generated: nbgrader takes seconds for a new one."""
    from tito.course.config import create
    from tito.course.generate import generate

    root = tmp_path_factory.mktemp("model") / "course"
    course = create(root)
    folder = root / "source" / ASSIGNMENT
    folder.mkdir()
    (folder / f"{ASSIGNMENT}.ipynb").write_text(json.dumps(instructor_notebook()), encoding="utf-8")
    generate(course, ASSIGNMENT, check=False)
    return root


@pytest.fixture
def course_root(model_course: Path, tmp_path: Path) -> Path:
    """A course directory of the test's own, with the assignment generated."""
    return Path(shutil.copytree(model_course, tmp_path / "course"))


@pytest.fixture
def hand_in(course_root: Path) -> Callable[..., Path]:
    """Put a notebook where `collect` would."""

    def put(student: str, text: str, **files: str) -> Path:
        folder = course_root / "submitted" / student / ASSIGNMENT
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{ASSIGNMENT}.ipynb"
        path.write_text(text, encoding="utf-8")
        for name, content in files.items():
            (folder / name.replace("_py", ".py")).write_text(content, encoding="utf-8")
        return path

    return put


@pytest.fixture
def course(course_root: Path) -> Course:
    return Course.load(course_root)


def settings(course: Course, text: str) -> Course:
    """The course with more lines in its settings."""
    path = course.root / CONFIG
    path.write_text(path.read_text(encoding="utf-8") + text + "\n", encoding="utf-8")
    return Course.load(course.root)


def give(course: Course, student: str, *, submitted: str, **points: float) -> None:
    """Put a grade into the gradebook, as `grade` would; tests not named get nothing.

    Args:
        submitted: in UTC.
    """
    with quiet(), database(course) as engine, course.gradebook() as gradebook:
        gradebook.update_or_create_student(student)
        gradebook.update_or_create_submission(
            ASSIGNMENT, student, timestamp=datetime.fromisoformat(submitted)
        )
        for grade in gradebook.find_submission_notebook(ASSIGNMENT, ASSIGNMENT, student).grades:
            grade.auto_score = points.get(grade.cell.name.replace("-", "_"), 0)
            grade.needs_manual_grade = False
        gradebook.db.commit()
        States(engine).put(State(ASSIGNMENT, student, ASSIGNMENT, GRADED, "digest"))
