"""`tito lessons`: for authors, from lesson.md to notebooks and pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tito import console, scripts

if TYPE_CHECKING:
    from tito.lessons.build import Course
    from tito.lessons.model import Lesson, Problem
    from tito.lessons.proof import Proof

app = typer.Typer(no_args_is_help=True, help="Build and check the lessons of the course.")

Names = Annotated[
    list[str] | None,
    typer.Argument(help="Lessons by number, name or folder; without a name all of them."),
]
Root = Annotated[
    Path, typer.Option(help="The folder with modules/ and tinytorch/.", show_default=False)
]
Output = Annotated[Path, typer.Option(help="Where the built files go.")]
AsJson = Annotated[bool, typer.Option("--json", help="For a machine to read.")]
BUILT = Path("build/lessons")


def _course(root: Path) -> Course:
    """The course below a folder; what is wrong with it ends the command."""
    try:
        from tito.lessons.build import Course
    except ModuleNotFoundError as error:
        raise typer.BadParameter(str(error)) from None
    from tito.lessons.model import LessonError

    try:
        return Course.load(root)
    except LessonError as error:
        _show(error.problems)
        raise typer.Exit(1) from None


def _chosen(course: Course, names: list[str] | None) -> list[Lesson]:
    chosen = []
    for name in names or []:
        lesson = course.find(name)
        if lesson is None:
            known = [each.slug for each in course.lessons]
            raise typer.BadParameter(console.unknown("lesson", name, known))
        chosen.append(lesson)
    return chosen if names else list(course.lessons)


def _show(problems: list[Problem]) -> None:
    for problem in problems:
        console.errors.print(str(problem), markup=False, highlight=False, soft_wrap=True)


@app.command("list", epilog="Example: tito lessons list")
def list_lessons(root: Root = scripts.ROOT, as_json: AsJson = False) -> None:
    """Show the lessons."""
    course = _course(root)
    if as_json:
        fields = ("folder", "number", "slug", "title", "part", "needs", "hours", "points")
        console.print_json([{f: getattr(x, f) for f in fields} for x in course.lessons])
        return
    rows = [
        [f"{x.number:02}", x.slug, x.part, str(len(x.exercises)), str(x.points), f"{x.hours:g}"]
        for x in course.lessons
    ]
    console.print_rows(["", "name", "part", "exercises", "points", "hours"], rows)


@app.command(
    epilog="Examples:\n\ntito lessons build\n\ntito lessons build 02 --output build/lessons"
)
def build(names: Names = None, output: Output = BUILT, root: Root = scripts.ROOT) -> None:
    """Write instructor notebook, student notebook and page of each lesson."""
    from tito.lessons.build import build_lesson
    from tito.lessons.model import LessonError

    course = _course(root)
    failed = False
    for lesson in _chosen(course, names):
        try:
            files = build_lesson(course, lesson, output)
        except LessonError as error:
            _show(error.problems)
            failed = True
        else:
            written = f"{len(files)} files written" if files else "nothing has changed"
            console.out.print(f"{lesson.folder}: {written}", markup=False, highlight=False)
    raise typer.Exit(int(failed))


@app.command(epilog="Examples:\n\ntito lessons check\n\ntito lessons check tensor --json")
def check(names: Names = None, root: Root = scripts.ROOT, as_json: AsJson = False) -> None:
    """Say what is wrong with the lessons, each with its file and line.

    Exits with 1 if there is something.
    """
    from tito.lessons.check import check_whole

    course = _course(root)
    lessons = _chosen(course, names)
    problems = [p for each in lessons for p in check_whole(each, course.lessons, course.package)]
    if as_json:
        found = [{"path": str(p.path), "line": p.line, "message": p.message} for p in problems]
        console.print_json(found)
    else:
        _show(problems)
        if not problems:
            console.out.print(f"{len(lessons)} lessons, nothing wrong", highlight=False)
    raise typer.Exit(int(bool(problems)))


@app.command(epilog="Examples:\n\ntito lessons watch\n\ntito lessons watch --output /tmp/lessons")
def watch(output: Output = BUILT, root: Root = scripts.ROOT) -> None:
    """Build again whenever a lesson or the package changes, until Ctrl-C."""
    try:
        from tito.lessons.watch import changes, watch_lessons
    except ModuleNotFoundError as error:
        raise typer.BadParameter(str(error)) from None

    def built(files: list[Path]) -> None:
        for path in files:
            console.out.print(f"built {path}", markup=False, highlight=False, soft_wrap=True)

    watch_lessons(root, output, changes(root), built, _show)


@app.command(epilog="Examples:\n\ntito lessons prove\n\ntito lessons prove 02 --json")
def prove(names: Names = None, root: Root = scripts.ROOT, as_json: AsJson = False) -> None:
    """Prove that grading grades: unsolved scores 0, the reference all, each mistake its price,
    every small change to the reference less, and other right solutions all, in the package too.

    Exits with 1 if a lesson is not proved.
    """
    from dataclasses import asdict

    from rich.progress import Progress

    from tito.lessons.model import LessonError
    from tito.lessons.prove import attempts_of, prove_all

    course = _course(root)
    chosen = _chosen(course, names)
    proofs = []
    try:
        total = sum(attempts_of(course, lesson) for lesson in chosen)
        with Progress(console=console.errors, transient=True, disable=as_json) as progress:
            task = progress.add_task("", total=total)
            for lesson in chosen:
                progress.update(task, description=lesson.folder)
                proof = prove_all(course, lesson, lambda done: progress.advance(task, done))
                proofs.append(proof)
                for finding in () if as_json else proof.findings:
                    text = f"{lesson.folder}: {finding}"
                    console.errors.print(text, markup=False, highlight=False, soft_wrap=True)
    except LessonError as error:
        _show(error.problems)
        raise typer.Exit(1) from None
    if as_json:
        console.print_json([asdict(proof) for proof in proofs])
    else:
        _show_proofs(proofs)
    raise typer.Exit(int(any(proof.findings for proof in proofs)))


def _show_proofs(proofs: list[Proof]) -> None:
    columns = ["lesson", "", "attempts", "mutants", "equivalent", "seconds"]
    rows = []
    for proof in proofs:
        verdict = f"{len(proof.findings)} findings" if proof.findings else "proved"
        counts = (proof.attempts, proof.mutants, proof.equivalent)
        rows.append([proof.lesson, verdict, *map(str, counts), f"{proof.seconds:.1f}"])
    console.print_rows(columns, rows)
