"""Every command of docs/instructor.md, typed in the order of the page, in a course of three."""

from __future__ import annotations

import csv
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.pages import commands_of
from tests.system_tools import needs_sandbox
from tests.tito.course.students.test_roster import CANVAS, GRADESCOPE, MOODLE
from tito.cli import app
from tito.lessons.build import Course as Lessons
from tito.lessons.notebook import notebook_text
from tito.scripts import ROOT

pytestmark = [pytest.mark.slow, needs_sandbox]
PAGE = ROOT / "docs" / "instructor.md"
ELSEWHERE = {"formgrader": "tests/tito/course/test_formgrader.py starts it"}
SETTINGS = """
c.TinyTorch.deadlines = {"02_tensor": "2026-10-01 23:59 Europe/Berlin"}
c.TinyTorch.late = {"free_days": 3, "penalty_per_day": 0.1, "most_days": 7, "grace_minutes": 10}
"""


def files(folder: Path) -> None:
    """What platforms have given the instructor: three rosters, and an archive of two solutions."""
    lessons = Lessons.load(ROOT)
    lesson = lessons.find("tensor")
    assert lesson is not None
    points = sum(test.points for test in lesson.tests)
    canvas = CANVAS.replace("Small", "02_tensor").replace(",10.00,", ",,").replace(",7.00,", ",,")
    canvas = canvas.replace("jdoe", "jane@example.edu")  # one person, whatever the platform
    (folder / "canvas.csv").write_text(canvas)
    (folder / "worksheet.csv").write_text(MOODLE.replace("10.00", f"{points:.2f}"))
    (folder / "gradescope.csv").write_text(GRADESCOPE)
    solved = notebook_text(lessons.cells(lesson), student=False)
    with zipfile.ZipFile(folder / "all.zip", "w") as packed:
        packed.writestr("ada.ipynb", solved)
        packed.writestr("doejane_4711_90210_02_tensor.ipynb", solved)


def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shown = [words for words in commands_of(PAGE) if words[0] in ("tito", "cd")]
    assert len(shown) > 20
    for words in shown:
        words = [os.path.expanduser(word) for word in words]
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            files(Path.cwd())
            with Path("nbgrader_config.py").open("a", encoding="utf-8") as settings:
                settings.write(SETTINGS)
        elif words[2] not in ELSEWHERE:
            if words[2:4] == ["request", "answer"]:
                answered(Path(words[-1]))
            result = CliRunner().invoke(app, words[1:])
            # what a platform has otherwise is listed with exit code 1: here nothing is
            assert result.exit_code == 0, f"{' '.join(words)}: {result.output} {result.exception}"
    page = (tmp_path / "cs101" / "feedback" / "ada" / "02_tensor" / "02_tensor.html").read_text()
    assert "02_tensor" in page
    shutil.rmtree(tmp_path / "cs101")


def answered(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0]["answer"] = "you are right"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
