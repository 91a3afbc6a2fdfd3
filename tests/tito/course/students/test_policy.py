"""Deadlines, free late days and the penalty."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tito.course.students.policy import Handed, Late, Policy, PolicyError, parse_time

DUE = parse_time("2026-10-01 23:59 Europe/Berlin")


def handed(name: str, days: float, due: str = "2026-10-01 23:59 Europe/Berlin") -> Handed:
    deadline = parse_time(due)
    return Handed(name, deadline + timedelta(days=days), deadline)


def test_a_time_has_a_zone_and_is_one_that_clocks_show() -> None:
    assert DUE.isoformat() == "2026-10-01T21:59:00+00:00"
    assert parse_time("2026-10-01T21:59:00+00:00") == DUE
    assert parse_time("2026-10-01 21:59 UTC") == DUE
    for wrong in (
        "2026-10-01 23:59",
        "tomorrow",
        None,
        "2026-10-01 23:59 Mars/Base",
        "2026-13-01 1",
    ):
        with pytest.raises(PolicyError, match="is no time"):
            parse_time(wrong)
    with pytest.raises(PolicyError, match="clocks there skip it"):
        parse_time("2026-03-29 02:30 Europe/Berlin")


def test_a_late_day_has_begun_with_its_first_second() -> None:
    policy = Policy()
    late = {d: policy.late([handed("a", d)])["a"].days for d in (-1, 0, 1e-4, 1, 1.01)}
    assert late == {-1: 0, 0: 0, 1e-4: 1, 1: 1, 1.01: 2}


def test_minutes_of_grace_are_not_late_and_do_not_shorten_a_day() -> None:
    policy = Policy(grace_minutes=10)
    assert policy.late([handed("a", 9 / 1440)])["a"] == Late()
    assert policy.late([handed("a", 11 / 1440)])["a"].days == 1
    assert policy.late([handed("a", 1 + 1 / 1440)])["a"].days == 2


def test_free_days_are_spent_in_the_order_of_the_deadlines() -> None:
    policy = Policy(free_days=3)
    first, last = "2026-10-01 12:00 UTC", "2026-11-01 12:00 UTC"
    found = policy.late([handed("b", 2, last), handed("a", 1.5, first)])
    assert found == {"a": Late(2, 2), "b": Late(2, 1)}


def test_what_is_too_late_counts_nothing_and_spends_no_free_day() -> None:
    policy = Policy(free_days=2, penalty_per_day=0.1, most_days=5)
    found = policy.late(
        [handed("a", 6, "2026-10-01 12:00 UTC"), handed("b", 2, "2026-11-01 12:00 UTC")]
    )
    assert found == {"a": Late(6, 0, too_late=True), "b": Late(2, 2)}
    assert policy.penalty(found["a"], raw=7, max_score=10) == 7
    assert policy.penalty(found["b"], raw=7, max_score=10) == 0


def test_a_penalty_is_a_part_of_all_points_and_never_more_than_there_are() -> None:
    policy = Policy(penalty_per_day=0.25)
    assert policy.penalty(Late(days=2), raw=9, max_score=10) == 5
    assert policy.penalty(Late(days=2), raw=3, max_score=10) == 3


def test_without_a_time_or_a_deadline_nothing_is_late() -> None:
    assert Policy().late([Handed("a", None, DUE), Handed("b", DUE, None)]) == {}


@pytest.mark.parametrize(
    ("late", "said"),
    [({"free": 3}, "no such setting"), ({"free_days": -1}, "from 0 on"),
     ({"penalty_per_day": "10%"}, "'10%'"), ({"penalty_per_day": 10}, "not a part: 0.1"),
     ({"most_days": True}, "from 0 on")],
)  # fmt: skip
def test_wrong_settings_are_named(late: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Policy.read({}, late)
