"""lesson.md to `Lesson`: entries at the top, then text and fenced directives.

    ```{exercise}
    ---
    id: broadcast
    ...
    ---
    ```

MyST's own form (https://mystmd.org/guide/directives): a lesson reads well wherever Markdown does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tito.lessons.model import Block, Code, Exercise, Lesson, LessonError, Problem, Test, Text
from tito.lessons.options import (
    Fence,
    Known,
    Options,
    is_amount,
    is_bool,
    is_code,
    is_id,
    is_points,
    is_text,
    is_texts,
)
from tito.lessons.practice import PRACTICE
from tito.lessons.source import SourceError, Target

PARTS = (
    "Foundations",
    "Backends and performance",
    "Language",
    "Smaller and faster models",
    "The compiler",
    "Real models",
)
FOLDER = re.compile(r"(?P<number>[0-9]{2})_(?P<slug>[a-z][a-z0-9_]*)")
FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>.*)")
DIRECTIVE = re.compile(r"\{(?P<name>[\w-]*)\}\s*(?P<argument>.*)")


def _is_part(value: Any) -> str | None:
    return None if value in PARTS else f"one of {', '.join(PARTS)}"


TOP: Known = {
    "title": (is_text, False),
    "slug": (is_text, False),
    "part": (_is_part, False),
    "needs": (is_texts, False),
    "makes_possible": (is_text, False),
    "hours": (is_amount, False),
    "points": (is_points, False),
}
EXERCISE: Known = {
    "id": (is_id, False),
    "definitions": (is_texts, False),
    "points": (is_points, False),
    "given": (is_code, True),
    "hints": (is_texts, True),
    "tools": (is_texts, True),
}
TEST: Known = {
    "id": (is_id, False),
    "for": (is_id, False),
    "points": (is_points, False),
    "visible": (is_bool, True),
    "checks": (is_text, False),
    "why": (is_text, False),
    "seconds": (is_amount, True),
}


class _Parser:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.blocks: list[Block] = []

    def report(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))

    def blocks_of(self, lines: list[str], first: int) -> None:
        """Cut the lines below the top into text and directives."""
        text: list[str] = []
        text_line = number = first
        last = first + len(lines)
        while number < last:
            line = lines[number - first]
            opening = FENCE.match(line)
            if opening is None:
                text.append(line)
                number += 1
                continue
            end = _closing(lines, number - first, opening["marks"])
            if end is None:
                self.report(number, f"the block {line.strip()} is not closed")
                end = len(lines) - 1
            body = lines[number - first + 1 : end]
            if DIRECTIVE.match(opening["info"].strip()):
                inner = next((i for i, x in enumerate(body) if _begins_directive(x)), None)
                if inner is not None:
                    begins = f"another directive begins in line {number + 1 + inner}"
                    self.report(number, f"the block {line.strip()} is not closed: {begins}")
                self.text(text, text_line)
                self.directive(Fence(opening["info"].strip(), body, number))
                text, text_line = [], first + end + 1
            else:
                text += lines[number - first : end + 1]
            number = first + end + 1
        self.text(text, text_line)

    def text(self, lines: list[str], line: int) -> None:
        source = "\n".join(lines)
        if source.strip():
            blank = len(source) - len(source.lstrip("\n"))
            self.blocks.append(Text(source.strip("\n").rstrip(), line + blank))

    def directive(self, fence: Fence) -> None:
        found = DIRECTIVE.match(fence.info)
        assert found is not None
        makers: dict[str, Callable[[Fence], Block]] = {
            "exercise": self.exercise,
            "test": self.test,
            "code": self.code,
        }
        for name, make in PRACTICE.items():
            makers[name] = partial(make, report=self.report)
        if found["name"] not in makers:
            known = ", ".join(f"{{{name}}}" for name in makers)
            self.report(fence.line, f"unknown directive {{{found['name']}}}; known: {known}")
        elif found["argument"]:
            self.report(fence.line, f"{{{found['name']}}} takes no argument: {found['argument']!r}")
        else:
            self.blocks.append(makers[found["name"]](fence))

    def code(self, fence: Fence) -> Code:
        return Code(*fence.code("code cell", self.report))

    def exercise(self, fence: Fence) -> Exercise:
        text, statement, _ = fence.split()
        options = Options(text, fence.line + 2, EXERCISE, self.report)
        values = options.values
        targets = []
        for place in values.get("definitions", []):
            try:
                targets.append(Target.parse(place))
            except SourceError as error:
                self.report(options.lines["definitions"], str(error))
        if "definitions" in values and not values["definitions"]:
            self.report(options.lines["definitions"], "an exercise names at least one definition")
        given = values.get("given", "")
        return Exercise(
            id=values.get("id", ""),
            targets=tuple(targets),
            points=values.get("points", 0),
            given="\n".join(given) if isinstance(given, list) else given.rstrip(),
            hints=tuple(values.get("hints", [])),
            tools=tuple(values.get("tools", [])),
            statement="\n".join(statement).strip(),
            line=fence.line,
            lines=options.lines,
        )

    def test(self, fence: Fence) -> Test:
        text, _, _ = fence.split()
        values = Options(text, fence.line + 2, TEST, self.report).values
        source, code_line = fence.code("test cell", self.report)
        return Test(
            id=values.get("id", ""),
            exercise=values.get("for", ""),
            points=values.get("points", 0),
            visible=values.get("visible", True),
            checks=values.get("checks", ""),
            why=values.get("why", ""),
            source=source,
            line=fence.line,
            code_line=code_line,
            seconds=values.get("seconds"),
        )


def _begins_directive(line: str) -> bool:
    fence = FENCE.match(line)
    return fence is not None and DIRECTIVE.match(fence["info"].strip()) is not None


def _closing(lines: list[str], opening: int, marks: str) -> int | None:
    """The line that closes a fence: as many marks of the same kind, and nothing else."""
    for i in range(opening + 1, len(lines)):
        line = lines[i].strip()
        if line.startswith(marks) and not line.strip(marks[0]):
            return i
    return None


def parse_lesson(path: Path) -> Lesson:
    """Read a lesson.

    Raises:
        LessonError: it is not well formed. What only the package or the other lessons can tell is
            `check_lesson`'s.
    """
    parser = _Parser(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    folder = FOLDER.fullmatch(path.parent.name)
    if folder is None:
        parser.report(1, f"the folder {path.parent.name} must be called NN_slug, as 02_tensor")
    top, below, first = Fence("", lines, 0).split()
    if not top:
        parser.report(1, "a lesson begins with its entries (title, slug, ...) between lines `---`")
    options = Options(top, 2, TOP, parser.report)
    values = options.values
    if folder is not None and values.get("slug", folder["slug"]) != folder["slug"]:
        line = options.lines["slug"]
        parser.report(line, f"the slug is {values['slug']!r}, the folder {path.parent.name}")
    parser.blocks_of(below, first)
    if parser.problems:
        raise LessonError(parser.problems)
    assert folder is not None
    return Lesson(
        folder=path.parent.name,
        number=int(folder["number"]),
        slug=values["slug"],
        title=values["title"],
        part=values["part"],
        needs=tuple(values["needs"]),
        makes_possible=values["makes_possible"],
        hours=values["hours"],
        points=values["points"],
        blocks=tuple(parser.blocks),
        path=path,
        lines=options.lines,
    )


def lesson_files(root: Path) -> list[Path]:
    """The lessons of a repository, in order."""
    return sorted((root / "modules").glob("*/lesson.md"))
