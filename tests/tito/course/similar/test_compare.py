"""Pairs: what the course and the class explain is taken off, and nothing is judged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tito.course.conftest import ASSIGNMENT, DOUBLE, submission, write
from tito.course.config import Course
from tito.course.similar import compare
from tito.course.similar.compare import report, similar
from tito.course.similar.page import page
from tito.course.similar.winnow import fingerprints

OWN = """
def clamp(x):
    result = np.zeros(x.shape, dtype=x.dtype)
    for index in np.ndindex(*x.shape):
        entry = x[index]
        if entry > 0:
            result[index] = entry
        else:
            result[index] = entry - entry
    return result
"""
COPIED = re.sub(r"\bindex\b", "i", OWN.replace("result", "answer").replace("entry", "e"))
OTHER = """
def clamp(x):
    mask = (x > 0).astype(x.dtype)
    flat = [a * b for a, b in zip(x.ravel(), mask.ravel(), strict=True)]
    return np.array(flat, dtype=x.dtype).reshape(x.shape)
"""


def test_a_renamed_copy_is_the_first_pair(hand_in: Callable[..., Path], course: Course) -> None:
    hand_in("ada", submission(write("clamp", OWN)))
    hand_in("bob", submission(write("clamp", COPIED)))
    hand_in("eve", submission(write("clamp", OTHER)))
    hand_in("ref", submission())
    hand_in("two", submission())
    hand_in("bad", "no notebook")
    found = report(course, ASSIGNMENT)
    (pair,) = found.pairs  # what equals the reference is no pair, and the tests are not compared
    assert (pair.left, pair.right, pair.part) == ("ada", "bob", 1.0)
    (shared,) = pair.exercises
    assert shared.exercise == "clamp"
    assert set(range(4, 11)) <= set(shared.left) == set(shared.right)
    assert found.skipped["bad"].startswith("it is not JSON")
    text = page(found)
    assert "ada and bob" in text
    assert "answer = np.zeros(x.shape, dtype=x.dtype)" in text
    assert "http" not in text


def test_what_the_course_gave_is_nobodys(course: Course) -> None:
    both = {"ada": {"double": DOUBLE}, "bob": {"double": DOUBLE.replace("x", "y")}}
    assert similar(both, [{"double": DOUBLE}]) == []
    assert len(similar(both, [])) == 1


def test_what_many_write_is_the_usual_way() -> None:
    class_ = {f"s{i}": {"clamp": OWN} for i in range(6)}
    assert similar(class_, []) == []
    few = {"ada": {"clamp": OWN}, "bob": {"clamp": COPIED}}
    others = {f"s{i}": {"clamp": OTHER.replace("1", str(i))} for i in range(4)}
    (pair,) = [p for p in similar({**few, **others}, []) if p.left == "ada"]
    assert pair.right == "bob"


def test_text_of_a_students_only_shows(hand_in: Callable[..., Path], course: Course) -> None:
    hostile = OWN + "\ntext = '<script>alert(1)</script>'\n"
    hand_in("ada", submission(write("clamp", hostile)))
    hand_in("bob", submission(write("clamp", hostile)))
    text = page(report(course, ASSIGNMENT))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_in_a_class_of_300_each_solution_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 44,850 pairs."""
    read: list[object] = []

    def counted(*arguments: Any) -> Any:
        read.append(arguments)
        return fingerprints(*arguments)

    monkeypatch.setattr(compare, "fingerprints", counted)
    sums = ["+".join("x" * (i % 40 + 2)) for i in range(300)]
    texts = {f"s{i}": {"clamp": f"{OWN}y = {each}\n"} for i, each in enumerate(sums)}
    pairs = similar(texts, [])
    assert len(read) == len(texts)
    json.dumps([pair.part for pair in pairs])
