"""Submissions from folders and archives; what students name and link is theirs to choose."""

from __future__ import annotations

import os
import struct
import zipfile
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.tito.course.conftest import ASSIGNMENT, submission
from tito.course import collect as collecting
from tito.course.collect import (
    COLLECTED,
    IGNORED,
    OLDER,
    PASSED_OVER,
    UNCHANGED,
    UPDATED,
    collect,
)
from tito.course.config import Course, CourseError
from tito.course.tables import ATTEMPT, database

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
    assert taken(course, box, pattern) == {
        "lovelace_ada_1234_attempt_1.ipynb": OLDER,
        "lovelace_ada_1234_attempt_2.ipynb": COLLECTED,
    }
    handed_in = course.root / "submitted" / "lovelace_ada" / ASSIGNMENT / NOTEBOOK
    assert handed_in.read_text() == "2"


def test_who_sent_no_notebook_of_the_assignment_is_named(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    put(box, f"ada/{ASSIGNMENT}/final.ipynb")
    put(box, f"bob/{NOTEBOOK}")
    found = collect(course, ASSIGNMENT, box)
    assert [(each.student, each.detail) for each in found if each.what == IGNORED] == [
        ("ada", f"nothing to grade: no file is called {NOTEBOOK}")
    ]


def test_again_only_what_is_new(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box"
    put(box, "ada.ipynb", "1")
    assert taken(course, box) == {"ada.ipynb": COLLECTED}
    assert taken(course, box) == {"ada.ipynb": UNCHANGED}
    put(box, "ada.ipynb", "2")
    assert taken(course, box) == {"ada.ipynb": UPDATED}


def test_an_older_archive_replaces_nothing(course: Course, tmp_path: Path) -> None:
    """It is kept as an attempt; so is it, once, when it is collected again."""
    new, old = tmp_path / "new", tmp_path / "old"
    put(new, "ada.ipynb", "2", time=1_700_000_100)
    put(old, "ada.ipynb", "1", time=1_700_000_000)
    assert taken(course, new) == {"ada.ipynb": COLLECTED}
    for _ in range(2):
        assert taken(course, old) == {"ada.ipynb": OLDER}
        handed_in = course.folder("submitted", "ada", ASSIGNMENT) / NOTEBOOK
        assert handed_in.read_text() == "2"
        assert handed_in.with_name(collecting.TIMESTAMP).read_text() == "2023-11-14 22:15:00 UTC\n"
        with database(course) as engine, engine.connect() as connection:
            rows = connection.execute(select(ATTEMPT.c.number, ATTEMPT.c.submitted)).all()
        assert sorted(rows) == [(1, "2023-11-14T22:15:00+00:00"), (2, "2023-11-14T22:13:20+00:00")]
    put(old, "ada.ipynb", "1", time=1_700_000_200)  # the student went back to it
    assert taken(course, old) == {"ada.ipynb": UPDATED}
    assert handed_in.read_text() == "1"


@pytest.mark.parametrize("first", [True, False])
def test_killed_between_a_notebook_and_its_time(
    course: Course, tmp_path: Path, first: bool
) -> None:
    """The time is that of the notebook which is there, and no attempt is there twice."""
    box = tmp_path / "box"
    noted = course.folder("submitted", "ada", ASSIGNMENT) / collecting.TIMESTAMP
    if not first:
        put(box, "ada.ipynb", "1")
        collect(course, ASSIGNMENT, box)
        old = noted.read_text(), noted.stat().st_mtime_ns
    put(box, "ada.ipynb", "2", time=1_700_086_400)
    collect(course, ASSIGNMENT, box)
    noted.unlink()
    if not first:  # as it was
        noted.write_text(old[0])
        os.utime(noted, ns=(old[1], old[1]))
    assert taken(course, box) == {"ada.ipynb": UNCHANGED}
    assert noted.read_text() == "2023-11-15 22:13:20 UTC\n"
    with database(course) as engine, engine.connect() as connection:
        assert len(connection.execute(select(ATTEMPT)).all()) == (1 if first else 2)


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
    found = taken(course, box)
    assert found.pop(f"ada/{NOTEBOOK}") == COLLECTED
    assert list(found.values()) == [PASSED_OVER] * 3


def packed(path: Path, names: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in names.items():
            archive.writestr(
                zipfile.ZipInfo(name, (2024, 1, 2, 3, 4, 6)), text, zipfile.ZIP_DEFLATED
            )
    return path


def handed_in(course: Course) -> dict[str, str]:
    found = (course.root / "submitted").glob(f"*/{ASSIGNMENT}/*.ipynb")
    return {f"{path.parent.parent.name}/{path.name}": path.read_text("utf-8") for path in found}


def test_an_archive_of_canvas(course: Course, tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "submissions.zip",
        {
            "doejane_101_9001_small.ipynb": "first",
            "doejane_101_9001_small-2.ipynb": "third",
            "doejane_101_9001_small-1.ipynb": "second",
            "roe_LATE_102_9002_my homework (1).ipynb": "late",
            "roe_LATE_102_9002_helper.py": "x = 1",
            "roe_LATE_102_9002_a b.txt": "odd",
        },
    )
    found = taken(course, archive)
    assert handed_in(course) == {"doejane_101/small.ipynb": "third", "roe_102/small.ipynb": "late"}
    assert found["doejane_101_9001_small-1.ipynb"] == OLDER
    assert found["roe_LATE_102_9002_helper.py"] == COLLECTED
    assert found["roe_LATE_102_9002_a b.txt"] == IGNORED


def test_an_archive_of_moodle(course: Course, tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "all.zip",
        {
            "Jörg de la Cruz_77_assignsubmission_file_/small.ipynb": "in a folder",
            "Ada Lovelace_78_assignsubmission_file_small.ipynb": "flat",
            "\u9648_79_assignsubmission_file_/small.ipynb": "no letters of ASCII",
            "Ada Lovelace_78_assignsubmission_onlinetext_onlinetext.html": "<p>",
        },
    )
    found = taken(course, archive)
    assert handed_in(course) == {
        "Jorg-de-la-Cruz_77/small.ipynb": "in a folder",
        "Ada-Lovelace_78/small.ipynb": "flat",
        "user_79/small.ipynb": "no letters of ASCII",
    }
    assert list(found.values()).count(IGNORED) == 1


@pytest.mark.parametrize(
    ("names", "students"),
    [
        (["top/ada.ipynb", "top/bob.ipynb"], {"ada", "bob"}),
        (["top/ada/small.ipynb", "top/bob/small.ipynb"], {"ada", "bob"}),
        (["top/ada/small/small.ipynb"], {"ada"}),
        (["ada/small/small.ipynb", "ada/small/x.py"], {"ada"}),
        (["ada/small.ipynb", "ada/x.py"], {"ada"}),
        (["top/doe_1_2_small.ipynb", "top/roe_3_4_small.ipynb"], {"doe_1", "roe_3"}),
    ],
)
def test_a_folder_around_everything_is_no_student(
    course: Course, tmp_path: Path, names: list[str], students: set[str]
) -> None:
    found = taken(course, packed(tmp_path / "all.zip", dict.fromkeys(names, "1")))
    assert set(found.values()) == {COLLECTED}
    assert {name.partition("/")[0] for name in handed_in(course)} == students


def test_what_is_not_taken_is_listed_with_the_reason(course: Course, tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "all.zip",
        {
            "ada.ipynb": "1",
            "notes.txt": "no student",
            f"{ASSIGNMENT}.ipynb": "no student either",
            "bob/deep/er/small.ipynb": "too deep",
            "zoë.ipynb": "letters of ASCII",
            "eve.ipynb": "x" * 10_000,
            "dan.ipynb": "damaged " + "".join(map(str, range(2000))),
        },
    )
    data = bytearray(archive.read_bytes())
    at = data.index(b"dan.ipynb") + len(b"dan.ipynb")
    data[at + 20 : at + 40] = bytes(20)
    archive.write_bytes(data)
    reasons = {c.file: c.detail for c in collect(course, ASSIGNMENT, archive) if c.what == IGNORED}
    assert set(handed_in(course)) == {"ada/small.ipynb", "eve/small.ipynb"}
    assert reasons.pop("dan.ipynb").startswith("it is damaged: ")
    assert reasons == {
        "notes.txt": "it names no student: STUDENT/FILE or STUDENT.ipynb",
        f"{ASSIGNMENT}.ipynb": "it names no student, only the notebook",
        "bob/deep/er/small.ipynb": "it is too deep: STUDENT/ASSIGNMENT/FILE or STUDENT/FILE",
        "zoë.ipynb": "'zoë' cannot name a student: 1 to 100 of A-Z a-z 0-9 ._@+-, no sign first",
    }


def test_a_bomb_is_not_unpacked(course: Course, tmp_path: Path) -> None:
    archive = packed(tmp_path / "all.zip", {"ada.ipynb": "0" * (20 << 20), "bob.ipynb": "1"})
    found = {c.file: c for c in collect(course, ASSIGNMENT, archive)}
    assert found["ada.ipynb"].what == IGNORED
    assert "unpack to 20,971,520: a zip bomb" in found["ada.ipynb"].detail
    assert set(handed_in(course)) == {"bob/small.ipynb"}


def test_times_in_an_archive_are_in_the_zone_that_is_given(course: Course, tmp_path: Path) -> None:
    archive = packed(tmp_path / "all.zip", {"ada.ipynb": "1"})
    collect(course, ASSIGNMENT, archive, zone=timezone(timedelta(hours=2)))
    stamp = course.root / "submitted" / "ada" / ASSIGNMENT / "timestamp.txt"
    assert stamp.read_text() == "2024-01-02 01:04:06 UTC\n"
    exact = zipfile.ZipInfo("bob.ipynb", (2024, 1, 2, 3, 4, 6))
    exact.extra = struct.pack("<HHBi", 0x5455, 5, 1, 1_700_000_000)
    with zipfile.ZipFile(tmp_path / "exact.zip", "w") as one:
        one.writestr(exact, "2")
    collect(course, ASSIGNMENT, tmp_path / "exact.zip", zone=timezone(timedelta(hours=2)))
    stamp = course.root / "submitted" / "bob" / ASSIGNMENT / "timestamp.txt"
    assert stamp.read_text() == "2023-11-14 22:13:20 UTC\n"


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
    assert len(list(tmp_path.rglob("*.ipynb"))) == 4  # source, release, Ada's, and her attempt


def test_what_no_program_packs_stops_no_other(course: Course, tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("ada.ipynb", "1")
        packed.writestr(zipfile.ZipInfo(""), "no name")
        packed.writestr(zipfile.ZipInfo("."), "no name either")
        packed.writestr("bob.ipynb", "2" * 99, zipfile.ZIP_LZMA)
    content = bytearray(archive.read_bytes())
    start = content.index(b"bob.ipynb") + len("bob.ipynb") + 9  # behind LZMA's own properties
    content[start : start + 8] = b"\xff" * 8
    archive.write_bytes(content)
    found = taken(course, archive)
    assert found["ada.ipynb"] == COLLECTED
    assert {found["."], found["bob.ipynb"]} == {IGNORED}
    content[content.index(b"PK\x01\x02") + 6] = 199  # the version that it needs: 19.9
    archive.write_bytes(content)
    with pytest.raises(CourseError, match=r"is damaged: zip file version 19[.]9"):
        collect(course, ASSIGNMENT, archive)


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
