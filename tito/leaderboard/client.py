"""What `tito submit` and a runner say to a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

TIMEOUT_SECONDS = 30.0
VARIABLE = "TITO_LEADERBOARD_TOKEN"
AGAIN = "run `tito leaderboard join ADDRESS`"


class ServerError(Exception):
    """The server refused; the text is its own."""


class UnreachableError(Exception):
    """There is no server there, or it is in trouble: worth another try."""


class SettingsError(Exception):
    """Address or token are not what they have to be; the text says what to do."""


class Client:
    """Speaks with one server. The token goes into a header, never into an address."""

    def __init__(
        self, server: str, token: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.server = server.rstrip("/")
        try:
            self._http = httpx.Client(
                base_url=f"{self.server}/api",
                headers={"Authorization": f"Bearer {token}"},
                timeout=TIMEOUT_SECONDS,
                transport=transport,
            )
        except (httpx.InvalidURL, UnicodeEncodeError):  # a token of ours is ASCII
            raise SettingsError(
                f"{server!r} is no address, or the token is none: {AGAIN}"
            ) from None

    # -- a competitor's ----------------------------------------------------------------------------

    def submit(self, event: str, path: Path) -> dict[str, Any]:
        """Send an entry; the submission that it became."""
        answer = self._call(
            "POST",
            f"/events/{quote(event, safe='')}/submissions",
            content=path.read_bytes(),
            headers={"Content-Type": "text/x-python", "X-Filename": json.dumps(path.name)},
        )
        return dict(answer)

    def submission(self, number: int) -> dict[str, Any]:
        """State and scores of a submission of one's own."""
        return dict(self._call("GET", f"/submissions/{number}"))

    # -- a runner's --------------------------------------------------------------------------------

    def about(self, machine: dict[str, Any]) -> None:
        """Say what machine this is."""
        self._call("POST", "/runner/about", json=machine)

    def take_job(self) -> dict[str, Any] | None:
        """The next job; None if the queue is empty."""
        found = self._call("POST", "/runner/jobs")
        return dict(found) if found else None

    def heartbeat(self, job: int, lease: str, progress: float) -> None:
        """Keep the lease."""
        body = {"lease": lease, "progress": progress}
        self._call("POST", f"/runner/jobs/{job}/heartbeat", json=body)

    def finish(self, job: int, lease: str, report: dict[str, Any]) -> None:
        """Hand a result over."""
        body = {"lease": lease, "report": report}
        self._call("POST", f"/runner/jobs/{job}/result", json=body)

    def release(self, job: int, lease: str, note: str) -> None:
        """Give a job back."""
        self._call("POST", f"/runner/jobs/{job}/release", json={"lease": lease, "note": note})

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.server} does not answer: {error}") from None
        if answer.status_code >= 500:
            raise UnreachableError(f"{self.server} answered {answer.status_code}")
        if answer.status_code >= 400:
            raise ServerError(_said(answer))
        if answer.has_redirect_location:  # the token goes nowhere that was not named
            moved = answer.headers["location"].partition("/api/")[0]
            raise ServerError(f"{self.server} has moved to {moved}: give that address")
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise UnreachableError(f"{self.server} is no leaderboard: it sent no JSON") from None


def _said(answer: httpx.Response) -> str:
    try:
        text = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        text = f"the server answered {answer.status_code}"
    return "".join(c for c in text if c.isprintable() or c == "\n")[:2000]


# -- where this user's token is --------------------------------------------------------------------


def settings_file() -> Path:
    """Of this user; `XDG_CONFIG_HOME` moves it."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "tinytorch" / "leaderboard.json"


def save_settings(server: str, token: str) -> Path:
    """Keep server and token where only this user may read them."""
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"server": server, "token": token}, file)
    path.chmod(0o600)  # of a file that was there already
    return path


def load_settings() -> dict[str, str]:
    """Server and token as they were saved, and the token of the environment before that.

    Raises:
        SettingsError: the file is damaged.
    """
    path = settings_file()
    try:
        saved = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        found = {key: str(value) for key, value in saved.items()}
    except (ValueError, AttributeError, RecursionError):
        raise SettingsError(f"{path} is damaged: {AGAIN}, which writes it anew") from None
    if token := os.environ.get(VARIABLE):
        found["token"] = token
    return found
