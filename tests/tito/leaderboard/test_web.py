"""What people may do, and what nobody may: forms, uploads, injections, secrets in logs."""

from __future__ import annotations

import csv
import io
import logging
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from markupsafe import escape
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from tests.tito.leaderboard.conftest import (
    ENTRY,
    Board,
    Measuring,
    Someone,
    TestClient,
    join,
    start,
    told,
)
from tito.leaderboard import jobs, people, submissions
from tito.leaderboard.database import Database
from tito.leaderboard.tables import Base, Event, Job, Person, Submission
from tito.leaderboard.web import guard, views
from tito.leaderboard.web.signin import COOKIE

NASTY = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "' OR '1'='1",
    "'; DROP TABLE person; --",
]  # fmt: skip


def test_everything_needs_somebody_who_is_signed_in(board: Board) -> None:
    stranger = board.instructor.browser.__class__(board.app)
    for path in ("/", "/mine", "/events/1", "/submissions/1", "/account", "/instructor"):
        answer = stranger.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), path
    assert stranger.get("/rules").status_code == 200
    for path in ("/api/events", "/api/submissions/1"):
        assert stranger.get(path).status_code == 401


def test_every_page_has_its_guards(board: Board) -> None:
    for path in ("/", "/rules", "/join", "/nowhere", "/static/style.css", "/api/events"):
        headers = board.instructor.browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_pages_ask_no_other_host_and_have_nothing_inline(
    board: Board, measuring: Measuring
) -> None:
    board.submit(board.join("ada"))
    measuring.measure(2.0)
    pages = ["/sign-in", "/", "/events/1", "/submissions/1", "/mine", "/rules", "/join",
             "/runners", "/account", "/instructor", "/instructor/audit",
             "/instructor/people/2"]  # fmt: skip
    for path in pages:
        text = board.instructor.browser.get(path).text
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), path
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", text), path


def test_the_session_is_a_cookie_that_scripts_cannot_read(database: Database) -> None:
    with database.write() as session:
        secret = people.invite(session, "student", None, 1)
    from tests.tito.leaderboard.conftest import TestClient, create_app

    browser = TestClient(create_app(database, https=True), base_url="https://testserver")
    answer = browser.post("/join", data={"secret": secret, "pseudonym": "ada"})
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "secure"))


# -- cross-site request forgery --------------------------------------------------------------------


def test_csrf_a_form_from_elsewhere_does_nothing(board: Board) -> None:
    ada, eve = board.join("ada"), board.join("eve")
    forms = ["/sign-out", "/duels", "/account/tokens", "/account/tokens/1/revoke"]
    theirs = ["/instructor/classes", "/instructor/invitations", "/instructor/events",
              "/instructor/events/1/state", "/instructor/submissions/1/hide"]  # fmt: skip
    for who, paths in ((ada, [*forms, "/events/1/submissions"]), (board.instructor, theirs)):
        for path in paths:
            fields = {"first": "1", "second": "2", "name": "x", "role": "student", "state": "open",
                      "classroom": "1", "based_on": "matmul"}  # fmt: skip
            for csrf in ({}, {"csrf": "forged"}, {"csrf": eve.csrf()}):
                answer = who.browser.post(path, data={**fields, **csrf})
                assert answer.status_code in (403, 422), (path, answer.status_code)
    for origin in ("https://evil.example", "null"):
        other = {"Origin": origin}
        answer = ada.browser.post("/sign-out", data={"csrf": ada.csrf()}, headers=other)
        assert answer.status_code == 403
        data = {"secret": "x", "pseudonym": "eve"}
        assert ada.browser.post("/join", data=data, headers=other).status_code == 403


def test_a_cookie_is_no_token_and_a_token_no_cookie(board: Board) -> None:
    ada = board.join("ada")
    cookie = ada.browser.cookies[COOKIE]
    stranger = ada.api()
    stranger.headers["Authorization"] = f"Bearer {cookie}"
    assert stranger.get("/api/events").status_code == 401
    del stranger.headers["Authorization"]
    stranger.cookies.set(COOKIE, ada.token)
    assert stranger.get("/", follow_redirects=False).status_code == 303
    assert ada.browser.get(f"/api/events?token={ada.token}").status_code == 401


# -- what people type ------------------------------------------------------------------------------


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("text", NASTY)
def test_xss_what_people_type_is_text(board: Board, measuring: Measuring, text: str) -> None:
    ada = board.join("ada")
    board.submit(ada, text)
    job = measuring.take()
    measuring.finish(job, told("submission 1", None, "wrong", text))
    board.instructor.post("/instructor/submissions/1/disqualify", reason=text)
    board.instructor.post("/account/tokens", label=text)
    pages = [board.instructor.browser.get(path).text
             for path in ("/instructor/audit", "/account", "/submissions/1")]  # fmt: skip
    for shown in [ada.browser.get("/submissions/1").text, *pages]:
        assert str(escape(text)) in shown
        assert escape(text) == text or text not in shown
    with board.database.read() as session:
        assert session.query(Submission).count() == 1
        assert session.get_one(Submission, 1).disqualified == text.strip()


@pytest.mark.parametrize("pseudonym", [*NASTY, "ab", "x" * 41, "a\nb", "\u202egnp", "", " . "])
def test_a_pseudonym_is_a_name(board: Board, pseudonym: str) -> None:
    with board.database.write() as session:
        secret = people.invite(session, "student", None, 1)
    browser = board.instructor.browser.__class__(board.app)
    answer = browser.post("/join", data={"secret": secret, "pseudonym": pseudonym})
    if answer.status_code == 200:  # white space inside is made one space
        assert pseudonym == "a\nb" and "a b" in answer.text
    else:
        assert answer.status_code in (400, 422)
    assert "<script>alert" not in answer.text and "<img" not in answer.text


def test_a_taken_pseudonym_and_a_used_link_are_said(board: Board) -> None:
    board.join("ada")
    with board.database.write() as session:
        secret = people.invite(session, "student", None, 1)
        old = people.invite(session, "student", None, 1, seconds=-1)
    browser = board.instructor.browser.__class__(board.app)
    taken = browser.post("/join", data={"secret": secret, "pseudonym": "ada"})
    assert taken.status_code == 400 and "is taken" in taken.text
    assert browser.post("/join", data={"secret": secret, "pseudonym": "bob"}).status_code == 200
    for used in (secret, old, "x", ""):
        again = browser.post("/join", data={"secret": used, "pseudonym": "eve"})
        assert again.status_code in (400, 422)


def test_csv_injection_cells_of_an_export_are_no_formulas(
    board: Board, measuring: Measuring
) -> None:
    board.submit(board.join("ada"))
    measuring.measure(2.0, machine='=HYPERLINK("http://evil.example")')
    text = board.instructor.browser.get("/instructor/events/1/export.csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["pseudonym"] == "ada" and rows[0]["machine"].startswith("'=HYPERLINK")
    told_json = board.instructor.browser.get("/instructor/events/1/export.json").json()
    assert told_json[0]["score"] == 2.0


# -- uploads ---------------------------------------------------------------------------------------


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF" + bytes(range(256)), "is no UTF-8 text"),
        (b"x = 1\0", "is no Python"),
        (b"def f(:", "is no Python"),
        (b"(" * 5000, "is no Python"),
        (b"x = 1\n", "needs one public class"),
        (b"class A: pass\nclass B: pass\n", "needs one public class"),
        (b"import socket\nclass A: pass\n", "breaks the kernel division"),
        (b"#" * (256 * 1024 + 1), "an entry has at most"),
    ],
)
def test_uploads_that_are_oversize_or_binary_or_no_entry_are_refused(
    board: Board, data: bytes, message: str
) -> None:
    ada = board.join("ada")
    answer = ada.post("/events/1/submissions", files={"file": ("x.py", data)})
    assert answer.status_code == 400 and message in answer.text
    answer = ada.api().post("/api/events/fast/submissions", content=data)
    assert answer.status_code == 400 and message in answer.json()["detail"]
    with board.database.read() as session:
        assert session.query(Submission).count() == 0


def test_an_oversize_upload_is_refused_while_it_comes_in(board: Board) -> None:
    ada = board.join("ada")

    def flood() -> Iterator[bytes]:  # without a length in its header
        yield from [b"#" * 65536] * 10

    answer = ada.api().post("/api/events/fast/submissions", content=flood())
    assert answer.status_code == 413 and "at most 524,288 bytes" in answer.json()["detail"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..\\..\\x.py", "/etc/passwd", "a\0b.py", "x" * 5000, "\x1b[2J.py"]
)
def test_path_traversal_the_name_of_a_file_leads_nowhere(board: Board, name: str) -> None:
    ada = board.join("ada")
    answer = ada.post("/events/1/submissions", files={"file": (name, b"x = 1\n")})
    assert answer.status_code == 400
    assert "etc/" not in answer.text and "..\\" not in answer.text and "\x1b" not in answer.text


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2ftables.py"]
)
def test_path_traversal_no_path_leads_out_of_the_static_folder(board: Board, path: str) -> None:
    assert board.instructor.browser.get(path).status_code == 404


# -- quota, visibility -----------------------------------------------------------------------------


def test_the_quota_is_kept_also_by_requests_at_once(board_on_either: Board) -> None:
    ada = board_on_either.join("ada")
    answers: list[int] = []

    def send(mark: int) -> None:
        api = ada.api()
        text = ENTRY.format(mark=mark).encode()
        answers.append(api.post("/api/events/fast/submissions", content=text).status_code)

    threads = [threading.Thread(target=send, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] * 3 + [400] * 5
    assert "0 of 3 entries left" in ada.browser.get("/events/1").text
    with board_on_either.database.write() as session:
        for each in session.query(Submission):
            each.created -= 25 * 3600
    assert board_on_either.submit(ada, "next day").status_code == 200


def test_the_same_code_twice_is_said(board: Board) -> None:
    ada, bob = board.join("ada"), board.join("bob")
    assert board.submit(ada).status_code == 200
    again = board.submit(ada)
    assert again.status_code == 400 and "your submission 1, letter by letter" in again.text
    assert board.submit(bob).status_code == 200  # an instructor sees the equal hash


def test_the_same_code_of_several_at_once_is_taken(board_on_either: Board) -> None:
    """As when a class enters the starter file: it is kept once, and nobody is turned away."""
    apis = [board_on_either.join(name).api() for name in ("ada", "bob", "cyd", "dan", "eve", "fay")]
    url = "/api/events/fast/submissions"
    for mark in ("first", "second", "third"):
        text = ENTRY.format(mark=mark).encode()
        with ThreadPoolExecutor(len(apis)) as pool:
            sent = pool.map(partial(TestClient.post, url=url, content=text), apis)
            assert [answer.status_code for answer in sent] == [201] * len(apis)


def test_a_deadline_and_a_frozen_event_take_nothing(board: Board) -> None:
    ada = board.join("ada")
    with board.database.write() as session:
        session.get_one(Event, 1).deadline = time.time() - 1
    assert "the deadline of fast has passed" in board.submit(ada).text
    with board.database.write() as session:
        session.get_one(Event, 1).deadline = None
    board.instructor.post("/instructor/events/1/state", state="frozen")
    assert "the event fast is frozen" in board.submit(ada).text
    board.instructor.post("/instructor/events/1/state", state="open")
    assert board.submit(ada).status_code == 200


def test_nobody_sees_what_is_not_theirs(board: Board, measuring: Measuring) -> None:
    ada, bob = board.join("ada"), board.join("bob")
    board.instructor.post("/instructor/classes", name="another class")
    outsider = board.join("outsider", room=2)
    board.submit(ada, "a secret thought")
    measuring.measure(2.0)
    assert "a secret thought" in ada.browser.get("/submissions/1").text
    assert "a secret thought" not in bob.browser.get("/submissions/1").text
    for path in ("/events/1", "/submissions/1", "/submissions/1/state", "/events/1/board"):
        assert outsider.browser.get(path).status_code == 404
    assert outsider.api().get("/api/events/fast/board").status_code == 404
    assert bob.api().get("/api/submissions/1").status_code == 404
    for path in ("/instructor", "/instructor/audit", "/instructor/people/1"):
        assert bob.browser.get(path).status_code == 403
    assert bob.post("/instructor/classes", name="mine").status_code == 403
    assert bob.post("/account/tokens/1/revoke").status_code == 404


# -- secrets ---------------------------------------------------------------------------------------


def test_token_theft_no_secret_is_in_the_log_or_in_the_database(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="tito.leaderboard")
    with board.database.write() as session:
        secret = people.invite(session, "student", None, 1)
    ada = join(board.app, secret, "ada")
    ada.browser.get(f"/sign-in?token={ada.token}")
    ada.browser.post("/sign-in", data={"token": ada.token})
    ada.api().get("/api/events")
    ada.browser.post("/join", data={"secret": secret})  # invalid, and said without its value
    cookie = ada.browser.cookies[COOKIE]
    with board.database.read() as session:
        kept = "".join(
            repr(row)
            for table in Base.metadata.sorted_tables
            for row in session.execute(table.select())
        )
    for hidden in (secret, ada.token, cookie):
        assert hidden not in caplog.text and hidden not in kept
    assert "GET /sign-in 200" in caplog.text


def test_a_revoked_token_is_worth_nothing(board: Board) -> None:
    ada = board.join("ada")
    page = ada.post("/account/tokens", label="laptop").text
    found = re.search(r'id="token">([^<]+)', page)
    assert found is not None
    fresh = ada.api()
    fresh.headers["Authorization"] = f"Bearer {found[1]}"
    assert fresh.get("/api/events").status_code == 200
    number = re.search(r"/account/tokens/(\d+)/revoke", page)
    assert number is not None
    ada.post(f"/account/tokens/{number[1]}/revoke")
    assert fresh.get("/api/events").status_code == 401
    assert ada.api().get("/api/events").status_code == 200
    signed = ada.browser.post("/sign-in", data={"token": found[1]})
    assert signed.status_code == 400


@pytest.mark.parametrize("by", ["ada", "the instructor"])
def test_whoever_signed_in_with_a_revoked_token_is_signed_out(board: Board, by: str) -> None:
    """Or a thief could go on for two weeks, and make a token that nobody revokes."""
    ada = board.join("ada")
    thief = Someone(TestClient(board.app), ada.token)
    thief.browser.post("/sign-in", data={"token": ada.token})
    assert thief.browser.get("/", follow_redirects=False).status_code == 200
    own, page = (ada, "/account") if by == "ada" else (board.instructor, "/instructor/people/2")
    (path,) = re.findall(r'action="(\S+/revoke)"', own.browser.get(page).text)
    own.post(path)
    assert thief.browser.get("/", follow_redirects=False).status_code == 303
    assert own.browser.get("/", follow_redirects=False).status_code == 200
    is_in = ada.browser.get("/", follow_redirects=False).status_code == 200
    assert is_in is (by == "ada")


def test_signing_out_ends_the_session_on_the_server(board: Board) -> None:
    ada = board.join("ada")
    cookie = ada.browser.cookies[COOKIE]
    ada.post("/sign-out")
    ada.browser.cookies.set(COOKIE, cookie)
    assert ada.browser.get("/", follow_redirects=False).status_code == 303


def test_guessing_secrets_is_slow(database: Database) -> None:
    board = start(database)
    answers = [
        board.instructor.browser.post("/sign-in", data={"token": f"guess {i}"}) for i in range(12)
    ]
    assert {a.status_code for a in answers[:5]} == {400}
    assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) >= 1
    assert board.instructor.browser.get("/").status_code == 200


def test_guesses_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that has filled up again is forgotten, however often it was emptied before."""
    clock = [0.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(guard, "KEPT_BUCKETS", 100)
    limit = guard.RateLimit(lambda *_: None)  # type: ignore[arg-type,return-value]
    for number in range(1_000):
        clock[0] += 1.0
        headers = [(b"authorization", b"Bearer %d" % number)]
        scope = {"type": "http", "method": "POST", "path": "/api/x", "client": None}
        for _ in range(3):
            assert limit._wait({**scope, "headers": headers}) == 0.0
    assert len(limit.buckets) <= 101


@pytest.mark.parametrize("path", ["/events/%d", "/submissions/%d/state", "/api/submissions/%d"])
def test_a_number_that_no_row_can_have(board: Board, path: str) -> None:
    ada = board.join("ada")
    who = ada.api() if path.startswith("/api") else ada.browser
    assert who.get(path % 10**20).status_code == 422


def test_a_name_of_a_file_without_end(board: Board) -> None:
    headers = {"X-Filename": "[" * 5_000}
    answer = board.join("ada").api().post("/api/events/fast/submissions", headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (400, "X-Filename is a JSON string")


# -- how much the database is asked ----------------------------------------------------------------


@contextmanager
def asked(database: Database) -> Iterator[list[str]]:
    """Fills with the queries of a block."""
    queries: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            queries.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("path", ["/mine", "/instructor/people/2"])
def test_a_list_of_entries_asks_as_often_for_many_as_for_one(
    board: Board, measuring: Measuring, path: str
) -> None:
    ada = board.join("ada")
    with board.database.write() as session:
        session.get_one(Event, 1).quota = 20
        number = session.query(Person.id).filter(Person.pseudonym == "ada").scalar()
    board.app.state.viewers = views.Cache(3600.0)  # whoever looks is asked for once
    who = ada if path == "/mine" else board.instructor
    who.browser.get(path)
    path = path.replace("/2", f"/{number}")
    counts = []
    for sent in range(1, 9):
        assert board.submit(ada, str(sent)).status_code == 200
        if sent % 2:
            measuring.measure(float(sent))
        with asked(board.database) as queries:
            text = who.browser.get(path).text
        assert text.count('href="/submissions/') == sent
        counts.append(len(queries))
    assert set(counts) == {1 if path == "/mine" else 3}, counts


def test_the_queue_is_counted_by_the_database(board: Board) -> None:
    for i in range(5):
        board.submit(board.join(f"author {i}"), str(i))
    with board.database.read() as session, asked(board.database) as queries:
        job = session.get_one(Job, 5)
        assert jobs.position(session, job) == 4
    assert len(queries) == 2 and "count(" in queries[1].lower()


def test_the_newest_measurement_and_its_last_run_are_shown(
    board_on_either: Board,
) -> None:
    board = board_on_either
    measuring = Measuring(board)
    ada = board.join("ada")
    board.submit(ada)
    measuring.finish(measuring.take(), told("numpy", 1.0), told("submission 1", 2.0, "noisy"))
    measuring.measure(3.0)
    board.instructor.post("/instructor/submissions/1/again")
    assert "waiting" in ada.browser.get("/mine").text
    measuring.measure(5.0)
    with board.database.read() as session:
        (found,) = submissions.latest(session)
        assert found.job.id == 2 and found.outcome is not None and found.outcome.score == 5.0
        assert [len(job.runs) for job in session.query(Job).order_by(Job.id)] == [2, 1]


def test_a_database_that_is_away_is_said_and_not_an_error_of_the_server(
    board: Board, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ada = board.join("ada")

    def away() -> None:
        raise OperationalError("SELECT secret", {}, ConnectionError("the server was killed"))

    monkeypatch.setattr(board.database, "read", away)
    board.app.state.viewers.invalidate()
    for answer in (ada.browser.get("/mine"), ada.api().get("/api/events")):
        assert answer.status_code == 503 and answer.headers["retry-after"] == "2"
        assert "the database does not answer: try again" in answer.text
        assert "SELECT" not in answer.text and "killed" not in answer.text
    assert "the server was killed" in caplog.text
