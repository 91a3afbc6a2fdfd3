"""Hints lead to an answer, and do not hand it out: the last one is nearly the line."""

from __future__ import annotations

import ast
import io
import re
import tokenize

import pytest

from tito.lessons.build import Course
from tito.lessons.model import Lesson
from tito.lessons.source import Package
from tito.scripts import ROOT

COURSE, PACKAGE = Course.load(ROOT), Package(ROOT)
RUN = 4  # tokens, so many of which in a row count as copied
MOST = 0.65  # of an answer; a line of the gradients' table is hardly more than its formula


def runs(code: str) -> set[tuple[str, ...]]:
    words = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            words += [token.string] * bool(token.string.strip())
    except tokenize.TokenError:  # a part of a line
        pass
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


@pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.slug)
def test_no_answer_is_in_its_hints(lesson: Lesson) -> None:
    for exercise in lesson.exercises:
        codes = re.findall(r"`([^`]+)`", " ".join(exercise.hints))
        told = set().union(*(runs(" ".join(code.split())) for code in codes))
        for target in exercise.targets:
            found = PACKAGE.find(target)
            body = getattr(found.node, "body", [found.node])
            answer = runs("\n".join(map(ast.unparse, body[found.docstring is not None :])))
            assert len(answer & told) <= MOST * len(answer), f"{exercise.id}: {target.name}"
