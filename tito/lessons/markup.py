"""The Markdown of notebooks and pages: headers, statements, questions, hints."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from html import escape

from tito.lessons.model import Exercise, FindTheBug, Lesson, Predict, Test

SUMMARY = re.compile(r"(<summary>)(.*?)(</summary>)", re.DOTALL)
FENCED = re.compile(r"(^```.*?^```|^~~~.*?^~~~)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\b[0-9]{1,2}\b")
MENTION = re.compile(
    r"\b(?:module|lesson)s?\s[0-9]{1,2}\b(?:(?:,|,?\s(?:and|or|to))\s[0-9]{1,2}\b)*", re.IGNORECASE
)


def header(lesson: Lesson) -> str:
    """The first cell: what the lesson is."""
    needs = ", ".join(lesson.needs) or "nothing"
    return (
        f"# {lesson.number:02} {lesson.title}\n\n"
        f"{lesson.part} · needs: {needs} · about {duration(lesson.hours)} · "
        f"{_points(lesson.points)}\n\nMakes possible: {lesson.makes_possible}"
    )


def duration(hours: float) -> str:
    """Hours in words: 1 hour, 1.5 hours."""
    return f"{hours:g} hour{'s' if hours != 1 else ''}"


def prepared(text: str, there: Collection[int]) -> str:
    """An author's Markdown as it is shown: summaries rendered, lessons that are not there marked.

    Jupyter renders no Markdown between `<summary>` and `</summary>`.

    Args:
        there: the numbers of the lessons that there are.

    >>> prepared("See module 12.", there=[1, 2])
    'See module 12 (to come).'
    """

    def mark(found: re.Match[str]) -> str:
        return NUMBER.sub(lambda n: n[0] if int(n[0]) in there else f"{n[0]} (to come)", found[0])

    parts = FENCED.split(text)
    for i in range(0, len(parts), 2):  # those at odd places are fenced code
        parts[i] = SUMMARY.sub(_rendered, MENTION.sub(mark, parts[i]))
    return "".join(parts)


def _rendered(summary: re.Match[str]) -> str:
    """Code, strong and emphasised text of a summary as HTML."""
    inner = re.sub(r"`([^`]+)`", lambda c: f"<code>{escape(c[1])}</code>", summary[2])
    inner = re.sub(r"\*\*(\S.*?)\*\*", r"<strong>\1</strong>", inner)
    inner = re.sub(r"(?<![\w*])\*(\S[^*]*?)\*(?![\w*])", r"<em>\1</em>", inner)
    return f"{summary[1]}{inner}{summary[3]}"


def split_sections(text: str) -> list[str]:
    """Markdown cut at its headings, so that a notebook can be folded."""
    sections: list[list[str]] = [[]]
    fence = ""
    for line in text.split("\n"):
        marks = line[: len(line) - len(line.lstrip("`~"))]
        if len(marks) >= 3:
            fence = "" if fence and marks.startswith(fence) else fence or marks
        if line.startswith("#") and not fence:
            sections.append([])
        sections[-1].append(line)
    joined = ["\n".join(section).strip("\n") for section in sections]
    return [section for section in joined if section.strip()]


def without_title(text: str) -> str:
    """Text less its title, which the header has already."""
    return text.partition("\n")[2] if text.startswith("# ") else text


def statement(exercise: Exercise, number: int, tools: Sequence[str]) -> str:
    """The heading, statement, tool box and folded hints above a solution cell.

    Args:
        number: of the exercise in its lesson, from 1.
        tools: what the code of the exercise may call, a line of Markdown each.
    """
    title = exercise.id.replace("-", " ").capitalize()
    heading = f"### Exercise {number}: {title} ({_points(exercise.points)})"
    write = ", ".join(f"`{target.name}`" for target in exercise.targets)
    said = "docstring is" if len(exercise.targets) == 1 else "docstrings are"
    parts = [f"**Write {write}.** The {said} the statement.", exercise.statement]
    box = [*tools, *exercise.tools]
    if box:
        parts.append("Tool box:\n\n" + "\n".join(f"- {' '.join(line.split())}" for line in box))
    told = callout("info", "\n\n".join(part for part in parts if part))
    return "\n\n".join([heading, told, *folded_hints(exercise.hints)])


def tests_of(tests: Sequence[Test], number: int) -> str:
    """What is above the locked tests of an exercise."""
    lines = [
        f"- {_points(t.points)}{'' if t.visible else ', hidden'}: {' '.join(t.checks.split())}"
        for t in tests
    ]
    told = f"**Locked: the tests of exercise {number}.** Run them; they are not yours to change."
    return callout("warning", "\n".join([told, "", *lines]))


def _points(points: int) -> str:
    return f"{points} point{'s' if points > 1 else ''}"


def folded_hints(hints: Sequence[str]) -> list[str]:
    """Hints that show when they are opened."""
    return [
        f"<details><summary>Hint {i}</summary>\n\n{hint.strip()}\n\n</details>"
        for i, hint in enumerate(hints, start=1)
    ]


def callout(kind: str, text: str) -> str:
    """Markdown on a coloured ground, which Jupyter's own style sheet gives.

    Args:
        kind: "info" (blue), "success" (green), "warning" (yellow) or "danger" (red).
    """
    return f'<div class="alert alert-{kind}">\n\n{text.strip()}\n\n</div>'


def question(block: Predict | FindTheBug) -> str:
    """What is above the cells of a prediction, or of a bug."""
    if isinstance(block, FindTheBug):
        what = "The test below the next cell fails. Mend the cell until it passes. No points."
        told = callout("danger", f"**Find the bug.** {block.question}\n\n{what}")
        return "\n\n".join([told, *folded_hints(block.hints)])
    if block.within is not None:
        how = f"A number; up to {100 * block.within:g} % off is right."
    else:
        how = "One of: " + ", ".join(f"`{choice}`" for choice in block.choices) + "."
    return callout("success", f"**Predict, then run.** {block.question}\n\n{how}")


def prediction(block: Predict) -> str:
    """The reader's own cell."""
    asked = "a number" if block.within is not None else "one of the choices, in quotes"
    return f"prediction = None  # {asked}, before you run the next cell"
