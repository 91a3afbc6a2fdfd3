"""A lesson as a page of the documentation: all that a student sees, and no solution."""

from __future__ import annotations

from tito.lessons.cells import Cell, lesson_cells
from tito.lessons.exercise import clear
from tito.lessons.markup import header, prepared, question, without_title
from tito.lessons.model import Code, Exercise, Lesson, Mended, Practice, ShownTest, Test, Text
from tito.lessons.source import Package


def page(lesson: Lesson, package: Package) -> str:
    """Markdown for the site.

    Raises:
        LessonError: as `lesson_cells`.
    """
    cells = {cell.id: cell for cell in lesson_cells(lesson, package)}
    parts = [header(lesson)]
    for block in lesson.blocks:
        if isinstance(block, Text):
            text = prepared(block.source, package.lessons())
            parts.append(without_title(text).strip("\n"))
        elif isinstance(block, Code):
            parts.append(_code(block.source))
        elif isinstance(block, Exercise):
            parts.append(_exercise(block, cells))
        elif isinstance(block, Test):
            parts.append(_test(block, cells[block.id]))
        else:
            parts += _practice(block)
    return "\n\n".join(parts) + "\n"


def _code(source: str) -> str:
    return f"```python\n{source}\n```"


def _exercise(exercise: Exercise, cells: dict[str, Cell]) -> str:
    given = cells.get(f"{exercise.id}-given")
    solution = cells[exercise.id]
    places = "\n".join(f"- `{target}`" for target in exercise.targets)
    parts = [cells[f"{exercise.id}-text"].source, f"Written into the package at:\n\n{places}"]
    parts += [_code(given.source)] if given else []
    return "\n\n".join([*parts, _code(solution.student)])


def _test(test: Test, cell: Cell) -> str:
    points = f"{test.points} point{'s' if test.points > 1 else ''}"
    about = f"**Test: {test.id}** ({points}). Checks: {cell.checks}. Why: {cell.why}."
    if not test.visible:
        return f"{about} Hidden."
    code = clear(cell.source)
    return f"<details><summary>{about}</summary>\n\n{_code(code)}\n\n</details>"


def _practice(block: Practice) -> list[str]:
    if isinstance(block, Mended):
        return []
    if isinstance(block, ShownTest):
        return [f"It must pass:\n\n{_code(block.source)}"]
    return [question(block), _code(block.source)]
