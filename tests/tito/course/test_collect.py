"""Submissions from folders and archives; what students name and link is theirs to choose."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tests.tito.course.conftest import ASSIGNMENT, submission
from tito.course import collect as collecting
from tito.course.collect import COLLECTED, IGNORED, UNCHANGED, UPDATED, collect
from tito.course.config import Course, CourseError

NOTEBOOK = f"{ASSIGNMENT}.ipynb"


@pytest.fixture
def course(course_root: Path) -> Course:
    return Course.load(course_root)


def put(folder: Path, name: str, text: str = "{}", time: int = 1_700_000_000) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time, time))
    return path


def taken(course: Course, source: Path, pattern: str | None = None) -> dict[str, str]:
    return {each.file: each.what for each in collect(course, ASSIGNMENT, source, pattern)}


def test_three_ways_to_name_a_student(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    put(box, f"ada/{ASSIGNMENT}/{NOTEBOOK}")
    put(box, f"bob/{NOTEBOOK}")
    put(box, "bob/helper.py", "x = 1")
    put(box, "cleo.ipynb", submission())
    assert set(taken(course, box).values()) == {COLLECTED}
    for student in ("ada", "bob", "cleo"):
        assert (course.root / "submitted" / student / ASSIGNMENT / NOTEBOOK).is_file()
    folder = course.root / "submitted" / "bob" / ASSIGNMENT
    assert (folder / "helper.py").read_text() == "x = 1"
    assert (folder / "timestamp.txt").read_text() == "2023-11-14 22:13:20 UTC\n"


def test_a_pattern_of_the_platforms(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    put(box, "lovelace_ada_1234_attempt_1.ipynb", "1", time=1_700_000_000)
    put(box, "lovelace_ada_1234_attempt_2.ipynb", "2", time=1_700_000_100)
    pattern = r"(?P<student>\w+?_\w+?)_\d+_attempt_\d+\.ipynb"
    assert taken(course, box, pattern) == {"lovelace_ada_1234_attempt_2.ipynb": COLLECTED}
    handed_in = course.root / "submitted" / "lovelace_ada" / ASSIGNMENT / NOTEBOOK
    assert handed_in.read_text() == "2"


def test_again_only_what_is_new(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    put(box, "ada.ipynb", "1")
    assert taken(course, box) == {"ada.ipynb": COLLECTED}
    assert taken(course, box) == {"ada.ipynb": UNCHANGED}
    put(box, "ada.ipynb", "2")
    assert taken(course, box) == {"ada.ipynb": UPDATED}


def test_links_and_odd_names_are_left_out(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    secret = put(tmp_path, "secret.ipynb", "secret")
    box.mkdir()
    (box / "eve.ipynb").symlink_to(secret)
    (box / "mallory").symlink_to(tmp_path, target_is_directory=True)
    put(box, "a b;c.ipynb")
    put(box, "ada/-x")
    assert set(taken(course, box)) == {"eve.ipynb", "a b;c.ipynb", "ada/-x"}
    assert set(taken(course, box).values()) == {IGNORED}
    assert not list((course.root / "submitted").rglob("*.ipynb"))


def test_what_systems_leave_behind_is_passed_over(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    for name in (".DS_Store", ".ipynb_checkpoints/x.ipynb", "timestamp.txt", NOTEBOOK):
        put(box, f"ada/{name}")
    assert taken(course, box) == {f"ada/{NOTEBOOK}": COLLECTED}


def test_an_archive_cannot_write_elsewhere(course: Course, tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("ada.ipynb", "1")
        packed.writestr(f"../../{NOTEBOOK}", "out")
        packed.writestr(f"/etc/{NOTEBOOK}", "out")
        packed.writestr(f"bob/../../{NOTEBOOK}", "out")
        link = zipfile.ZipInfo("eve.ipynb")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/passwd")
    found = taken(course, archive)
    assert found.pop("ada.ipynb") == COLLECTED
    assert set(found.values()) <= {IGNORED}
    assert not list(tmp_path.parent.glob(NOTEBOOK))
    assert len(list(tmp_path.rglob("*.ipynb"))) == 3  # source, release, and Ada's


def test_what_is_too_large_is_left_out(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "LARGEST_BYTES", 10)
    box = tmp_path / "box"
    put(box, "ada.ipynb", "x" * 11)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("bob.ipynb", "x" * 1000)
    assert taken(course, box) == {"ada.ipynb": IGNORED}
    assert taken(course, tmp_path / "all.zip") == {"bob.ipynb": IGNORED}


def test_mistakes_of_the_instructor_are_told(course: Course, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="is not generated: tito course generate other"):
        collect(course, "other", tmp_path)
    with pytest.raises(CourseError, match="neither a folder nor a zip file"):
        collect(course, ASSIGNMENT, tmp_path / "nothing")
    with pytest.raises(CourseError, match="no group"):
        collect(course, ASSIGNMENT, tmp_path, r"\w+")
    with pytest.raises(CourseError, match="not a regular expression"):
        collect(course, ASSIGNMENT, tmp_path, "(")
