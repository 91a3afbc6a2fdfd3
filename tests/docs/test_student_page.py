"""Every command of docs/student.md, typed in the order of the page, in one workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.pages import commands_of
from tests.integration.test_student import ROOT, Student, right_answers
from tito.lessons.build import Course

SECONDS = 1800  # on a machine that has other things to do
PAGE = ROOT / "docs" / "student.md"
ELSEWHERE = {
    "module open 01": "tests/integration/test_jupyterlab.py opens it in a browser",
    "test --watch": "tests/tito/workspace/test_watch.py gives it a terminal",
}
SMALLER = {  # the same option on a network that takes seconds, not the minute or more of all loops
    "tito milestone run mlp": "tito milestone run perceptron",
    "tito milestone run mlp --require-all-mine": "tito milestone run perceptron --require-all-mine",
    "tito milestone run cnn --backend mine": "tito milestone run xor --backend mine",
}
FAILS = {  # before the exercises are written, and as long as not all of it is
    "tito test": 1,
    "tito milestone run mlp --require-all-mine": 1,
}


@pytest.mark.exhaustive  # test_commands.py sees that they exist, and each has tests of its own
def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    course, student = Course.load(ROOT), Student(tmp_path)
    lesson = course.find("01")
    assert lesson is not None
    shown = [words for words in commands_of(PAGE) if words[0] in ("tito", "cd")]
    assert len(shown) > 15
    for words in shown:
        line = " ".join(words)
        words = SMALLER.get(line, line).split()
        if words[0] == "cd":
            student = Student(Path(os.path.expanduser(words[1])))
            continue
        if line.removeprefix("tito ") in ELSEWHERE:
            continue
        if line == "tito module complete 01":
            student.write(lesson, right_answers(course, lesson))
        arguments = [os.path.expanduser(word) for word in words[1:]]
        student.tito(*arguments, code=FAILS.get(line, 0), cwd=student.root, timeout=SECONDS)
    assert (student.root / "backends" / "fast.py").is_file()
    assert list(student.root.rglob("ladder.svg"))
