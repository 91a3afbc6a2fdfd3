"""Everything that is wrong in a lesson, each with its file and line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tito.course.exam.instrument import COMPARED, InstrumentError, Source, instrument
from tito.lessons.cells import PREAMBLE, Cell, lesson_cells
from tito.lessons.exercise import MOST_LINES, written_lines
from tito.lessons.form import check_form
from tito.lessons.model import (
    Code,
    Exercise,
    FindTheBug,
    Lesson,
    LessonError,
    Practice,
    Predict,
    Problem,
    Test,
)
from tito.lessons.names import bound_names, free_names, imports_of
from tito.lessons.parse import lesson_files, parse_lesson
from tito.lessons.practice import check_practice
from tito.lessons.source import Package, Target

MOST_EXERCISES = 5  # between two tests
ENDS = "text|given|tests|question|prediction|shown|mended"
RESERVED_ID = re.compile(rf"lesson|imports|(text|code)-\d+|.*-({ENDS})")
GRADED = ("given", "solution", "test")
MAKES_CLASS = ("__init__", "__call__", "forward")  # who writes these, writes the class


def load_lessons(root: Path) -> tuple[list[Lesson], list[Problem]]:
    """All lessons of a repository that are well formed, and what is wrong with the others."""
    lessons, problems = [], []
    for path in lesson_files(root):
        try:
            lessons.append(parse_lesson(path))
        except LessonError as error:
            problems += error.problems
    return lessons, problems


def check_lesson(lesson: Lesson, course: Iterable[Lesson], package: Package) -> list[Problem]:
    """What is wrong with a lesson, in the order of its lines; [] if it can be built.

    Args:
        course: all lessons, this one as well.
    """
    others = [other for other in course if other.folder != lesson.folder]
    found = [*_needs(lesson, others), *_points(lesson), *_order(lesson), *_ids(lesson)]
    found += _owned_twice(lesson, others)
    syntax = list(_syntax(lesson))
    found += syntax
    if not syntax:
        found += check_practice(lesson)
        found += _later_names(lesson, others, package)
        try:
            cells = lesson_cells(lesson, package)
        except LessonError as error:
            found += error.problems
        else:
            found += _sizes(lesson, cells, package)
            found += _names_of_tests(lesson, cells)
            found += _forgeable(lesson, cells)
    return sorted(found, key=lambda problem: problem.line)


def check_whole(lesson: Lesson, course: Iterable[Lesson], package: Package) -> list[Problem]:
    """`check_lesson`, and for a lesson that can be built what it does not keep of its promises."""
    found = check_lesson(lesson, course, package)
    return found or check_form(lesson, lesson_cells(lesson, package))


def _at(lesson: Lesson, line: int, message: str) -> Problem:
    return Problem(lesson.path, line, message)


def _needs(lesson: Lesson, others: list[Lesson]) -> Iterator[Problem]:
    numbers = {other.slug: other.number for other in others}
    line = lesson.lines["needs"]
    for slug in lesson.needs:
        if slug not in numbers:
            yield _at(lesson, line, f"needs {slug}, and there is no such lesson")
        elif numbers[slug] > lesson.number:
            yield _at(lesson, line, f"needs {slug}, which comes later")
    for other in others:
        if other.number == lesson.number or other.slug == lesson.slug:
            yield _at(lesson, 1, f"number or slug is taken by {other.folder}")


def _points(lesson: Lesson) -> Iterator[Problem]:
    total = sum(test.points for test in lesson.tests)
    if total != lesson.points:
        line = lesson.lines["points"]
        yield _at(lesson, line, f"{lesson.points} points, but its test cells give {total}")
    for exercise in lesson.exercises:
        earned = sum(t.points for t in lesson.tests if t.exercise == exercise.id)
        if earned != exercise.points:
            yield _at(
                lesson,
                exercise.lines["points"],
                f"exercise {exercise.id} has {exercise.points} points, but its test cells give "
                f"{earned}",
            )


def _order(lesson: Lesson) -> Iterator[Problem]:
    above: set[str] = set()
    untested = 0
    for block in lesson.blocks:
        if isinstance(block, Exercise):
            above.add(block.id)
            untested += 1
            if untested == MOST_EXERCISES + 1:
                yield _at(
                    lesson, block.line, f"more than {MOST_EXERCISES} exercises without a test"
                )
        elif isinstance(block, Test):
            untested = 0
            if block.exercise not in above:
                message = f"test {block.id} is for {block.exercise}, and there is no such exercise"
                yield _at(lesson, block.line, f"{message} above it")


def _ids(lesson: Lesson) -> Iterator[Problem]:
    first: dict[str, int] = {}
    named = [block for block in lesson.practice if isinstance(block, Predict | FindTheBug)]
    blocks: Sequence[Exercise | Test | Predict | FindTheBug] = [
        *lesson.exercises,
        *lesson.tests,
        *named,
    ]
    for block in sorted(blocks, key=lambda block: block.line):
        if block.id in first:
            yield _at(lesson, block.line, f"the id {block.id} is in line {first[block.id]} too")
        first.setdefault(block.id, block.line)
        if RESERVED_ID.fullmatch(block.id):
            yield _at(lesson, block.line, f"the builder makes ids such as {block.id}: take another")


def _owned(lesson: Lesson) -> dict[Target, Exercise]:
    return {target: e for e in lesson.exercises for target in e.targets}


def _owned_twice(lesson: Lesson, others: list[Lesson]) -> Iterator[Problem]:
    owners = {t: other.folder for other in others for t in _owned(other)}
    seen: set[Target] = set()
    for exercise in lesson.exercises:
        for target in exercise.targets:
            where = lesson.folder if target in seen else owners.get(target)
            if where is not None:
                line = exercise.lines["definitions"]
                yield _at(lesson, line, f"{target} is an exercise of {where} already")
            seen.add(target)


def _codes(lesson: Lesson) -> Iterator[tuple[str, int]]:
    """All code in a lesson, with the line where it begins."""
    for block in lesson.blocks:
        if isinstance(block, Code):
            yield block.source, block.line
        elif isinstance(block, Test | Practice):
            yield block.source, block.code_line
        elif isinstance(block, Exercise) and block.given:
            yield block.given, block.lines["given"] + 1


def _syntax(lesson: Lesson) -> Iterator[Problem]:
    for source, line in _codes(lesson):
        try:
            ast.parse(source)
        except SyntaxError as error:
            at = line + (error.lineno or 1) - 1
            yield _at(lesson, at, f"not Python (magics do not run everywhere): {error.msg}")


def _later_names(lesson: Lesson, others: list[Lesson], package: Package) -> Iterator[Problem]:
    later: dict[Target, str] = {}
    for other in others:
        if other.number > lesson.number:
            later |= {_whole(target): other.folder for target in _owned(other) if _makes(target)}
    aliases = {"tinytorch": "tinytorch"}
    for source, line in _codes(lesson):
        body = ast.parse(source)
        for name, statement in imports_of(_statements(body)).items():
            aliases[name] = _dotted_import(statement)
        for node in ast.walk(body):
            dotted = _dotted(node, aliases)
            target = package.resolve(dotted) if dotted.startswith("tinytorch.") else None
            if target is not None and target in later:
                at = line + getattr(node, "lineno", 1) - 1
                yield _at(lesson, at, f"uses {dotted}, which is written in {later[target]}")


def _statements(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _makes(target: Target) -> bool:
    return target.op is None and (target.owner is None or target.leaf in MAKES_CLASS)


def _whole(target: Target) -> Target:
    return Target(target.path, target.owner or target.name)


def _dotted_import(statement: str) -> str:
    """What the one name stands for that an import statement binds."""
    if statement.startswith("from "):
        module, _, name = statement.removeprefix("from ").partition(" import ")
        return f"{module}.{name.partition(' as ')[0]}"
    module, is_as, _ = statement.removeprefix("import ").partition(" as ")
    return module if is_as else module.partition(".")[0]


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    """The dotted name that an expression reads, through imports; "" if it is none."""
    if isinstance(node, ast.Attribute):
        value = _dotted(node.value, aliases)
        return f"{value}.{node.attr}" if value else ""
    return aliases.get(node.id, "") if isinstance(node, ast.Name) else ""


def _sizes(lesson: Lesson, cells: list[Cell], package: Package) -> Iterator[Problem]:
    sources = {cell.id: cell.source for cell in cells if cell.kind == "solution"}
    for exercise in lesson.exercises:
        count = written_lines(sources[exercise.id])
        line = exercise.lines["definitions"]
        if count > MOST_LINES:
            message = f"exercise {exercise.id} has {count} lines of solution, the most is"
            yield _at(lesson, line, f"{message} {MOST_LINES}")
        for target in exercise.targets:
            if not (exercise.statement or target.op or package.find(target).docstring):
                message = f"{target} has no docstring, and the exercise no text: what is to be done"
                yield _at(lesson, line, f"{message} is nowhere")


def _names_of_tests(lesson: Lesson, cells: list[Cell]) -> Iterator[Problem]:
    """Only locked cells and solutions are sure to be there when a submission is graded."""
    known = bound_names(PREAMBLE)
    blocks: dict[str, Exercise | Test] = {b.id: b for b in lesson.exercises}
    blocks |= {b.id: b for b in lesson.tests}
    for cell in cells:
        if cell.kind not in GRADED:
            continue
        unknown = free_names(cell.source) - known
        known |= bound_names(cell.source)
        if unknown:
            block = blocks[cell.exercise if cell.kind == "given" else cell.id]
            yield _at(
                lesson,
                block.code_line if isinstance(block, Test) else block.line,
                f"{cell.kind} cell {cell.id} uses {', '.join(sorted(unknown))}, which no locked "
                f"cell above it brings: a {{code}} cell is the student's to change; import it here "
                f"or in `given`",
            )


def _forgeable(lesson: Lesson, cells: list[Cell]) -> Iterator[Problem]:
    """A grader believes no claim, but it can only refute one whose right value it knows."""
    lines = {test.id: test.code_line for test in lesson.tests}
    graded = [Source(c.id, c.kind, c.source) for c in cells if c.kind in GRADED]
    try:
        tests = instrument(graded)
    except InstrumentError as error:
        yield _at(lesson, 1, str(error))
        return
    for test in tests:
        if not any(site.check in COMPARED and site.mode == "fixed" for site in test.sites):
            yield _at(
                lesson,
                lines[test.id],
                f"test cell {test.id} compares nothing with a fixed value: an answer can be forged "
                f"that raises or is true; add an equal or close whose expected value does not "
                f"depend on the student's code",
            )


def check_course(root: Path) -> tuple[list[Lesson], list[Problem]]:
    """All lessons of a repository, and everything for which one cannot be built."""
    lessons, problems = load_lessons(root)
    package = Package(root)
    for lesson in lessons:
        problems += check_lesson(lesson, lessons, package)
    return lessons, problems
