"""All of a lesson's proof: its attempts, its mutants, and other right solutions in the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tito.lessons.build import Course
from tito.lessons.mistake import load_alternatives, load_equivalents
from tito.lessons.model import Lesson
from tito.lessons.mutants import count_mutants, run_mutants
from tito.lessons.proof import Proof, prove_lesson
from tito.workspace.alternatives import integrate

Progress = Callable[[int], None]


def prove_all(course: Course, lesson: Lesson, progress: Progress = lambda done: None) -> Proof:
    """Prove a lesson.

    Args:
        progress: is told how many more solutions have been run, `attempts_of` in all.

    Raises:
        LessonError: it cannot be built.
        TypeError: its mistakes.py is not as it should be.
    """
    beside = lesson.path.with_name("mistakes.py")
    proof = prove_lesson(course, lesson)
    progress(1)
    cells, equivalent = course.cells(lesson), load_equivalents(beside)
    mutants = run_mutants(lesson, cells, equivalent, course.root, progress=progress)
    broken = integrate(course, lesson, load_alternatives(beside))
    return replace(
        proof,
        findings=(*proof.findings, *mutants.findings, *broken),
        mutants=mutants.count,
        equivalent=mutants.equivalent,
    )


def attempts_of(course: Course, lesson: Lesson) -> int:
    """How much `prove_all` has to do: its mutants, and everything else as one.

    Raises:
        LessonError: the lesson cannot be built.
    """
    return 1 + count_mutants(lesson, course.cells(lesson))
