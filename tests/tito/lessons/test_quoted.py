"""A definition that a lesson quotes changes on purpose only: what a lesson says of its steps, what
its tests tell apart and its wrong solutions are of this form, and only the slow proof sees that.

`quoted.txt` has a digest of each. When a proof passes again, the new form is recorded by

    python -m tests.tito.lessons.test_quoted
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tito.lessons.check import load_lessons
from tito.lessons.model import Lesson
from tito.lessons.source import Package, Target
from tito.scripts import ROOT

RECORDED = Path(__file__).with_name("quoted.txt")


def digest(package: Package, target: Target) -> str:
    """Of a definition without its docstring, comments and empty lines."""
    lines = package.find(target).without_docstring().split("\n")
    code = [line.rstrip() for line in lines if not line.strip().startswith("#")]
    return hashlib.sha256("\n".join(filter(None, code)).encode()).hexdigest()[:12]


def quoted(lessons: list[Lesson], package: Package) -> dict[tuple[str, str], str]:
    """The digest of each definition that an exercise asks for, by lesson and place."""
    return {
        (lesson.folder, str(target)): digest(package, target)
        for lesson in lessons
        for exercise in lesson.exercises
        for target in exercise.targets
    }


def text_of(found: dict[tuple[str, str], str]) -> str:
    return "".join(f"{lesson} {value} {place}\n" for (lesson, place), value in found.items())


def parsed(text: str) -> dict[tuple[str, str], str]:
    rows = (line.split(" ", 2) for line in text.splitlines())
    return {(lesson, place): value for lesson, value, place in rows}


def differences(
    known: dict[tuple[str, str], str], found: dict[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """A sentence for each definition that is not as it was recorded."""
    said = {}
    for lesson, place in {**known, **found}:
        if (is_old := (lesson, place) not in found) or known.get((lesson, place)) is None:
            what = "no longer quotes" if is_old else "now quotes"
            said[lesson, place] = f"lesson {lesson} {what} {place}"
        elif known[lesson, place] != found[lesson, place]:
            said[lesson, place] = f"lesson {lesson} quotes {place}, which has changed"
    return said


def test_definitions_that_lessons_quote_are_as_when_the_lessons_were_proved() -> None:
    lessons, problems = load_lessons(ROOT)
    assert not problems
    said = differences(parsed(RECORDED.read_text("utf-8")), quoted(lessons, Package(ROOT)))
    folders = " or ".join(dict.fromkeys(lesson for lesson, _ in said))
    assert not said, (
        f"{'; '.join(said.values())}. See whether the lesson still holds: "
        f"pytest -m slow tests/tito/lessons/test_course.py -k '{folders}'; "
        "then record it: python -m tests.tito.lessons.test_quoted"
    )


def test_a_change_is_of_code_and_is_named(tmp_path: Path) -> None:
    file, target = tmp_path / "steps.py", Target("steps.py", "step")

    def of(text: str) -> str:
        file.write_text(text, encoding="utf-8")
        return digest(Package(tmp_path), target)

    first = of('def step(x):\n    """One."""\n    return x + 1\n')
    assert of('A = 1\n\n\ndef step(x):\n    """Two."""\n\n    # why\n    return x + 1\n') == first
    second = of("def step(x):\n    return 1 + x\n")
    assert second != first
    known = {("01_a", "steps.py::step"): first, ("01_a", "steps.py::gone"): "0"}
    found = {("01_a", "steps.py::step"): second, ("02_b", "steps.py::step"): second}
    assert list(differences(known, found).values()) == [
        "lesson 01_a quotes steps.py::step, which has changed",
        "lesson 01_a no longer quotes steps.py::gone",
        "lesson 02_b now quotes steps.py::step",
    ]
    assert parsed(text_of(known)) == known


if __name__ == "__main__":
    RECORDED.write_text(text_of(quoted(load_lessons(ROOT)[0], Package(ROOT))), encoding="utf-8")
