"""What is typed: addresses, tokens, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner, Result

from tests.tito.leaderboard.conftest import ENTRY, Board, Measuring, told
from tito.cli import app
from tito.leaderboard import client, commands, runner


def run(*arguments: str | Path, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(client.VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def connected(board: Board, monkeypatch: pytest.MonkeyPatch) -> Board:
    """Whatever speaks HTTP speaks with the board."""
    make = client.Client.__init__

    def init(self: client.Client, server: str, token: str) -> None:
        make(self, server, token)
        browser = board.instructor.browser.__class__(
            board.app, base_url=f"{server}/api", headers={"Authorization": f"Bearer {token}"}
        )
        self._http = browser

    monkeypatch.setattr(client.Client, "__init__", init)
    return board


def entry(folder: Path, mark: str = "", event: str = "fast") -> Path:
    path = folder / "mine.py"
    path.write_text(ENTRY.format(mark=mark).replace("event = matmul", f"event = {event}"))
    return path


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "board.example.org", "::"])
def test_it_does_not_listen_to_others_without_public(host: str) -> None:
    answer = run("leaderboard", "serve", "--host", host)
    assert answer.exit_code == 2 and "--public" in answer.output


def test_public_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    commands._check_host("0.0.0.0", public=True)
    assert "reverse proxy" in capsys.readouterr().err
    for local in ("127.0.0.1", "localhost", "::1"):
        commands._check_host(local, public=False)


def test_a_port_that_is_taken_makes_no_instructors_link(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = run("leaderboard", "serve", "--database", tmp_path / "a.db", "--port", port)
    assert answer.exit_code == 1
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in answer.stderr
    assert "join#" not in answer.output


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_link_is_of_the_port_that_was_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """A link to port 0 leads nowhere, nor does one to an address of IPv6 without brackets."""
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")

    def listens(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        ports.append(sockets[0].getsockname()[1])
        sockets[0].close()

    ports: list[int] = []
    monkeypatch.setattr(uvicorn.Server, "run", listens)
    answer = run(
        "leaderboard", "serve", "--database", tmp_path / "a.db", "--host", host, "--port", 0
    )
    assert answer.exit_code == 0, answer.output
    name = f"[{host}]" if ":" in host else host
    assert f"http://{name}:{ports[0]}/join#" in answer.output
    assert os.listdir(tmp_path) == ["a.db"]  # SQLite removes its log when the last one closes it


def test_a_database_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    nowhere = run("leaderboard", "serve", "--database", tmp_path / "no" / "folder" / "x.db")
    assert nowhere.exit_code == 3 and "unable to open" in nowhere.output
    unknown = run("leaderboard", "serve", "--database", "oracle://x")
    assert unknown.exit_code == 2 and "database" in unknown.output


def test_a_token_is_kept_for_this_user_alone(home: Path) -> None:
    path = client.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o644)
    assert run("leaderboard", "join", "http://x:1/", input="abc\n").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert client.load_settings() == {"server": "http://x:1", "token": "abc"}


def test_a_home_that_cannot_be_written_is_said(home: Path) -> None:
    (home / "config").write_text("no folder")
    answer = run("leaderboard", "join", "http://127.0.0.1:8765", input="secret\n")
    assert answer.exit_code == 1
    assert "leaderboard.json cannot be written: " in answer.stderr
    assert client.VARIABLE in answer.stderr and "secret" not in answer.output


def test_joining_takes_the_address_of_a_join_link_and_no_other_text(home: Path) -> None:
    refused = run("leaderboard", "join", "board.example.org", input="abc\n")
    assert refused.exit_code == 2 and "is no address" in refused.output
    assert client.load_settings() == {}
    assert run("leaderboard", "join", "https://b/x/join#secret", input="abc\n").exit_code == 0
    assert client.load_settings() == {"server": "https://b/x", "token": "abc"}


def test_who_no_longer_waits_is_told_that_the_entry_is_in_the_queue(
    connected: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv(client.VARIABLE, connected.join("ada").token)
    monkeypatch.setattr(commands, "_wait", interrupt)
    answer = run("submit", entry(tmp_path), "--server", "http://b")
    assert answer.exit_code == 130
    assert answer.stderr == "it is in the queue all the same: http://b/submissions/1\n"


def test_without_server_or_token_it_says_what_to_do(tmp_path: Path) -> None:
    path = entry(tmp_path)
    answer = run("submit", path)
    assert answer.exit_code == 2 and "tito leaderboard join" in answer.output
    answer = run("submit", path, "--server", "http://127.0.0.1:1")
    assert answer.exit_code == 2 and client.VARIABLE in answer.output


@pytest.mark.parametrize("saved", ["", "[]", "{", '"x"'])
def test_a_damaged_settings_file_is_named(home: Path, tmp_path: Path, saved: str) -> None:
    path = client.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text(saved)
    with pytest.raises(client.SettingsError, match=r"is damaged: run `tito leaderboard join"):
        client.load_settings()
    assert run("submit", entry(tmp_path)).exit_code == 2


def test_what_cannot_be_an_address_or_a_token_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for server, token in (("http://[::1", "x"), ("http://127.0.0.1:1", "é")):
        monkeypatch.setenv(client.VARIABLE, token)
        answer = run("submit", entry(tmp_path), "--server", server)
        assert answer.exit_code == 2 and "is no address, or the token" in answer.output
    (tmp_path / "token").write_bytes(b"\xff")
    options = ("--token-file", tmp_path / "token", "--no-sandbox")
    answer = run("leaderboard", "runner", "--server", "http://127.0.0.1:1", *options)
    assert answer.exit_code == 2
    (tmp_path / "token").write_text("x")
    answer = run("leaderboard", "runner", "--server", "http://127.0.0.1:1", *options)
    assert answer.exit_code == 1 and "does not answer" in answer.output


def test_a_runner_that_a_service_stops_gives_its_job_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended by SIGTERM it kept the job for a minute, and after three such stops it was given up."""

    def work(*_: object, **__: object) -> int:
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(runner, "work", work)
    (home / "token").write_text("x")
    before = signal.getsignal(signal.SIGTERM)
    options = ("--server", "http://127.0.0.1:1", "--token-file", home / "token", "--no-sandbox")
    answer = run("leaderboard", "runner", *options)
    assert answer.exit_code == 130 and "what was begun is back in the queue" in answer.stderr
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_page_that_is_no_leaderboard_is_said() -> None:
    asked: list[str] = []

    def page(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, text="<html>please log in</html>")

    speaking = client.Client("http://x", "t", httpx.MockTransport(page))
    with pytest.raises(client.UnreachableError, match="is no leaderboard"):
        speaking.submit("../a b", Path(__file__))
    assert asked == ["/api/events/..%2Fa%20b/submissions"]


def test_a_server_that_has_moved_to_https_is_said() -> None:
    """Caddy answers so where somebody wrote http: a runner found its queue empty for ever."""

    def moved(request: httpx.Request) -> httpx.Response:
        return httpx.Response(308, headers={"Location": "https://b" + request.url.path})

    speaking = client.Client("http://b", "t", httpx.MockTransport(moved))
    with pytest.raises(client.ServerError, match="http://b has moved to https://b: give"):
        speaking.take_job()
    with pytest.raises(client.ServerError, match="give that address"):
        speaking.submit("fast", Path(__file__))


def test_a_server_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(client.VARIABLE, "x")
    answer = run("submit", entry(tmp_path), "--server", "http://127.0.0.1:1")
    assert answer.exit_code == 1 and "does not answer" in answer.output


def test_submit_waits_and_prints(
    connected: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, measuring = connected.join("ada"), Measuring(connected)
    monkeypatch.setenv(client.VARIABLE, ada.token)
    monkeypatch.setattr(commands, "WAIT_SECONDS", 0.0)
    sent = run("submit", entry(tmp_path), "--server", "http://b", "--no-wait", "--json")
    assert json.loads(sent.output) == {"submission": 1, "event": "fast", "quota_left": 2}
    measuring.measure(2.0)
    polls = iter([(2.0, "ok"), (None, "wrong")])
    ask = client.Client.submission

    def submission(self: client.Client, number: int) -> dict[str, object]:
        answer = ask(self, number)
        if answer["state"] == "waiting":
            job, (score, verdict) = measuring.take(), next(polls)
            name = f"submission {number}"
            text = "at [0, 0]" if score is None else ""
            measuring.finish(job, told("numpy", 1.0), told(name, score, verdict, text))
        return answer

    monkeypatch.setattr(client.Client, "submission", submission)
    good = run("submit", entry(tmp_path, "2"), "--server", "http://b")
    assert good.exit_code == 0, good.output
    assert "score 2.000, 1.980 to 2.020" in good.output and "/submissions/2" in good.output
    bad = run("submit", entry(tmp_path, "3"), "--server", "http://b")
    assert bad.exit_code == 1 and "wrong: at [0, 0]" in bad.output
    none_left = run("submit", entry(tmp_path, "4"), "--server", "http://b")
    assert none_left.exit_code == 1 and "you have used your 3 entries" in none_left.output
    unknown = run("submit", entry(tmp_path, "5", "fest"), "--server", "http://b")
    assert unknown.exit_code == 1 and "there are: fast" in unknown.output


def test_a_server_in_trouble_is_tried_again(
    connected: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client.Client("http://b", connected.join("ada").token)

    def fail(*_: object, **__: object) -> httpx.Response:
        return httpx.Response(503)

    monkeypatch.setattr(ask._http, "request", fail)
    with pytest.raises(client.UnreachableError, match="503"):
        ask.submission(1)


def test_an_event_of_ones_own_comes_from_the_servers_machine(
    connected: Board, tmp_path: Path
) -> None:
    from tito.compete.event import load_event

    folder = load_event("matmul").folder
    database = connected.database.url.removeprefix("sqlite:///")
    wrong = run("leaderboard", "event", folder, "--class", "sistems", "--name", "own",
                "--database", database)  # fmt: skip
    assert wrong.exit_code == 2 and "Did you mean 'systems'?" in " ".join(wrong.output.split())
    for name, code in (("own", 0), ("own", 1), ("No Name", 1)):
        made = run("leaderboard", "event", folder, "--class", "systems", "--name", name,
                   "--database", database)  # fmt: skip
        assert made.exit_code == code, made.output
    nothing = run("leaderboard", "event", tmp_path, "--class", "systems", "--name", "x-y",
                  "--database", database)  # fmt: skip
    assert nothing.exit_code == 1 and "event.toml" in nothing.output
