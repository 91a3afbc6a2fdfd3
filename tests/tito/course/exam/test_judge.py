"""Verdicts on claims: the right value, the right number of them, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tito.course.exam.instrument import Site
from tito.course.exam.judge import TestKey, judge
from tito.course.exam.values import encode


def key(
    *sites: Site, expected: list[dict[str, Any]], local: frozenset[int] = frozenset()
) -> TestKey:
    return TestKey("test", True, "", sites, local, tuple(expected))


def claim(site: int, got: Any, **more: Any) -> dict[str, Any]:
    return {"site": site, "got": encode(got), **more}


def told(*claims: Any, error: Any = None) -> dict[str, Any]:
    return {"claims": list(claims), "error": error}


EQUAL = Site("equal", "f(2)", 1, "fixed")
FREE = Site("equal", "f(2)", 1, "free")
CLOSE = Site("close", "f(2)", 1, "fixed")
RAISES = Site("raises", "f(None)", 1, "fixed")
CHECK = Site("check", "f(2) > 1", 1, "free")
FOUR = {"site": 0, "expected": encode(4), "options": {"hint": "twice"}}


def test_the_right_value_passes() -> None:
    assert judge(key(EQUAL, expected=[FOUR]), told(claim(0, 4))).passed


@pytest.mark.parametrize("got", [5, 4.0, True, "4", None, object(), [4]])
def test_anything_else_does_not_and_the_message_helps(got: Any) -> None:
    verdict = judge(key(EQUAL, expected=[FOUR]), told(claim(0, got)))
    assert not verdict.passed
    assert verdict.message.startswith("f(2)")
    assert "hint:     twice" in verdict.message


def test_what_a_student_claims_to_be_expected_counts_for_nothing() -> None:
    claimed = claim(0, 5, expected=encode(5), held=True, passed=True)
    assert not judge(key(EQUAL, expected=[FOUR]), told(claimed)).passed


def test_where_the_value_is_the_students_own_both_are_compared() -> None:
    free = key(FREE, expected=[FOUR])
    assert judge(free, told(claim(0, 5, expected=encode(5)))).passed
    assert not judge(free, told(claim(0, 5, expected=encode(6)))).passed


def test_close_uses_the_tolerance_of_the_reference() -> None:
    expected = [{"site": 0, "expected": encode(1.0), "options": {"rtol": 0.1}}]
    assert judge(key(CLOSE, expected=expected), told(claim(0, 1.05))).passed
    assert not judge(key(CLOSE, expected=expected), told(claim(0, 1.2, options={"rtol": 9}))).passed


def raised(name: Any, message: str) -> dict[str, Any]:
    return told({"site": 0, "raised": name, "message": message})


def test_an_error_is_known_by_its_class_and_message() -> None:
    mine = key(RAISES, expected=[{"site": 0, "raised": "builtins.ValueError", "match": "none"}])
    assert judge(mine, raised("builtins.ValueError", "none here")).passed
    assert judge(mine, raised("tinytorch.errors.ShapeError", "none here")).passed
    assert not judge(mine, raised("builtins.ValueError", "other")).passed
    assert not judge(mine, raised("builtins.TypeError", "none")).passed
    returned = judge(mine, told({"site": 0, "returned": encode(3)}))
    assert "no error; it returned 3" in returned.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own: ValueError", "none"),
        ("__main__.All", "none"),
        ("os.ValueError", "none"),
        (["builtins.ValueError", "builtins.TypeError"], "none"),
        ("builtins.Exception", "none"),
        ("builtins.ValueError", "0" * 300 + "none"),  # every number and word there is
    ],
)
def test_an_error_that_would_be_any_error_is_none(name: Any, message: str) -> None:
    mine = key(RAISES, expected=[{"site": 0, "raised": "builtins.ValueError", "match": "none"}])
    assert not judge(mine, raised(name, message)).passed


def test_what_is_not_written_is_an_error_only_where_that_is_asked_for() -> None:
    """It is Python's special case of RuntimeError; and an answer may well be that there is none."""
    stub = raised("builtins.NotImplementedError", "not written yet")
    asked = {"site": 0, "raised": "builtins.RuntimeError", "match": ""}
    assert not judge(key(RAISES, expected=[asked]), stub).passed
    asked = {"site": 0, "raised": "builtins.NotImplementedError", "match": "sort"}
    assert not judge(key(RAISES, expected=[asked]), stub).passed
    assert judge(key(RAISES, expected=[asked]), raised(asked["raised"], "no sort")).passed


def test_only_true_itself_is_true() -> None:
    mine = key(CHECK, expected=[{"site": 0, "message": "too small", "options": {}}])
    assert judge(mine, told(claim(0, True))).passed
    for got in (1, "yes", [True], False):
        assert judge(mine, told(claim(0, got))).message == "too small"


def test_checks_that_never_ran_are_missed() -> None:
    mine = key(EQUAL, expected=[FOUR, FOUR | {"expected": encode(5)}])
    assert judge(mine, told(claim(0, 4), claim(0, 5))).passed
    assert "checked 1 times, expected 2" in judge(mine, told(claim(0, 4))).message
    assert not judge(mine, told()).passed
    assert not judge(mine, told(claim(0, 4), claim(0, 5), claim(0, 6))).passed


def test_a_loop_over_the_students_own_may_take_another_number_of_turns() -> None:
    same = key(EQUAL, expected=[FOUR, FOUR])
    for turns in (1, 2, 5):
        assert judge(same, told(*[claim(0, 4)] * turns)).passed
    assert not judge(same, told(*[claim(0, 4)] * 3, claim(0, 5))).passed
    assert not judge(same, told()).passed


def test_an_error_in_the_cell_is_told_with_the_students_line() -> None:
    frames = [
        {"file": "<test>", "line": 1, "function": "<module>", "code": ""},
        {"file": "<ipython-input-3-x>", "line": 2, "function": "f", "code": "return 1 / 0"},
    ]
    error = {"type": "ZeroDivisionError", "message": "division by zero", "frames": frames}
    verdict = judge(key(EQUAL, expected=[FOUR]), told(claim(0, 4), error=error))
    assert verdict.message == "ZeroDivisionError: division by zero\n  in f: return 1 / 0"


def test_a_cell_without_an_end_says_why() -> None:
    assert judge(key(EQUAL, expected=[FOUR]), None, "it hung").message == "it hung"


@pytest.mark.parametrize(
    "result",
    [
        {"claims": [{"site": 0}], "error": None},
        {"claims": [{"site": 0, "got": "no list"}], "error": None},
        {"claims": [3], "error": None},
        {"claims": [claim(0, 4)], "error": "text"},
        {"claims": [claim(0, 4)], "error": {"frames": 3}},
        {"claims": [{"site": [0], "got": encode(4)}], "error": None},
    ],
)
def test_nothing_that_is_sent_stops_the_judge(result: Any) -> None:
    assert not judge(key(EQUAL, expected=[FOUR]), result).passed


def test_objects_are_held_equal_where_they_are() -> None:
    mine = key(EQUAL, expected=[FOUR], local=frozenset([0]))
    assert judge(mine, told({"site": 0, "held": True, "message": ""})).passed
    assert judge(mine, told({"site": 0, "held": 1, "message": "no"})).message == "no"
