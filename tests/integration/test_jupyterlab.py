"""The notebooks in real JupyterLab, as a student uses them: in a browser, with the mouse."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.integration.test_student import ROOT, Student, right_answers
from tests.system_tools import require_tool
from tito.lessons.build import Course
from tito.lessons.model import Lesson

pytestmark = pytest.mark.slow
SECONDS = 120  # for whatever is waited for: a machine may be busy
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SERVER = {"ServerApp": {"ip": "127.0.0.1", "port": 0, "open_browser": False, "allow_root": True}}
SETTINGS = {  # all cells are in the page, seen or not; nothing is saved but by the student
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false"},
}
WHERE = "import tinytorch\n\nprint(tinytorch.__file__)"


@pytest.fixture(scope="module")
def course() -> Course:
    return Course.load(ROOT)


@pytest.fixture
def lesson(course: Course) -> Lesson:
    found = course.find("tensor")
    assert found is not None
    return found


@pytest.fixture
def student(tmp_path: Path) -> Student:
    student = Student(tmp_path / "mine")
    student.tito("init", str(student.root), cwd=tmp_path)
    return student


def test_the_solved_lesson_runs_without_an_error(
    student: Student, course: Course, lesson: Lesson, tmp_path: Path
) -> None:
    path = student.root / f"{lesson.folder}.ipynb"
    student.write(lesson, right_answers(course, lesson))
    append_code(path, WHERE)
    with jupyterlab(student, lesson, tmp_path) as url, browser(tmp_path) as page:
        notebook = Notebook.open(page, url, path.name)
        notebook.run_all()
        assert notebook.prompts() == [f"[{i}]:" for i in range(1, len(code_cells(path)) + 1)]
        assert errors(notebook.outputs).count() == 0
        expect(notebook.outputs.last).to_have_text(str(student.root / "tinytorch/__init__.py"))
        notebook.save()

    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [cell for cell in cells if failures(cell)]


def test_the_unsolved_lesson_stops_at_its_first_test(
    student: Student, lesson: Lesson, tmp_path: Path
) -> None:
    path = student.root / f"{lesson.folder}.ipynb"
    with jupyterlab(student, lesson, tmp_path) as url, browser(tmp_path) as page:
        notebook = Notebook.open(page, url, path.name)
        notebook.run_all()
        notebook.save()
        raise SystemExit(repr((notebook.prompts(), errors(notebook.outputs).count(), errors(notebook.outputs).all_text_contents())))
