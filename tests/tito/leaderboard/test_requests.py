"""Requests by hand, and several at once."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.tito.leaderboard.conftest import ENTRY, Board, Measuring, TestClient, report, told
from tito.compete.event import EventError
from tito.leaderboard import events
from tito.leaderboard.tables import Event, Person
from tito.leaderboard.web import guard
from tito.leaderboard.web.signin import COOKIE


def test_an_event_does_not_close_while_an_entry_is_being_taken(
    board_on_either: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in an event whose code is shown, and never be measured."""
    board, ada = board_on_either, board_on_either.join("ada")
    why_closed = events.why_closed
    said: list[str] = []

    def close() -> None:
        with board.database.write() as session:
            event, teacher = session.get_one(Event, 1), session.get_one(Person, 1)
            try:
                events.change_state(session, teacher, event, "closing")
            except EventError as error:
                said.append(str(error))

    closing = threading.Thread(target=close)

    def is_being_closed(event: Event, arrived: float) -> str | None:
        found = why_closed(event, arrived)
        closing.start()
        closing.join(0.5)  # it waits for this entry
        return found

    monkeypatch.setattr(events, "why_closed", is_being_closed)
    text = ENTRY.format(mark="").encode()
    assert ada.api().post("/api/events/fast/submissions", content=text).status_code == 201
    closing.join()
    assert len(said) == 1 and "1 of the entries of fast are not measured yet" in said[0]


@pytest.mark.parametrize("by", ["form", "token"])
def test_an_entry_that_arrived_in_time_is_taken_after_the_deadline(
    board: Board, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last seconds many write, and each waits for those before it."""
    ada = board.join("ada")
    text, csrf, api = ENTRY.format(mark="").encode(), ada.csrf(), ada.api()
    write, has_arrived = board.database.write, threading.Event()

    def send() -> int:
        if by == "token":
            return int(api.post("/api/events/fast/submissions", content=text).status_code)
        file = {"file": ("mine.py", text)}
        sent = ada.browser.post("/events/1/submissions", data={"csrf": csrf}, files=file)
        return int(sent.status_code)

    def write_after_all_others() -> AbstractContextManager[Session]:
        has_arrived.set()
        return write()

    with ThreadPoolExecutor(1) as pool:
        with write() as session:  # SQLite has one writer at a time
            monkeypatch.setattr(board.database, "write", write_after_all_others)
            sent = pool.submit(send)
            assert has_arrived.wait(60)
            session.get_one(Event, 1).deadline = time.time()
        assert sent.result() in (200, 201)
    assert board.submit(ada, "late").status_code == 400


def test_one_duel_at_a_time_also_of_requests_at_once(board_on_either: Board) -> None:
    board, ada = board_on_either, board_on_either.join("ada")
    for mark in "ab":
        assert board.submit(ada, mark).status_code == 200
    csrf, number = ada.csrf(), 6
    browsers = [TestClient(board.app, cookies=ada.browser.cookies) for _ in range(number)]
    fields = {"csrf": csrf, "first": "1", "second": "2"}
    with ThreadPoolExecutor(number) as pool:
        ask = partial(TestClient.post, url="/duels", data=fields, follow_redirects=False)
        codes = sorted(answer.status_code for answer in pool.map(ask, browsers))
    assert codes == [303] + [400] * (number - 1)


@pytest.mark.parametrize("path", ["/account/tokens", "/api/events/fast/submissions"])
def test_what_is_beside_a_secret_makes_nobody_another(path: str) -> None:
    """With a cookie of their own beside the session's, they could send as much as they liked."""
    limit = guard.RateLimit(lambda *_: None)  # type: ignore[arg-type,return-value]
    scope = {"type": "http", "method": "POST", "path": path, "client": ("192.0.2.1", 1)}
    waits = []
    for number in range(40):
        secret = f"{COOKIE}=mine; other={number}" if path == "/account/tokens" else f"o={number}"
        token = f"{'bearer' if number % 2 else 'Bearer'} {' ' * number}mine"
        if path == "/account/tokens":
            token += str(number)
        headers = [(b"cookie", secret.encode()), (b"authorization", token.encode())]
        waits.append(limit._wait({**scope, "headers": headers}))
    assert waits[0] == 0.0 and waits[-1] > 0.0


def test_what_the_guards_refuse_is_a_page_for_people(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that joins within a minute from one address had JSON in its browsers."""
    large = {"file": ("mine.py", b"#" * (guard.BODY_BYTES + 1))}
    answers = [board.instructor.browser.post("/events/1/submissions", files=large)]
    monkeypatch.setattr(guard.RateLimit, "_wait", lambda self, scope: 5.5)
    answers.append(TestClient(board.app).post("/join", data={"secret": "x"}))
    for answer, said in zip(answers, ("at most 524,288 bytes", "try again in 6 s"), strict=True):
        assert answer.headers["content-type"].startswith("text/html")
        assert "<h1>This did not work</h1>" in answer.text and said in answer.text
    assert [answer.status_code for answer in answers] == [413, 429]
    assert board.instructor.api().post("/api/x").json() == {
        "detail": "too many requests: try again in 6 s"
    }


def test_only_runners_may_send_large_bodies(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept until they are whole: thirty of anybody's took half a gigabyte."""
    path, body = "/api/runner/jobs/1/result", b"[" * (guard.BODY_BYTES + 1)
    stranger = TestClient(board.app)
    assert stranger.post(path, content=body).status_code == 413
    assert stranger.post(path, content=b"{}").status_code == 401
    assert board.join("ada").api().post(path, content=body).status_code == 413
    runner = Measuring(board).api
    assert runner.post(path, content=body).status_code == 422

    def away() -> None:
        raise OperationalError("SELECT 1", {}, ConnectionError())

    monkeypatch.setattr(board.database, "read", away)
    assert runner.post(path, content=body).status_code == 503  # and the runner sends it again


def test_an_event_of_two_classes_is_not_guessed(board: Board) -> None:
    """An instructor sees both, and their entry went into the newest one."""
    board.instructor.post("/instructor/classes", name="another class")
    board.instructor.post("/instructor/events", classroom=2, name="fast", based_on="matmul")
    teacher, ada = board.instructor.api(), board.join("ada").api()
    assert ada.get("/api/events/fast/board").status_code == 200
    answer = teacher.get("/api/events/fast/board")
    assert answer.status_code == 404 and "2 classes have an event 'fast'" in answer.text


def test_no_line_of_the_log_is_forged(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tito.leaderboard")
    board.instructor.browser.get("/nowhere%0aGET / 200%1b[2J%c2%9b2J")
    (line,) = [r.getMessage() for r in caplog.records if "nowhere" in r.getMessage()]
    assert line.startswith(r"GET /nowhere\nGET / 200\x1b[2J\x9b2J 404")


@pytest.mark.parametrize("field", ["label", "csrf"])
def test_a_form_with_half_a_letter_is_refused(board: Board, field: str) -> None:
    """In a charset of its own choice: no database has a place for it, and no page can show it."""
    fields = {"csrf": board.instructor.csrf(), field: "\\ud800"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=x; charset=unicode_escape"}
    answer = board.instructor.browser.post(
        "/account/tokens", content="".join([*parts, "--x--\r\n"]), headers=headers
    )
    assert answer.status_code in (200, 422) and "\ud800" not in answer.text


@pytest.mark.parametrize(
    ("written", "utc"),
    [("2026-12-24T18:00", 18), ("2026-12-24T18:00+02:00", 16), ("2026-12-24T18:00Z", 18)],
)
def test_a_deadline_is_in_utc_or_says_its_offset(board: Board, written: str, utc: int) -> None:
    fields = {"classroom": 1, "name": "dated", "based_on": "matmul", "deadline": written}
    board.instructor.post("/instructor/events", **fields)
    assert f"until 2026-12-24 {utc}:00 UTC" in board.instructor.browser.get("/events/2").text


def test_both_databases_take_the_same(board_on_either: Board) -> None:
    """PostgreSQL has no NUL, no NaN in JSON, and a length of names."""
    board, measuring = board_on_either, Measuring(board_on_either)
    api = board.join("ada").api()
    assert board.instructor.post("/account/tokens", label="a\0 \x1b[2Jb").status_code == 200
    assert '<th scope="row">a [2Jb</th>' in board.instructor.browser.get("/account").text
    text = ENTRY.format(mark="").replace("Mine", "M" * 201).encode()
    answer = api.post("/api/events/fast/submissions", content=text)
    assert answer.status_code == 400 and "at most 200 letters" in answer.json()["detail"]
    board.submit(board.join("bob"))
    job = measuring.take()
    body = json.dumps({"lease": job["lease"], "report": report(told("submission 1", 2.0))})
    path = f"/api/runner/jobs/{job['id']}/result"
    headers = {"Content-Type": "application/json"}
    for damaged in (body.replace("50000000000.0", "NaN"), body.replace(job["lease"], "\u00e9")):
        answer = measuring.api.post(path, content=damaged.encode(), headers=headers)
        assert answer.status_code in (409, 422), answer.text
