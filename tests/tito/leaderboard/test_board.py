"""Ranks: ties where intervals overlap, the best of each person, machines apart."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, strategies as st

from tests.tito.leaderboard.conftest import Board, Measuring, told
from tito.leaderboard import events
from tito.leaderboard.board import ranks, record
from tito.leaderboard.jobs import MAX_ATTEMPTS
from tito.leaderboard.tables import Event
from tito.leaderboard.web import plots

INTERVALS = st.lists(
    st.tuples(st.floats(0.1, 10), st.floats(0, 1)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


@given(INTERVALS)
def test_a_rank_is_below_only_those_that_are_surely_faster(
    intervals: list[tuple[float, float]],
) -> None:
    for (low, high), rank in zip(intervals, ranks(intervals), strict=True):
        better = [a for a, _ in intervals if a > high]
        assert rank == len(better) + 1
        assert all(a > low for a in better)


@given(st.lists(st.floats(0.01, 100), max_size=10))
def test_plots_are_whole_svg(values: list[float]) -> None:
    drawn = [plots.spread(values), plots.record([(float(i), v) for i, v in enumerate(values)])]
    drawn += [plots.interval(v * 0.9, v, v * 1.1, v * 1.2) for v in values]
    for text in filter(None, drawn):
        root = ElementTree.fromstring(text)
        assert root.attrib["aria-label"] and "style" not in text and "nan" not in text


def rows(board: Board, who: str = "reader", machine: str | None = None) -> list[tuple[int, str]]:
    path = "/api/events/fast/board" + (f"?machine={machine}" if machine else "")
    found = board.instructor.api().get(path).json()
    return [(row["rank"], row["pseudonym"]) for row in found]


def test_the_best_of_each_counts_and_overlaps_share_a_rank(
    board: Board, measuring: Measuring
) -> None:
    ada, bob, eve = (board.join(name) for name in ("ada", "bob", "eve"))
    for who, mark, score in (
        (ada, "1", 2.0), (ada, "2", 1.0), (bob, "3", 2.01), (eve, "4", 1.5),
    ):  # fmt: skip
        board.submit(who, mark)
        measuring.measure(score)
    assert rows(board) == [(1, "bob"), (1, "ada"), (3, "eve")]


def test_machines_are_never_in_one_ranking(board: Board, measuring: Measuring) -> None:
    ada, bob = board.join("ada"), board.join("bob")
    for who, machine in ((ada, "old"), (bob, "new"), (ada, "new")):
        board.submit(who, f"{who.token[:5]} {machine}")
        measuring.measure(2.0, machine)
    assert rows(board) == [(1, "bob"), (1, "ada")]  # the class that most were measured on
    assert rows(board, machine="old") == [(1, "ada")]


def record_of(board: Board) -> list[float]:
    with board.database.read() as session:
        return [score for _, score in record(session, session.get_one(Event, 1))]


def test_hidden_and_disqualified_entries_are_not_on_the_board(
    board: Board, measuring: Measuring
) -> None:
    ada = board.join("ada")
    board.submit(ada)
    measuring.measure(2.0)
    assert board.instructor.post("/instructor/submissions/1/disqualify", reason=" ").status_code
    assert rows(board) == [(1, "ada")]
    for away, back, reason in (("hide", "show", ""), ("disqualify", "requalify", "calls BLAS")):
        board.instructor.post(f"/instructor/submissions/1/{away}", reason=reason)
        assert rows(board) == []
        assert record_of(board) == []  # its curve would tell the score
        if reason:
            assert f"Disqualified: {reason}" in ada.browser.get("/submissions/1").text
        board.instructor.post(f"/instructor/submissions/1/{back}")
        assert rows(board) == [(1, "ada")]
        assert record_of(board) == [2.0]
    log = board.instructor.browser.get("/instructor/audit").text
    assert all(word in log for word in ("disqualify", "calls BLAS", "hide", "submission 1"))


def test_closing_measures_the_first_again_and_shows_the_code(
    board: Board, measuring: Measuring
) -> None:
    ada, bob = board.join("ada"), board.join("bob")
    board.submit(ada, "of ada")
    board.submit(bob, "of bob")
    measuring.measure(3.0)
    measuring.measure(2.0)
    assert "of ada" not in bob.browser.get("/submissions/1").text
    board.instructor.post("/instructor/events/1/state", state="closing")
    late = board.submit(ada, "late")
    assert late.status_code == 400 and "the event fast is closing" in late.text
    job = measuring.take()
    assert [e["name"] for e in job["entries"]] == ["submission 1", "submission 2"]
    assert job["launches"] == 4 and job["beside"] == []
    measuring.finish(job, told("numpy", 1.0), told("submission 1", 2.0), told("submission 2", 4.0))
    assert rows(board) == [(1, "bob"), (2, "ada")]  # the final run counts
    assert "closed" in board.instructor.browser.get("/events/1").text
    assert "of ada" in bob.browser.get("/submissions/1").text
    wrong = board.instructor.post("/instructor/events/1/state", state="open")
    assert wrong.status_code == 400 and "closed cannot become open" in wrong.text


def test_an_event_is_not_closed_while_entries_wait_to_be_measured(
    board: Board, measuring: Measuring
) -> None:
    """Or the best of all, handed in just before the deadline, would not be in the final run."""
    board.submit(board.join("ada"), "slow")
    board.submit(board.join("bob"), "fast")
    measuring.measure(2.0)
    taken = measuring.take()
    for path in ("frozen", "closing"):
        answer = board.instructor.post("/instructor/events/1/state", state=path)
    assert answer.status_code == 400 and "1 of the entries of fast are not measured" in answer.text
    assert "the event fast is frozen" in board.submit(board.join("eve"), "late").text
    measuring.finish(taken, told("numpy", 1.0), told("submission 2", 5.0))
    board.instructor.post("/instructor/events/1/state", state="closing")
    assert [e["name"] for e in measuring.take()["entries"]] == ["submission 2", "submission 1"]


def test_a_final_run_is_taken_on_the_board_s_kind_of_machine(
    board: Board, measuring: Measuring
) -> None:
    other = Measuring(board, "runner two")
    for who, runner, machine in (("ada", measuring, "fast"), ("bob", measuring, "fast"),
                                 ("eve", other, "slow")):  # fmt: skip
        board.submit(board.join(who), who)
        runner.measure(2.0, machine)
    board.instructor.post("/instructor/events/1/state", state="closing")
    assert other.take() is None and Measuring(board, "runner three").take() is None
    job = measuring.take()
    measuring.finish(
        job, told("numpy", 1.0), told("submission 1", 1.0), told("submission 2", 4.0),
        machine="fast",
    )  # fmt: skip
    assert rows(board) == [(1, "bob"), (2, "ada")]


def test_a_final_run_that_waits_for_long_is_for_any_runner(
    board: Board, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.submit(board.join("ada"))
    measuring.measure(2.0)
    board.instructor.post("/instructor/events/1/state", state="closing")
    other = Measuring(board, "runner two")
    assert other.take() is None
    monkeypatch.setattr(events, "FINAL_WAIT", 0.0)
    assert [e["name"] for e in other.take()["entries"]] == ["submission 1"]


def test_what_is_measured_again_after_the_final_run_counts(
    board: Board, measuring: Measuring
) -> None:
    board.submit(board.join("ada"))
    measuring.measure(3.0)
    board.instructor.post("/instructor/events/1/state", state="closing")
    measuring.measure(2.0)
    assert record_of(board) == [2.0]
    board.instructor.post("/instructor/submissions/1/again")
    measuring.measure(2.5)
    assert record_of(board) == [2.5]


def test_a_final_run_that_fails_takes_no_score_away(board: Board, measuring: Measuring) -> None:
    board.submit(board.join("ada"))
    measuring.measure(3.0)
    board.instructor.post("/instructor/events/1/state", state="closing")
    for _ in range(MAX_ATTEMPTS):
        measuring.finish(measuring.take(), told("submission 1", 2.0, "noisy"))
    assert rows(board) == [(1, "ada")]


def test_a_duel_is_of_two_entries_in_one_run(board: Board, measuring: Measuring) -> None:
    ada, bob, eve = (board.join(name) for name in ("ada", "bob", "eve"))
    for who in (ada, bob):
        board.submit(who, who.token[:6])
        measuring.measure(2.0)
    assert eve.post("/duels", first=1, second=2).status_code == 403
    assert ada.post("/duels", first=1, second=1).status_code == 400
    page = ada.post("/duels", first=1, second=2)
    assert page.status_code == 200 and "waiting" in page.text
    assert "is not measured yet" in ada.post("/duels", first=1, second=2).text
    job = measuring.take()
    measuring.finish(job, told("numpy", 1.0), told("submission 1", 4.0), told("submission 2", 2.0))
    shown = ada.browser.get("/duels/3").text
    assert "launches from 2.000 to 2.000" in shown
    assert rows(board) == [(1, "bob"), (1, "ada")] or rows(board) == [(1, "ada"), (1, "bob")]
