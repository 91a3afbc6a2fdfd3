"""What templates are given."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.templating import Jinja2Templates
from sqlalchemy.orm import Session

from tito.leaderboard import board
from tito.leaderboard.tables import Event, Job, Outcome, Submission
from tito.leaderboard.web import plots

BOARD_SECONDS, VIEWER_SECONDS = 1.0, 2.0
MOST_KEPT = 1000
WORDS = {
    "ok": "measured", "wrong": "an output is wrong", "error": "it raised an error",
    "timeout": "it took too long", "memory": "it wanted too much memory",
    "rule": "it breaks a rule", "impossible": "faster than this machine can be",
    "noisy": "too noisy to be scored", "infrastructure": "our fault: not scored",
}  # fmt: skip


def page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
    """A template, filled."""
    made: Response = request.app.state.templates.TemplateResponse(
        request, name, context, status_code=status
    )
    return made


def refuse(
    request: Request, status: int, text: str, headers: dict[str, str] | None = None
) -> Response:
    """Why not, for a program as JSON and for a person as a page."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": text}, status, headers)
    templates: Jinja2Templates = request.app.state.templates
    return templates.TemplateResponse(
        request, "error.html", {"status": status, "text": text}, status_code=status, headers=headers
    )


def common(request: Request) -> dict[str, Any]:
    """In every page: who looks."""
    return {"viewer": getattr(request.state, "viewer", None)}


def moment(seconds: float | None) -> str:
    """A time in UTC, as people write it."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def ago(seconds: float | None) -> str:
    """How long it is since then.

    Example:
        >>> ago(None)
        'never'
    """
    if seconds is None:
        return "never"
    past = max(0.0, time.time() - seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if past >= size:
            return f"{past / size:.0f} {unit} ago"
    return f"{past:.0f} s ago"


def number(value: float | None, digits: int = 3) -> str:
    """A figure with so many significant digits; a dash for none."""
    if value is None:
        return "-"
    return f"{value:#.{digits}g}".removesuffix(".") if value < 1e4 else f"{value:,.0f}"


FILTERS: dict[str, Callable[..., str]] = {
    "moment": moment,
    "ago": ago,
    "number": number,
    "verdict": lambda v: WORDS.get(v, v),
}


class Cache:
    """What was made a moment ago, for whoever asks next.

    Args:
        seconds: how long it is good.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key; made now if there is none, or an old one. None is not kept."""
        with self._lock:
            until, value = self._kept.get(key, (0.0, None))
        if time.monotonic() > until:
            value = make()
            with self._lock:
                if len(self._kept) > MOST_KEPT:
                    self._kept.clear()
                if value is not None:
                    self._kept[key] = time.monotonic() + self._seconds, value
        return value

    def invalidate(self) -> None:
        """It has changed."""
        with self._lock:
            self._kept.clear()


def board_of(cache: Cache, session: Session, event: Event, machine: str | None) -> dict[str, Any]:
    """What an event's board shows: the same to all who look at it."""
    found: dict[str, Any] = cache.get((event.id, machine), lambda: _board(session, event, machine))
    return found


def _board(session: Session, event: Event, machine: str | None) -> dict[str, Any]:
    rows = board.ranking(session, event, machine)
    top = max([r.outcome.high or 0.0 for r in rows], default=1.0)
    return {
        "event": {"id": event.id, "name": event.name},
        "machines": board.machine_classes(session, event),
        "cases": [m.case for m in rows[0].outcome.measurements] if rows else [],
        "rows": [
            {
                **row.to_dict(),
                "house": row.person.role == "house",
                "bar": plots.interval(row.outcome.low or 0, row.score, row.outcome.high or 0, top),
                "cases": [m.ratio for m in row.outcome.measurements],
            }
            for row in rows
        ],
        "record": plots.record(board.record(session, event)),
    }


def state(job: Job, outcome: Outcome | None) -> str:
    """Of a submission's measurement, in a word: waiting, running, or its verdict."""
    if job.state != "done":
        return job.state
    return outcome.verdict if outcome else "infrastructure"


def outcome_of(job: Job, submission: Submission) -> Outcome | None:
    """What the job's last run found of a submission."""
    if not job.runs:
        return None
    return next((o for o in job.runs[-1].outcomes if o.submission_id == submission.id), None)


def explain(outcome: Outcome) -> dict[str, Any]:
    """Ratios for each case with the spread of every launch, and the share of the peak."""
    run = outcome.run
    baseline = next((o for o in run.outcomes if o.contestant == "numpy"), None)
    beside = {m.case: m for m in baseline.measurements} if baseline else {}
    peak = run.machine.get("peak")
    cases = []
    for m in outcome.measurements:
        base = beside.get(m.case)
        spread = launch_ratios(base.seconds, m.seconds) if base else []
        cases.append(
            {
                "case": m.case, "ratio": m.ratio, "low": m.low, "high": m.high,
                "milliseconds": m.milliseconds, "gflops": m.gflops,
                "share": m.gflops * 1e9 / peak if peak and m.gflops else None,
                "plot": plots.spread(spread),
            }
        )  # fmt: skip
    slow = min(cases, key=lambda c: c["ratio"], default=None)
    return {"cases": cases, "slowest": slow if slow and slow["ratio"] < 1 else None}


def launch_ratios(baseline: list[list[float]], own: list[list[float]]) -> list[float]:
    """The median ratio of each launch.

    Example:
        >>> launch_ratios([[2.0, 2.0], [3.0, 3.0]], [[1.0, 1.0], [1.0, 2.0]])
        [2.0, 2.25]
    """
    return [
        statistics.median(b / o for b, o in zip(one, two, strict=True))
        for one, two in zip(baseline, own, strict=True)
    ]
