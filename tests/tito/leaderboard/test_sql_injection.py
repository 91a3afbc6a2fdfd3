"""Whatever text comes in, it is a value of a query and never a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.tito.leaderboard.conftest import ENTRY, Board, Measuring, told
from tito.leaderboard.tables import Base
from tito.leaderboard.web.signin import COOKIE

MARK = "zqx"
ATTACKS = [
    f"{MARK}' OR '1'='1",
    f"{MARK}'; DROP TABLE person; --",
    f'{MARK}" OR 1=1 --',
    f"{MARK}') UNION SELECT hash, hash, hash FROM token --",
    f"0 OR 1=1 /*{MARK}*/",
]


@pytest.fixture
def statements(board: Board) -> Iterator[list[tuple[str, Any]]]:
    """Texts of the queries that the database is sent, and their values."""
    found: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, values: Any, *rest: Any) -> None:
        found.append((statement, values))

    event.listen(board.database.engine, "before_cursor_execute", note)
    yield found
    event.remove(board.database.engine, "before_cursor_execute", note)


def rows_of(board: Board) -> dict[str, int]:
    with board.database.read() as session:
        return {t.name: len(session.execute(t.select()).all()) for t in Base.metadata.sorted_tables}


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("attack", ATTACKS)
def test_sql_injection(
    board: Board, measuring: Measuring, statements: list[tuple[str, Any]], attack: str
) -> None:
    """By every way in: addresses, headers, forms, files, and what a runner says."""
    ada = board.join("ada")
    teacher = board.instructor
    before = rows_of(board)
    statements.clear()
    stranger = board.instructor.browser.__class__(board.app)
    stranger.cookies.set(COOKIE, "".join(c for c in attack if c not in '";'))
    refused = [
        stranger.get("/", follow_redirects=False),
        stranger.get("/api/events", headers={"Authorization": f"Bearer {attack}"}),
        stranger.post("/sign-in", data={"token": attack}),
        stranger.post("/join", data={"secret": attack, "pseudonym": "eve"}),
        ada.api().get(f"/api/events/{attack}/board"),
        ada.api().post(f"/api/events/{attack}/submissions", content=ENTRY.encode()),
        ada.api().get(f"/api/submissions/{attack}"),
        ada.browser.get(f"/events/{attack}"),
        ada.post("/duels", first="1", second=attack),
        ada.post(f"/account/tokens/{attack}/revoke"),
        teacher.post("/instructor/classes", name=attack),
        teacher.post("/instructor/events", classroom="1", name=attack, based_on="matmul"),
        teacher.post("/instructor/events", classroom="1", name="x-y", based_on=attack),
        teacher.post("/instructor/events/1/state", state=attack),
        teacher.post(f"/instructor/submissions/{attack}/hide"),
    ]
    assert {r.status_code for r in refused} <= {303, 400, 401, 403, 404, 422}
    assert rows_of(board) == before
    shown = ada.browser.get("/events/1", params={"machine": attack})
    assert shown.status_code == 200 and "submission 1" not in shown.text
    assert ada.post("/account/tokens", label=attack).status_code == 200
    assert board.submit(ada, attack).status_code == 200
    job = measuring.take()
    scores = told("submission 1", 2.0, text=attack)
    assert measuring.finish(job, told("numpy", 1.0), scores, machine=attack).status_code == 204
    teacher.post("/instructor/submissions/1/disqualify", reason=attack)
    after = rows_of(board)
    assert after["person"] == before["person"] and after["submission"] == 1
    assert not [text for text, _ in statements if MARK in text]
    assert sum(MARK in str(values) for _, values in statements) >= 5  # they did come through
