"""A student's product of lesson 13 becomes an entry, as lesson 14 says, and is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_student import ROOT, Student
from tests.integration.test_term import answers
from tito.compete.entry import read_entry
from tito.lessons.build import Course
from tito.lessons.model import Code

MEASURED, NOISY = 0, 3


def entry_cell(course: Course) -> str:
    """The cell of lesson 14 that writes the entry's file."""
    lesson = course.find("benchmarking")
    assert lesson is not None
    (cell,) = [
        b.source for b in lesson.blocks if isinstance(b, Code) and "def entry_of" in b.source
    ]
    return cell


@pytest.mark.exhaustive  # that entries are measured, tests/tito/compete checks
def test_a_product_of_ones_own_is_entered(tmp_path: Path) -> None:
    course = Course.load(ROOT)
    student = Student(tmp_path / "mine")
    student.tito("init", str(student.root), cwd=tmp_path)
    for slug in ("kernels", "benchmarking"):
        lesson = course.find(slug)
        assert lesson is not None
        student.tito("module", "start", f"{lesson.number:02}")
        student.write(lesson, answers(course, lesson)[0])
        done = student.tito("module", "complete", f"{lesson.number:02}", timeout=900)
        assert f"it now powers: {lesson.makes_possible}" in done
    places = {"PYTHONPATH": os.pathsep.join([str(student.root), str(ROOT)])}
    written = subprocess.run(
        [sys.executable, "-c", entry_cell(course)], cwd=student.root, env=os.environ | places,
        capture_output=True, text=True, timeout=900, check=True,
    ).stdout  # fmt: skip
    path = Path(written.split()[0])
    entry = read_entry(path)
    assert entry.class_name == "Mine" and entry.event == "matmul"
    assert "b_block[:] = 0" in entry.text, "the alternative's line, which ours has not"
    entry.check_rules("kernel")
    command = [
        sys.executable,
        "-m",
        "tito",
        "compete",
        "run",
        str(path),
        "--launches",
        "2",
        "--json",
    ]
    found = subprocess.run(
        command, cwd=student.root, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert found.returncode in (MEASURED, NOISY), found.stdout + found.stderr
    scores = {row["name"]: row["ratio"] for row in json.loads(found.stdout)["scores"]}
    assert 0.02 < scores["entry"] < 5
