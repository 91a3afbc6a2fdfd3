"""`tito course` as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.system_tools import needs_sandbox
from tests.tito.course.conftest import ASSIGNMENT, give, settings, submission, write
from tito import sandbox
from tito.cli import app
from tito.course import commands, generate
from tito.course.config import Course, CourseError

COMMANDS = (
    "init", "generate", "release", "collect", "grade", "feedback", "export", "extend", "grades",
    "roster import", "roster export", "roster compare", "attempts", "regrade", "audit",
    "request add", "request list", "request answer", "similar", "formgrader",
)  # fmt: skip


def tito(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["course", *map(str, arguments)])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command: str) -> None:
    result = tito(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"tito course {command}" in result.output.partition("Example")[2]


def test_the_group_has_these_commands_and_no_others() -> None:
    found = _names(typer.main.get_command(commands.app))
    assert sorted(found) == sorted(COMMANDS)


def _names(command: Any) -> list[str]:
    """The command's own names, those of a group in it with the group's."""
    if not hasattr(command, "commands"):
        return [""]
    return [
        f"{name} {rest}".strip() for name, sub in command.commands.items() for rest in _names(sub)
    ]


@pytest.mark.slow
@needs_sandbox
def test_from_init_to_export(course_root: Path, tmp_path: Path) -> None:
    here = ("--course", course_root)
    assert tito("generate", ASSIGNMENT, *here).output.startswith("small: 10 points in 3 tests")
    assert tito("release", ASSIGNMENT, "--to", tmp_path / "out", *here).exit_code == 0
    box = tmp_path / "box"
    box.mkdir()
    (box / "ada.ipynb").write_text(submission(), encoding="utf-8")
    (box / "bob.ipynb").write_text(submission(write("double", "pass")), encoding="utf-8")
    assert tito("collect", ASSIGNMENT, "--from", box, *here).exit_code == 0
    result = tito("grade", ASSIGNMENT, *here)
    assert result.exit_code == 0
    assert "10 of 10" in result.output
    assert "8 of 10" in result.output
    assert "nothing new to grade" in tito("grade", ASSIGNMENT, *here).output
    assert "2 pages" in tito("feedback", *here).output
    table = json.loads(tito("export", "--json", *here).output)
    assert {row["student"]: row["score"] for row in table} == {"ada": 10, "bob": 8}
    assert tito("export", *here).output.startswith("assignment,student,state,score")
    assert "2 files" in tito("export", "--format", "gradescope", *here).output


@needs_sandbox
def test_exit_codes_say_what_happened(
    course_root: Path, hand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--course", course_root)
    assert tito("grade", "other", *here).exit_code == 1
    assert tito("export", "--format", "xml", *here).exit_code == 2
    assert tito("generate", *here).exit_code == 2
    assert tito("init", course_root).exit_code == 1
    hand_in("ada", submission())
    from tito.course.exam import pool

    monkeypatch.setattr(pool, "run_text", lambda *a: json.dumps({"infrastructure": "no disk"}))
    result = tito("grade", ASSIGNMENT, *here, "--json")
    assert result.exit_code == commands.INCOMPLETE
    assert json.loads(result.output)[0]["score"] is None


@pytest.mark.parametrize(
    "command",
    [("feedback",), ("export",), ("grades",), ("attempts",), ("audit",),
     ("roster", "compare", "--assignment")],
)  # fmt: skip
def test_an_assignment_that_is_not_there_is_said(
    course_root: Path, command: tuple[str, ...]
) -> None:
    """An empty list, or marks that are all the same, would look like an answer."""
    marks = course_root / "marks.csv"
    marks.write_text("Student,ID,SIS User ID,SIS Login ID,Section\n", encoding="utf-8")
    file = (str(marks),) if command[0] == "roster" else ()
    said = tito(*command[:2], *file, *command[2:], "sma", "--course", course_root)
    assert said.exit_code == 1 and "'sma' is not generated: tito course generate sma" in said.output


@pytest.mark.slow
def test_without_a_sandbox_nothing_is_graded_unless_told(
    course_root: Path, hand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: "the sandbox needs bwrap: apt-get install")
    here = ("--course", course_root)
    refused = tito("generate", ASSIGNMENT, *here)
    assert refused.exit_code == 1
    assert "apt-get install" in refused.output
    assert tito("generate", ASSIGNMENT, "--without-sandbox", *here).exit_code == 0
    hand_in("ada", submission())
    assert tito("grade", ASSIGNMENT, *here).exit_code == 1
    done = tito("grade", ASSIGNMENT, "--without-sandbox", "--json", *here)
    assert [(row["score"], row["level"][:4]) for row in json.loads(done.output)] == [(10, "none")]


@pytest.mark.parametrize(
    "command",
    ["export --to FOLDER", "export --to FILE/grades.csv", "init FILE", "init FILE/cs101",
     "release small --to FILE", "request answer --from FOLDER/none.csv",
     "request list --to FOLDER", "grade small --jobs -1", "regrade small --jobs 0"],
)  # fmt: skip
def test_a_file_that_cannot_be_there_is_a_sentence(
    course_root: Path, tmp_path: Path, command: str
) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.touch()
    words = command.replace("FOLDER", str(folder)).replace("FILE", str(file)).split()
    here = () if words[0] == "init" else ("--course", course_root)
    result = tito(*words, *here)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == (2 if "--jobs" in words else 1)
    named = "--jobs" if "--jobs" in words else str(folder if "FOLDER" in command else file)
    assert named in result.output
    assert not list(tmp_path.glob(".*"))  # of the export


def test_a_name_that_is_almost_right(course_root: Path) -> None:
    result = tito("generate", "tensro", "--course", course_root)
    assert result.exit_code == 1
    assert "Did you mean 'tensor'" in result.output


@pytest.mark.parametrize("command", ["attempts", "audit"])
def test_a_list_of_a_name_that_nobody_has_says_so(course: Course, command: str) -> None:
    """An empty table reads as if a student had handed nothing in."""
    give(course, "ada", submitted="2026-10-01 11:59")
    answer = tito(command, "--student", "aad", "--course", course.root)
    assert "nobody called 'aad'" in answer.stderr and "did you mean 'ada'" in answer.stderr
    assert "nobody" not in tito(command, "--student", "ada", "--course", course.root).stderr


def test_what_was_generated_before_a_refusal_is_said(
    course_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`generate --all` takes a minute, and ended at the first lesson that was refused."""
    made = generate.Generated(ASSIGNMENT, 10, 3, course_root, ("a note",))

    def refuse(course: Course, name: str, **options: object) -> generate.Generated:
        if name == "second":
            raise CourseError("the second is refused")
        return made

    monkeypatch.setattr(generate, "generate", refuse)
    answer = tito("generate", ASSIGNMENT, "second", "--course", course_root)
    assert answer.exit_code == 1
    assert answer.stdout == f"small: 10 points in 3 tests; {course_root}\n  a note\n"
    assert answer.stderr == "the second is refused\n"


def test_feedback_shows_how_far_it_is(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []

    @contextmanager
    def telling(wanted: bool, what: str) -> Iterator[object]:
        yield lambda state, total: told.append((state.student if state else what, total))

    monkeypatch.setattr(commands, "progress", telling)
    for student in ("ada", "bob"):
        give(course, student, submitted="2026-10-01 11:59")
    assert tito("feedback", "--course", course.root).exit_code == 3  # they have no file
    assert told == [("pages", 2), ("ada", 2), ("bob", 2)]


def test_an_assignment_goes_by_its_whole_name(course: Course) -> None:
    """`generate 02` makes 02_tensor; of what is kept for "02" nobody would ever hear."""
    (course.root / "source" / "02_tensor").mkdir()
    ada = ("--student", "ada")
    for name, command in (
        ("02", ("grade", "02")),
        ("tensor", ("collect", "tensor", "--from", course.root)),
        ("02", ("extend", "02", *ada, "--until", "2026-10-01 12:00 UTC")),
        ("tensor", ("request", "add", "tensor", *ada, "--text", "why?")),
    ):
        result = tito(*command, "--course", course.root)
        assert result.exit_code == 1
        assert result.output == f"there is no assignment {name!r}: say 02_tensor\n"


@pytest.mark.parametrize(
    "command", ["extend small --until 2026-10-01T12:00+00:00", "request add small --text why"]
)
def test_a_student_of_whom_nobody_has_heard_is_said(
    course: Course, hand_in: Callable[..., Path], command: str
) -> None:
    """An extension for "aad" was kept, and ada was late."""
    hand_in("ada", submission())
    for student, said in (("aad", "nobody called 'aad' is on a roster"), ("ada", "")):
        result = tito(*command.split(), "--student", student, "--course", course.root)
        assert result.exit_code == 0
        assert result.stderr.startswith(said) and bool(said) == bool(result.stderr)


@pytest.mark.parametrize("days", ["nan", "1e300"])
def test_an_extension_without_end(course: Course, days: str) -> None:
    settings(course, f'c.TinyTorch.deadlines = {{"{ASSIGNMENT}": "2026-10-01 23:59 UTC"}}')
    result = tito("extend", ASSIGNMENT, "--student", "ada", "--days", days, "--course", course.root)
    assert result.exit_code == 1
    assert "days later is no time" in result.output
