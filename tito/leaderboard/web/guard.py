"""What every request passes: headers, limits of size and rate, a log without secrets."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field

from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tito.leaderboard.web.signin import COOKIE, runner, token_of
from tito.leaderboard.web.views import refuse

log = logging.getLogger("tito.leaderboard")

POLICY = "; ".join(
    [
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
        "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
    ]
)  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none a browser sends no Origin with a form
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
BODY_BYTES = 512 << 10
RESULT_BYTES = 16 << 20  # a runner's, with every sample
KEPT_BUCKETS = 10_000


class SecurityHeaders:
    """Nothing from other hosts, nothing inline, nothing cached that is somebody's own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        await self.app(scope, receive, guarded)


class BodyLimit:
    """Refuse a body while it comes in, whatever its header says of its length."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        limit, body = BODY_BYTES, bytearray()
        while True:  # read here, as whoever reads later has begun to answer
            message = await receive()
            body += message.get("body", b"")
            if len(body) > limit == BODY_BYTES and await _may_send_results(scope):
                limit = RESULT_BYTES
            if len(body) > limit:
                answer = refuse(Request(scope), 413, f"at most {limit:,} bytes can be sent")
                return await answer(scope, receive, send)
            if message["type"] != "http.request" or not message.get("more_body"):
                break
        scope.setdefault("state", {})["arrived"] = time.time()
        given = False

        async def whole() -> Message:
            nonlocal given
            if given or message["type"] != "http.request":
                return await receive() if given else message
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self.app(scope, whole, send)


@dataclass
class Bucket:
    """Fills with time, and is emptied by requests (a token bucket).

    Attributes:
        size: requests at once.
        per_second: how fast it fills.
    """

    size: float
    per_second: float
    level: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.level, self.at = self.size, time.monotonic()

    def fill(self) -> float:
        """How full it is now."""
        now = time.monotonic()
        self.level = min(self.size, self.level + (now - self.at) * self.per_second)
        self.at = now
        return self.level

    def take(self) -> float:
        """0 if the request may pass, else the seconds until one may."""
        self.fill()
        if self.level < 1:
            return (1 - self.level) / self.per_second
        self.level -= 1
        return 0.0


class RateLimit:
    """Guessing secrets is slow, and nobody floods the queue. Reading pages is not limited."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.buckets: dict[tuple[str, str], Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._wait(scope) if scope["type"] == "http" else 0.0
        if not wait:
            return await self.app(scope, receive, send)
        seconds = math.ceil(wait)
        text = f"too many requests: try again in {seconds} s"
        answer = refuse(Request(scope), 429, text, {"Retry-After": str(seconds)})
        await answer(scope, receive, send)

    def _wait(self, scope: Scope) -> float:
        path = scope["path"]
        if scope["method"] != "POST" or path.startswith("/api/runner/"):
            return 0.0
        client = scope["client"][0] if scope["client"] else "unknown"
        if path in ("/join", "/sign-in"):
            key, bucket = ("secret", client), Bucket(10, 1 / 6)
        else:
            key, bucket = ("post", _secret(scope) or client), Bucket(30, 0.5)
        if len(self.buckets) > KEPT_BUCKETS:
            self.buckets = {k: b for k, b in self.buckets.items() if b.fill() < b.size - 1}
        return self.buckets.setdefault(key, bucket).take()


async def _may_send_results(scope: Scope) -> bool:
    """Whoever has no runner's token may not fill our memory, before the route says so."""
    if not scope["path"].startswith("/api/runner/"):
        return False
    request = Request(scope)
    try:
        await run_in_threadpool(lambda: runner(request, token_of(request)))
    except HTTPException:
        return False
    except OperationalError:
        pass  # it is away, which the route says: a result is sent again then
    return True


def _secret(scope: Scope) -> str:
    """What says who asks, and no more of the headers: each could be another in every request."""
    if scope["path"].startswith("/api/"):
        return Headers(scope=scope).get("authorization", "").partition(" ")[2].strip()
    return HTTPConnection(scope).cookies.get(COOKIE, "")


class AccessLog:
    """A line a request: method, path, status, time. No query, header or body: they hold secrets."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            if not scope["path"].startswith("/static/"):
                path = scope["path"][:100].encode("unicode_escape").decode()  # no line is forged
                spent = 1e3 * (time.perf_counter() - began)
                log.info("%s %s %d %.1f ms", scope["method"], path, status, spent)
