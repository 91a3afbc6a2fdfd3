"""A lesson as a list of cells: what a notebook, a plain .py file and the grading are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tito.lessons.exercise import BEGIN_HIDDEN, END_HIDDEN, clear, solution_cell
from tito.lessons.markup import (
    header,
    prediction,
    prepared,
    question,
    split_sections,
    statement,
    tests_of,
    without_title,
)
from tito.lessons.model import (
    Code,
    Exercise,
    FindTheBug,
    Lesson,
    LessonError,
    Mended,
    Practice,
    Problem,
    ShownTest,
    Test,
    Text,
)
from tito.lessons.names import (
    annotated_names,
    arguments_of,
    bound_names,
    format_imports,
    imports_for,
    read_names,
)
from tito.lessons.source import FUNCTIONS, Package, SourceError, Target

PREAMBLE = "from __future__ import annotations\n\nimport tinytorch"
GRADIENT_TABLE = (
    "from tito.gradient_table import GradientTable\n\n"
    "table = GradientTable()\n"
    "gradient = table.gradient  # collects your lines here; the package keeps its own"
)


NUMBERED = re.compile(r"(text|code)-\d+")


def mark_of(source: str) -> str:
    """A short digest of a cell's text."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Cell:
    """A cell in both versions.

    Attributes:
        kind: "markdown", "code", "given", "solution" or "test"; of a bug to find "shown" (its test,
            which fails at first) and "mended" (only instructors see it).
        id: unique in the lesson; for an exercise or a test its own.
        source: what the instructor version has.
        exercise: the exercise it belongs to, or "".
        checks, why: of a test, as its author says it.
        seconds: of a test, its own limit when it is graded.
        definitions: of a solution, the places in the package that it defines.
    """

    kind: str
    id: str
    source: str
    exercise: str = ""
    points: int = 0
    checks: str = ""
    why: str = ""
    definitions: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def mark(self) -> str:
        """By which `tito update` knows whether a student has changed the cell."""
        return mark_of(self.student)

    @property
    def key(self) -> str:
        """By which `tito update` knows the cell again. A text has no name but itself: its number
        changes with every cell above it."""
        return f"{self.kind}-{self.mark}" if NUMBERED.fullmatch(self.id) else self.id

    @property
    def student(self) -> str:
        """What the student version has."""
        return clear(self.source) if self.kind in ("solution", "test") else self.source


@dataclass
class _Names:
    """The import that each name of the graded cells stands for; "" for what an author gives."""

    package: Package
    origin: dict[str, str] = field(default_factory=lambda: {"tinytorch": "import tinytorch"})

    def missing(self, wanted: dict[str, str], exercise: Exercise) -> list[str]:
        """The imports in `wanted` that no cell has brought yet.

        Raises:
            SourceError: a name means something else in this notebook already.
        """
        new = []
        for name, line in wanted.items():
            known = self.origin.get(name)
            if known is None:
                new.append(line)
            elif known and not self._same(known, line):
                raise SourceError(
                    f"exercise {exercise.id} needs `{line}`, but in this lesson {name} is "
                    f"already `{known}`; put the exercises into different lessons"
                )
        return new

    def tools(self, wanted: dict[str, str], exercise: Exercise) -> list[str]:
        """What the helpers give that an exercise may call: signature and first sentence of each."""
        lines = []
        for name, line in wanted.items():
            target = self._meaning(line) if line.startswith("from tinytorch") else None
            if target is None or target in exercise.targets or name.endswith("Error"):
                continue
            definition = self.package.find(target)
            said = re.split(r"(?<=[.:])\s", (definition.docstring or "").strip(), maxsplit=1)[0]
            if isinstance(definition.node, FUNCTIONS):
                name += f"({', '.join(arguments_of(definition.node))})"
            if said:
                lines.append(f"`{name}`: {' '.join(said.split()).rstrip(':.')}")
        return lines

    def _same(self, one: str, other: str) -> bool:
        if one == other:
            return True
        meant = [self._meaning(statement) for statement in (one, other)]
        return meant[0] is not None and meant[0] == meant[1]

    def _meaning(self, statement: str) -> Target | None:
        module, _, name = statement.removeprefix("from ").partition(" import ")
        return self.package.resolve(f"{module}.{name.partition(' as ')[0]}")


def lesson_cells(lesson: Lesson, package: Package) -> list[Cell]:
    """The cells of a lesson, in order.

    Raises:
        LessonError: an exercise names a definition that is not there or cannot be one.
    """
    cells = [Cell("markdown", "lesson", header(lesson)), Cell("given", "imports", PREAMBLE)]
    names = _Names(package)
    there = package.lessons()
    numbers = {exercise.id: i for i, exercise in enumerate(lesson.exercises, start=1)}
    announced: set[str] = set()
    problems = []
    for block in lesson.blocks:
        number = len(cells)
        if isinstance(block, Text):
            sections = split_sections(without_title(prepared(block.source, there)))
            cells += [
                Cell("markdown", f"text-{number + i}", text) for i, text in enumerate(sections)
            ]
        elif isinstance(block, Code):
            cells.append(Cell("code", f"code-{number}", block.source))
        elif isinstance(block, Test):
            if block.exercise in numbers and block.exercise not in announced:
                announced.add(block.exercise)
                mine = [test for test in lesson.tests if test.exercise == block.exercise]
                told = tests_of(mine, numbers[block.exercise])
                cells.append(Cell("markdown", f"{block.exercise}-tests", told, block.exercise))
            cells.append(_test_cell(block))
        elif isinstance(block, Practice):
            cells += _practice_cells(block)
        else:
            try:
                cells += _exercise_cells(block, names, numbers[block.id])
            except SourceError as error:
                problems.append(Problem(lesson.path, block.line, str(error)))
    if problems:
        raise LessonError(problems)
    return cells


def _exercise_cells(exercise: Exercise, names: _Names, number: int) -> list[Cell]:
    solution = solution_cell(names.package, exercise.targets)
    given, brought = _given(exercise, solution, names)
    for target in exercise.targets:
        if target.op is None:
            name = target.owner or target.name
            names.origin[name] = f"from {target.module} import {name}"
    told = statement(exercise, number, names.tools(brought, exercise))
    cells = [Cell("markdown", f"{exercise.id}-text", told, exercise.id)]
    if given:
        cells.append(Cell("given", f"{exercise.id}-given", given, exercise.id))
    places = tuple(map(str, exercise.targets))
    cells.append(Cell("solution", exercise.id, solution, exercise.id, definitions=places))
    return cells


def _given(exercise: Exercise, solution: str, names: _Names) -> tuple[str, dict[str, str]]:
    """The locked cell above: what the author gives, the imports that the solution needs, and the
    types that its signatures name; with the import of each name that the solution reads."""
    own = bound_names(exercise.given)
    wanted: dict[str, str] = {}
    types: dict[str, str] = {}
    typed = annotated_names(solution) - bound_names(solution) - own
    for target in exercise.targets:
        text = names.package.text(target.path)
        needed = read_names(solution) - own - {"gradient"}
        wanted |= imports_for(needed, text, target.module)
        types |= imports_for(typed - names.origin.keys(), text, target.module)
    missing = names.missing(wanted, exercise)
    missing += [line for name, line in types.items() if name not in wanted]
    parts = [format_imports(missing), exercise.given]
    names.origin |= {n: s for n, s in (types | wanted).items() if n not in names.origin}
    names.origin |= dict.fromkeys(own, "")
    if any(target.op for target in exercise.targets) and "gradient" not in names.origin:
        parts.append(GRADIENT_TABLE)
        names.origin |= dict.fromkeys(("GradientTable", "gradient", "table"), "")
    return "\n\n".join(part for part in parts if part), wanted


def _test_cell(test: Test) -> Cell:
    checks, why = (" ".join(text.split()) for text in (test.checks, test.why))
    hidden = "" if test.visible else "hidden test, "
    head = f"# {test.id}: {hidden}{test.points} point{'s' if test.points > 1 else ''}"
    code = test.source if test.visible else f"{BEGIN_HIDDEN}\n{test.source}\n{END_HIDDEN}"
    source = f"{head}\n# Checks: {checks}\n# Why: {why}\n{code}"
    return Cell(
        "test", test.id, source, test.exercise, test.points, checks, why, seconds=test.seconds
    )


def _practice_cells(block: Practice) -> list[Cell]:
    if isinstance(block, ShownTest):
        return [Cell("shown", f"{block.bug}-shown", block.source, block.bug)]
    if isinstance(block, Mended):
        return [Cell("mended", f"{block.bug}-mended", block.source, block.bug)]
    cells = [Cell("markdown", f"{block.id}-question", question(block), block.id)]
    if isinstance(block, FindTheBug):
        return [*cells, Cell("code", block.id, block.source, block.id)]
    asked = f"within={block.within!r}" if block.within else f"choices={list(block.choices)!r}"
    experiment = (
        f"from tito.predict import compare, look_at\n\nlook_at(prediction, {asked})\n\n"
        f"{block.source}\n\ncompare(prediction, measured, {asked})"
    )
    own = Cell("code", f"{block.id}-prediction", prediction(block), block.id)
    return [*cells, own, Cell("code", block.id, experiment, block.id)]


def context_of(cells: Sequence[Cell], exercise: Exercise, lesson: Lesson) -> str:
    """Code that gives a student's cell the names which the notebook gives it: what the locked cells
    above it bring, and the definitions of earlier exercises as imports from the package."""
    parts = []
    for cell in cells:
        if cell.id == exercise.id:
            break
        if cell.kind == "given":
            parts.append(cell.source.removeprefix("from __future__ import annotations"))
    earlier = [e for e in lesson.exercises if e.line < exercise.line]
    targets: list[Target] = [t for e in earlier for t in e.targets if t.op is None]
    parts += [f"from {t.module} import {t.owner or t.name}" for t in targets]
    return "\n".join(parts)
