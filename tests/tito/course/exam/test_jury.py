"""Verdicts found in a child: the same as here, and none that keeps the class waiting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tito import sandbox
from tito.course.exam import jury
from tito.course.exam.instrument import Site
from tito.course.exam.job import InfrastructureError
from tito.course.exam.judge import TestKey
from tito.course.exam.jury import Jury
from tito.course.exam.values import encode

pytestmark = needs_sandbox
SITES = (Site("equal", "f(2)", 1, "fixed"),)
KEY = TestKey("t", True, "", SITES, frozenset(), ({"site": 0, "expected": encode(4)},))
PRIME = (1 << 61) - 1  # of Python's hash of integers: its multiples all have the hash 0


def claimed(value: list[Any]) -> dict[str, Any]:
    return {"claims": [{"site": 0, "got": value}], "error": None}


@pytest.fixture(scope="module")
def court() -> Iterator[Jury]:
    with Jury() as court:
        yield court


def test_it_says_what_the_judge_says(court: Jury) -> None:
    assert court.judge(KEY, claimed(encode(4))).passed
    wrong = court.judge(KEY, claimed(encode(5)))
    assert (wrong.passed, wrong.message.splitlines()[1]) == (False, "  expected: 4")
    assert court.judge(KEY, None, "it hung").message == "it hung"
    assert not court.judge(KEY, claimed(["no value"])).passed


def test_keys_that_collide_have_a_deadline(court: Jury, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jury, "SECONDS", 0.5)
    items = [["tuple", [["int", hex(i * PRIME)], ["none"]]] for i in range(50_000)]
    verdict = court.judge(KEY, claimed(["dict", items]))
    assert (verdict.passed, verdict.message) == (False, jury.TOO_LONG.format(0.5))
    monkeypatch.undo()
    assert court.judge(KEY, claimed(encode(4))).passed  # the next one is not harmed


def test_a_judge_that_has_died_is_replaced(court: Jury) -> None:
    assert court.judge(KEY, claimed(encode(4))).passed
    assert court.child is not None
    os.kill(court.child.pid, 9)
    assert court.judge(KEY, claimed(encode(4))).passed


def test_a_judge_that_does_not_start_is_no_fault_of_the_student(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jury, "MEMORY_BYTES", 50 << 20)
    with Jury() as court, pytest.raises(InfrastructureError, match="the judge does not start"):
        court.judge(KEY, claimed(encode(4)))


def test_without_a_sandbox_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bwrap is not installed")
    with pytest.raises(InfrastructureError, match="bwrap is not installed"):
        Jury().judge(KEY, claimed(encode(4)))
    with Jury(confined=False) as court:
        assert court.judge(KEY, claimed(encode(4))).passed
