"""What instructors do: classes, join links, events, entries, roster, export, audit log."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from tito.compete.event import EventError, list_events
from tito.compete.process import BASELINES
from tito.leaderboard import audit, board, events, jobs, people, submissions
from tito.leaderboard.people import PeopleError
from tito.leaderboard.tables import (
    EVENT_STATES,
    Audit,
    Classroom,
    Event,
    Person,
    Submission,
    Token,
)
from tito.leaderboard.web import views
from tito.leaderboard.web.signin import Viewer, instructor, instructor_form
from tito.leaderboard.web.views import page
from tito.spreadsheet import escape_formula

router = APIRouter(prefix="/instructor")
Who = Annotated[Viewer, Depends(instructor)]
Sender = Annotated[Viewer, Depends(instructor_form)]
AUDIT_ROWS = 500


def _to(address: str) -> Response:
    return RedirectResponse(address, 303)


def _get(session: Session, table: type[Any], number: int) -> Any:
    found = session.get(table, number)
    if found is None:
        raise HTTPException(404, f"there is no {table.__tablename__} {number}")
    return found


@router.get("")
def desk(request: Request, who: Who) -> Response:
    """All of it on a page."""
    return _desk(request)


def _desk(request: Request, status: int = 200, **context: Any) -> Response:
    with request.app.state.database.read() as session:
        people_of: dict[int | None, list[Person]] = {}
        for person in session.scalars(select(Person).order_by(Person.pseudonym)):
            people_of.setdefault(person.classroom_id, []).append(person)
        return page(
            request,
            "instructor.html",
            status,
            classrooms=session.scalars(select(Classroom).order_by(Classroom.id)).all(),
            people_of=people_of,
            events=session.scalars(select(Event).order_by(Event.id.desc())).all(),
            known=list_events(),
            baselines=[b for b in BASELINES if b != "numpy"],
            **context,
        )


def _doing(request: Request, do: Callable[[Session], None]) -> Response:
    """In one transaction; what is refused is said on the same page."""
    try:
        with request.app.state.database.write() as session:
            do(session)
    except (PeopleError, EventError) as error:
        return _desk(request, 400, error=str(error))
    request.app.state.boards.invalidate()
    return _to("/instructor")


@router.post("/classes")
def add_class(
    request: Request, who: Sender, name: Annotated[str, Form(max_length=200)]
) -> Response:
    """A new class."""
    return _doing(
        request, lambda s: _ignore(people.add_classroom(s, name, s.get_one(Person, who.id)))
    )


def _ignore(_: object) -> None:
    """What was made is on the page that follows."""


@router.post("/invitations")
def invite(
    request: Request,
    who: Sender,
    role: Annotated[str, Form(pattern="^(student|instructor|runner)$")],
    uses: Annotated[int, Form(ge=1, le=1000)] = 1,
    classroom: Annotated[int | None, Form()] = None,
) -> Response:
    """A join link. What makes it valid follows its #, which browsers keep to themselves."""
    with request.app.state.database.write() as session:
        room = _get(session, Classroom, classroom) if role == "student" else None
        secret = people.invite(session, role, room, uses, session.get_one(Person, who.id))
    link = f"{str(request.base_url).rstrip('/')}/join#{secret}"
    return _desk(request, link=link, role=role, uses=uses)


@router.post("/events")
def add_event(
    request: Request,
    who: Sender,
    classroom: Annotated[int, Form()],
    name: Annotated[str, Form(max_length=200)],
    based_on: Annotated[str, Form()],
    quota: Annotated[int, Form()] = 20,
    launches: Annotated[int, Form()] = 8,
    deadline: Annotated[str, Form(max_length=40)] = "",
    beside: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Open one of the events that come with TinyTorch for a class.

    An event of one's own is a folder on the server, added by `tito leaderboard event`: code that
    runs in the runner's own process does not come in by a browser.
    """

    def do(session: Session) -> None:
        if based_on not in list_events():
            raise EventError(f"there is no event {based_on!r}")
        events.add_event(
            session,
            session.get_one(Person, who.id),
            _get(session, Classroom, classroom),
            name,
            based_on,
            quota=quota,
            launches=launches,
            beside=tuple(beside or ()),
            deadline=_deadline(deadline),
        )

    return _doing(request, do)


def _deadline(text: str) -> float | None:
    """As the browser's field gives it; in UTC, as its label says, if it has no other offset."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        raise EventError(f"a deadline is written 2026-12-24T18:00, not {text!r}") from None


@router.post("/events/{number}/state")
def change_state(
    request: Request, who: Sender, number: int, state: Annotated[str, Form()]
) -> Response:
    """Freeze, thaw or close an event."""

    def do(session: Session) -> None:
        if state not in EVENT_STATES:
            raise EventError(f"there is no state {state!r}")
        actor = session.get_one(Person, who.id)
        events.change_state(session, actor, _get(session, Event, number), state)

    return _doing(request, do)


@router.post("/submissions/{number}/{action}")
def change_submission(
    request: Request,
    who: Sender,
    number: int,
    action: str,
    reason: Annotated[str, Form(max_length=1000)] = "",
) -> Response:
    """Hide or show, measure again, disqualify with a reason or take that back."""
    with request.app.state.database.write() as session:
        found: Submission = _get(session, Submission, number)
        actor = session.get_one(Person, who.id)
        if action in ("hide", "show"):
            found.hidden = action == "hide"
        elif action == "again":
            jobs.enqueue(session, "measure", found.event.version, [found], actor)
        elif action == "disqualify":
            if not reason.strip():
                raise HTTPException(400, "a disqualification needs a reason: the author reads it")
            found.disqualified = reason.strip()
        elif action == "requalify":
            found.disqualified = None
        else:
            raise HTTPException(404, f"there is no action {action[:40]!r}")
        audit.note(session, actor, action, f"submission {number}", reason)
    request.app.state.boards.invalidate()
    return _to(f"/submissions/{number}")


@router.post("/tokens/{number}/revoke")
def revoke(request: Request, who: Sender, number: int) -> Response:
    """Somebody's token was lost or stolen."""
    answer = _doing(
        request, lambda s: people.revoke(s, s.get_one(Person, who.id), number, keep=who.cookie)
    )
    request.app.state.viewers.invalidate()
    return answer


@router.get("/people/{number}")
def person(request: Request, who: Who, number: int) -> Response:
    """One person: tokens and submissions."""
    with request.app.state.database.read() as session:
        found = _get(session, Person, number)
        tokens = session.scalars(select(Token).where(Token.person_id == number)).all()
        theirs = submissions.latest(session, Submission.person_id == number)
        rows = [(each.submission, views.state(each.job, each.outcome)) for each in theirs]
        return page(request, "person.html", person=found, tokens=tokens, rows=rows)


@router.get("/audit")
def audit_log(request: Request, who: Who) -> Response:
    """Who did what, the newest first."""
    with request.app.state.database.read() as session:
        query = select(Audit).order_by(Audit.id.desc()).limit(AUDIT_ROWS)
        return page(request, "audit.html", rows=session.scalars(query).all(), most=AUDIT_ROWS)


@router.get("/events/{number}/export.{kind}")
def export(request: Request, who: Who, number: int, kind: str) -> Response:
    """The board for a spreadsheet or a program."""
    with request.app.state.database.read() as session:
        event: Event = _get(session, Event, number)
        rows = [
            {**row.to_dict(), "submitted": views.moment(row.submission.created)}
            for row in board.ranking(session, event)
        ]
        name = event.name
    if kind == "json":
        from fastapi.responses import JSONResponse

        return JSONResponse(rows)
    if kind != "csv":
        raise HTTPException(404, "an export is .csv or .json")
    return Response(
        to_csv(rows),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def to_csv(rows: list[dict[str, Any]]) -> str:
    """A table whose cells a spreadsheet takes for text, and never for a formula.

    Example:
        >>> to_csv([{"name": "=1+1"}]).splitlines()
        ['name', "'=1+1"]
    """
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: escape_formula(v) for k, v in row.items()} for row in rows)
    return text.getvalue()
