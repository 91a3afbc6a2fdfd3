"""The Markdown of notebooks and pages: headers, statements, questions, hints."""

from __future__ import annotations

from collections.abc import Sequence

from tito.lessons.model import Exercise, FindTheBug, Lesson, Predict


def header(lesson: Lesson) -> str:
    """The first cell: what the lesson is."""
    needs = ", ".join(lesson.needs) or "nothing"
    return (
        f"# {lesson.number:02} {lesson.title}\n\n"
        f"{lesson.part} · needs: {needs} · about {lesson.hours:g} hours · {lesson.points} points\n"
        f"\nMakes possible: {lesson.makes_possible}"
    )


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


def statement(exercise: Exercise) -> str:
    """The text above a solution cell, with its hints folded."""
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    parts = [f"**Exercise: {exercise.id}** ({points})", exercise.statement]
    return "\n\n".join(part for part in [*parts, *folded_hints(exercise.hints)] if part)


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
