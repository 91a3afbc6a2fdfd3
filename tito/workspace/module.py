"""What a student does with a module: begin, complete and reset it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tito.lessons.cells import context_of
from tito.lessons.model import Exercise, Lesson
from tito.lessons.notebook import notebook as build
from tito.lessons.source import Package
from tito.scratch import Scratch
from tito.workspace import completed, course, integration, notebook, package, state
from tito.workspace.completed import Completed, Piece
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.integration import Integration
from tito.workspace.run import Result
from tito.workspace.share import Share, measure
from tito.workspace.update import digest_of, sources_of

TO = {"ipynb": "ipynb", "py": "py:percent"}  # as jupytext calls the formats


class NotReady(WorkspaceError):
    """A module cannot be completed as it is; nothing was changed."""


@dataclass(frozen=True)
class Completion:
    """What completing a module came to.

    Attributes:
        lines: lines of code of each definition that is now the student's.
        share: what of it the integration tests ran.
    """

    lines: dict[str, int]
    integration: Integration
    share: Share


def now() -> str:
    """The moment, with the time zone."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def write_file(workspace: Workspace, lesson: Lesson, form: str, *, anew: bool = False) -> Path:
    """Write a lesson's file without answers, and remember it as written by tito.

    A file that is there and was not edited is brought up to date; an edited one, in whatever
    format, stays.

    Args:
        anew: in place of edited ones as well, which the caller has kept.
    """
    fresh = build(course.cells(lesson), student=True)
    text = notebook.render(fresh, form)
    with state.edit(workspace) as remembered:
        module = remembered.module(lesson.slug)
        there = notebook.files(workspace.root, lesson.folder)
        ours = [p for p in there if anew or notebook.digest(p.read_bytes()) == module.written]
        edited = [p for p in there if p not in ours]
        path = edited[-1] if edited else workspace.root / f"{lesson.folder}.{form}"
        if not edited:
            state.write(path, text)
            module.written = notebook.digest(text.encode())
            module.lesson, module.sources = digest_of(fresh), sources_of(lesson)
        for other in ours:
            if other != path:
                other.unlink()
    return path


def form_of(workspace: Workspace, lesson: Lesson) -> str:
    """The format of a lesson's file, "ipynb" or "py"; without one that of the workspace."""
    path = notebook.find(workspace.root, lesson.folder)
    return path.suffix.removeprefix(".") if path else state.load(workspace).format


def start(workspace: Workspace, lesson: Lesson, form: str | None = None) -> Path:
    """Begin a module; its file, which is written if it is not there.

    Raises:
        WorkspaceError: another format is asked for than that of the file they have worked in.
    """
    path = write_file(workspace, lesson, form or form_of(workspace, lesson))
    if form is not None and path.suffix != f".{form}":
        raise WorkspaceError(
            f"you have worked in {path.name}: convert it, with "
            f"`jupytext --to {TO[form]} {path.name}`"
        )
    with state.edit(workspace) as remembered:
        module = remembered.module(lesson.slug)
        module.started = module.started or now()
    return path


def file_of(workspace: Workspace, lesson: Lesson) -> Path:
    """The student's file of a module.

    Raises:
        WorkspaceError: there is none.
    """
    if (path := notebook.find(workspace.root, lesson.folder)) is None:
        raise WorkspaceError(
            f"there is no {lesson.folder}.ipynb and no {lesson.folder}.py in {workspace.root}: "
            f"begin with `tito module start {lesson.number:02}`"
        )
    return path


def remember(workspace: Workspace, result: Result) -> None:
    """Note which tests passed, where that can be written."""
    if not state.is_writable(workspace):
        return
    with state.edit(workspace) as remembered:
        module = remembered.module(result.lesson.slug)
        module.started = module.started or now()
        module.passed, module.points = result.passed_tests, result.points


def complete(workspace: Workspace, result: Result) -> Completion:
    """Put the answers of a lesson whose tests pass into the student's package.

    The package is first made elsewhere, and the integration tests of this and of all completed
    modules run on it there.

    Raises:
        NotReady: a test fails, the code has no place in the package, or the package does not work
            with it. Nothing was changed.
    """
    lesson = result.lesson
    if not result.passed:
        raise NotReady("not all tests pass")
    new = Completed(lesson.slug, now(), result.points, tuple(_pieces(result)))
    others = [c for c in completed.load(workspace) if c.slug != lesson.slug]
    everything = [*others, new]
    mine = sorted(completed.definitions(everything))
    with Scratch(prefix="tito-") as folder:
        candidate = Path(folder).resolve()
        problems = package.make_elsewhere(candidate, workspace, _all_pieces(everything))
        if wrong := [text for piece, text in problems if piece in new.pieces]:
            raise NotReady("\n".join(wrong))
        files = [(c.slug, f) for c in everything if (f := course.integration_file(c.slug))]
        tested = integration.run(candidate, files, workspace.root)
        share = measure(candidate, tested.trace, new.definitions, [])
    if tested.failed:
        raise NotReady(_broken(tested))
    completed.save(workspace, new)
    refresh(workspace)
    lines = package.lines_of_code(workspace.root, mine)
    return Completion({d: lines[d] for d in new.definitions}, tested, share)


def _pieces(result: Result) -> list[Piece]:
    cells = course.cells(result.lesson)
    return [
        Piece(
            answer.exercise.id,
            tuple(map(str, answer.exercise.targets)),
            answer.cell or "",
            context_of(cells, answer.exercise, result.lesson),
        )
        for answer in result.answers
    ]


def _all_pieces(modules: Sequence[Completed]) -> list[Piece]:
    return [piece for module in modules for piece in module.pieces]


def _broken(tested: Integration) -> str:
    lines = ["your code passes its tests, but the framework does not work with it:"]
    for held in tested.failed:
        assert held.failure is not None
        where = f", of the module {held.slug}" if held.slug else ""
        lines.append(f"  does not hold: {held.says}{where}")
        said = f"{held.failure.type}: {held.failure.message}"
        lines += [f"    {line}" for line in said.splitlines()]
    return "\n".join(lines)


def refresh(workspace: Workspace) -> package.Report:
    """Bring the package to what was completed and what the reference says today."""
    return package.make(workspace, _all_pieces(completed.load(workspace)))


def reset(workspace: Workspace, lesson: Lesson) -> list[Path]:
    """Begin a module anew; returns the backups of the file and of what was completed.

    They are copies, made before anything changes: on a full disk all is as it was.
    """
    there = notebook.files(workspace.root, lesson.folder)
    done = completed.path_of(workspace, lesson.slug)
    kept = [workspace.keep(path) for path in (*there, done) if path.exists()]
    form = form_of(workspace, lesson)
    with state.edit(workspace) as remembered:
        remembered.modules.pop(lesson.slug, None)
    write_file(workspace, lesson, form, anew=True)
    done.unlink(missing_ok=True)
    start(workspace, lesson)
    refresh(workspace)
    return kept


def current(workspace: Workspace, lesson: Lesson) -> Exercise:
    """The first exercise whose tests the last run did not all pass; the last if all pass."""
    passed = state.load(workspace).module(lesson.slug).passed
    for exercise in lesson.exercises:
        if any(test.id not in passed for test in lesson.tests if test.exercise == exercise.id):
            return exercise
    return lesson.exercises[-1]


def next_hint(workspace: Workspace, lesson: Lesson, exercise: Exercise) -> int:
    """The number of the hint to show now; one more than there are when all were shown, or when the
    folder is read-only, where nobody knows which were."""
    if not state.is_writable(workspace):
        return len(exercise.hints) + 1
    with state.edit(workspace) as remembered:
        hints = remembered.module(lesson.slug).hints
        number = min(hints.get(exercise.id, 0), len(exercise.hints)) + 1
        hints[exercise.id] = min(number, len(exercise.hints))
    return number


def next_lesson(workspace: Workspace) -> Lesson | None:
    """The first module that is begun and not completed; without one the first to begin; None if
    all are completed."""
    done = {c.slug for c in completed.load(workspace)}
    begun = state.load(workspace).modules
    left = [lesson for lesson in course.lessons() if lesson.slug not in done]
    started = [x for x in left if x.slug in begun and begun[x.slug].started]
    return next(iter([*started, *left]), None)


def pairs(
    workspace: Workspace, lesson: Lesson, exercises: Sequence[Exercise]
) -> list[tuple[str, str, str]]:
    """Each definition of exercises: where it is, the student's source, and ours.

    Raises:
        WorkspaceError: the module is not completed.
    """
    done = {
        text for c in completed.load(workspace) if c.slug == lesson.slug for text in c.definitions
    }
    wanted = [target for exercise in exercises for target in exercise.targets]
    if not all(str(target) in done for target in wanted):
        raise WorkspaceError(
            f"our code is shown when yours is complete: tito module complete {lesson.number:02}"
        )
    refresh(workspace)
    mine, ours = Package(workspace.root), package.reference()
    return [(str(t), *(p.find(t).without_docstring() for p in (mine, ours))) for t in wanted]
