"""What every lesson promises its reader, beyond what it takes to build it.

A lesson that breaks one of these rules can be built and tried, but it is not done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tito.lessons.cells import Cell
from tito.lessons.exercise import written_lines
from tito.lessons.model import Code, Exercise, Lesson, Predict, Problem, Test, Text

PARTS = ["Systems", "Questions", "Further"]  # the first words of the last headings
QUESTIONS = SOURCES = HINTS = 3
LEAST_LINES, MOST_LINES = 3, 25  # of a solution
MOST_TO_READ = 1 / 3  # of the whole text, before there is something to do
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IN_CODE = {
    "tito.figure": "no cell draws with tito.figure",
    "perf_counter": "no cell measures time (perf_counter)",
    "assert ": "no cell checks a claim (assert)",
}


def check_form(lesson: Lesson, cells: Sequence[Cell]) -> list[Problem]:
    """What a lesson does not keep of its promises, in the order of its lines."""
    found = [*_reading(lesson), *_parts(lesson), *_drawn_and_measured(lesson)]
    found += [*_exercises(lesson, cells), *_tests(lesson)]
    return sorted(found, key=lambda problem: problem.line)


def _at(lesson: Lesson, line: int, message: str) -> Problem:
    return Problem(lesson.path, line, message)


def _words(text: str) -> int:
    """Words to read: what a drawing is made of does not count."""
    return len(FENCED.sub("", text).split())


def _prose(lesson: Lesson) -> str:
    return "\n".join(block.source for block in lesson.blocks if isinstance(block, Text))


def _reading(lesson: Lesson) -> Iterator[Problem]:
    """There is never much to read before the next thing to do; the questions are such a thing."""
    total = _words(_prose(lesson))
    for block in lesson.blocks:
        if isinstance(block, Text):
            before, *_ = block.source.partition("## Questions\n")
            words = _words(before)
            if words > MOST_TO_READ * total:
                message = f"{words} words of {total} to read before there is something to do; a"
                yield _at(lesson, block.line, f"{message} third is the most")


def _parts(lesson: Lesson) -> Iterator[Problem]:
    text = _prose(lesson)
    last = max((b.line for b in lesson.blocks if isinstance(b, Text)), default=1)
    headings = re.findall(r"^## (\w+)", text, re.MULTILINE)
    if headings[-3:] != PARTS:
        message = f"the last parts must be Systems, Questions and Further reading, not {headings}"
        yield _at(lesson, last, message)
        return
    _, _, end = text.partition("\n## Questions\n")
    questions, _, reading = end.partition("\n## Further reading\n")
    counts = questions.count("<details><summary>"), questions.count("</details>")
    if counts != (QUESTIONS, QUESTIONS):
        message = f"{counts[0]} questions begin to unfold and {counts[1]} end"
        yield _at(lesson, last, f"{message}; {QUESTIONS} belong there")
    sources = len(re.findall(r"^- ", reading, re.MULTILINE))
    if sources < SOURCES:
        yield _at(lesson, last, f"{sources} sources under Further reading; {SOURCES} are the least")


def _drawn_and_measured(lesson: Lesson) -> Iterator[Problem]:
    code = "\n".join(b.source for b in lesson.blocks if isinstance(b, (Code, Predict)))
    if "```mermaid" not in _prose(lesson):
        yield _at(lesson, 1, "there is no drawing in Mermaid")
    for wanted, message in IN_CODE.items():
        if wanted not in code:
            yield _at(lesson, 1, message)


def _exercises(lesson: Lesson, cells: Sequence[Cell]) -> Iterator[Problem]:
    solutions = {cell.id: cell for cell in cells if cell.kind == "solution"}
    for exercise in lesson.exercises:
        if len(exercise.hints) != HINTS:
            message = f"exercise {exercise.id} has {len(exercise.hints)} hints, and needs {HINTS}"
            yield _at(lesson, exercise.line, message)
        lines = written_lines(solutions[exercise.id].source)
        if not LEAST_LINES <= lines <= MOST_LINES:
            message = f"exercise {exercise.id} has {lines} lines to write, and should have"
            yield _at(lesson, exercise.line, f"{message} {LEAST_LINES} to {MOST_LINES}")


def _tests(lesson: Lesson) -> Iterator[Problem]:
    """Some are visible and some hidden, and each is right behind its exercise."""
    if {test.visible for test in lesson.tests} != {True, False}:
        yield _at(lesson, 1, "it needs visible tests and hidden ones")
    last = ""
    for block in lesson.blocks:
        if isinstance(block, Exercise):
            last = block.id
        elif isinstance(block, Test) and block.exercise != last:
            message = f"test {block.id} is for {block.exercise}, and follows {last or 'none'}"
            yield _at(lesson, block.line, message)
