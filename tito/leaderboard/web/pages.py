"""Pages for everybody who has joined."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from tito.compete.rules import BLAS, MODULES
from tito.leaderboard import events, jobs, people, submissions
from tito.leaderboard.submissions import RefusedError
from tito.leaderboard.tables import Event, Job, Person, Submission, Token
from tito.leaderboard.web import views
from tito.leaderboard.web.signin import Viewer, form_of, viewer
from tito.leaderboard.web.views import page

router = APIRouter()
Who = Annotated[Viewer, Depends(viewer)]
Sender = Annotated[Viewer, Depends(form_of)]
MOST_OF_MINE = 200


def event_of(session: Session, who: Viewer, number: int) -> Event:
    """An event that this person may see; a 404 for any other."""
    event = session.get(Event, number)
    if event is None or (not who.is_instructor and event.classroom_id != who.classroom):
        raise HTTPException(404, f"there is no event {number} for you")
    return event


def submission_of(session: Session, who: Viewer, number: int) -> Submission:
    """A submission that this person may see: their own, a shown one of their class, or any."""
    found = session.get(Submission, number)
    if found is not None and (who.is_instructor or found.person_id == who.id):
        return found
    if found is None or found.hidden or found.event.classroom_id != who.classroom:
        raise HTTPException(404, f"there is no submission {number} for you")
    return found


@router.get("/")
def list_events(request: Request, who: Who) -> Response:
    """The events of the class."""
    with request.app.state.database.read() as session:
        person = session.get_one(Person, who.id)
        found = submissions.visible_events(session, person)
        left = {e.id: submissions.quota(session, e, who.id).left for e in found}
        return page(request, "events.html", events=found, left=left)


@router.get("/rules")
def rules(request: Request) -> Response:
    """What is measured and what is forbidden."""
    return page(
        request, "rules.html", modules=sorted(MODULES), blas=sorted(BLAS), words=views.WORDS
    )


@router.get("/runners")
def runners(request: Request, who: Who) -> Response:
    """Whether the measuring machines are well, and how long the queue is."""
    with request.app.state.database.read() as session:
        machines = session.scalars(select(Person).where(Person.role == "runner")).all()
        busy = session.scalars(select(Job).where(Job.state != "done").order_by(Job.id)).all()
        return page(request, "runners.html", machines=machines, jobs=busy)


@router.get("/events/{number}")
def event(request: Request, who: Who, number: int, machine: str | None = None) -> Response:
    """An event's board, and a form to enter it."""
    with request.app.state.database.read() as session:
        found = event_of(session, who, number)
        return page(
            request,
            "event.html",
            event=found,
            closed=events.why_closed(found),
            quota=submissions.quota(session, found, who.id),
            machine=machine,
            board=views.board_of(request.app.state.boards, session, found, machine),
        )


@router.get("/events/{number}/board")
def board_part(request: Request, who: Who, number: int, machine: str | None = None) -> Response:
    """The board alone: a page asks for it every few seconds."""
    with request.app.state.database.read() as session:
        found = event_of(session, who, number)
        shown = views.board_of(request.app.state.boards, session, found, machine)
        return page(request, "_board.html", board=shown, machine=machine)


@router.get("/events/{number}/starter.py")
def starter(request: Request, who: Who, number: int) -> Response:
    """The file to begin with."""
    with request.app.state.database.read() as session:
        found = event_of(session, who, number)
        return PlainTextResponse(
            found.version.files["starter.py"],
            headers={"Content-Disposition": f'attachment; filename="{found.name}.py"'},
        )


@router.post("/events/{number}/submissions")
async def submit(request: Request, who: Sender, number: int, file: UploadFile) -> Response:
    """Enter a file."""
    data = await file.read()
    return await run_in_threadpool(_submit, request, who, number, data, file.filename or "")


def _submit(request: Request, who: Viewer, number: int, data: bytes, filename: str) -> Response:
    try:
        with request.app.state.database.write() as session:
            found = event_of(session, who, number)
            person = session.get_one(Person, who.id)
            arrived = request.state.arrived
            made = submissions.submit(session, person, found, data, filename, arrived).id
    except RefusedError as error:
        raise HTTPException(400, str(error)) from None
    return RedirectResponse(f"/submissions/{made}", 303)


@router.get("/mine")
def mine(request: Request, who: Who) -> Response:
    """My submissions."""
    with request.app.state.database.read() as session:
        found = submissions.latest(session, Submission.person_id == who.id, most=MOST_OF_MINE)
        rows = [{**each._asdict(), "state": views.state(each.job, each.outcome)} for each in found]
        return page(request, "mine.html", rows=rows)


def _submission(session: Session, who: Viewer, number: int) -> dict[str, Any]:
    found = submission_of(session, who, number)
    ((_, job, outcome),) = submissions.latest(session, Submission.id == found.id)
    own = who.is_instructor or found.person_id == who.id
    return {
        "submission": found,
        "job": job,
        "state": views.state(job, outcome),
        "before": jobs.position(session, job) if job.state == "waiting" else 0,
        "outcome": outcome,
        "detail": views.explain(outcome) if outcome and outcome.score is not None else None,
        "own": own,
        "code": found.code.text if found.code and (own or found.event.state == "closed") else None,
    }


@router.get("/submissions/{number}")
def submission(request: Request, who: Who, number: int) -> Response:
    """State, scores, spread and log of a submission."""
    with request.app.state.database.read() as session:
        shown = _submission(session, who, number)
        boards = request.app.state.boards
        rows = views.board_of(boards, session, shown["submission"].event, None)["rows"]
        others = [row for row in rows if row["submission"] != number]
        return page(request, "submission.html", **shown, others=others)


@router.get("/submissions/{number}/state")
def submission_part(request: Request, who: Who, number: int) -> Response:
    """What changes: a page asks for it until it is done."""
    with request.app.state.database.read() as session:
        return page(request, "_submission.html", **_submission(session, who, number))


@router.post("/duels")
def ask_for_duel(
    request: Request, who: Sender, first: Annotated[int, Form()], second: Annotated[int, Form()]
) -> Response:
    """Measure two entries head to head: one's own beside another's, or any two as instructor."""
    with request.app.state.database.write() as session:
        pair = [submission_of(session, who, number) for number in (first, second)]
        if first == second or pair[0].event_id != pair[1].event_id:
            raise HTTPException(400, "a duel is of two entries of one event")
        if not who.is_instructor and who.id not in {s.person_id for s in pair}:
            raise HTTPException(403, "one of the two has to be yours")
        person = session.get_one(Person, who.id, with_for_update=True)  # for one request at a time
        open_jobs = session.scalars(
            select(Job.id).where(Job.asked_by == who.id, Job.kind == "duel", Job.state != "done")
        ).all()
        if open_jobs:
            raise HTTPException(400, f"your duel {open_jobs[0]} is not measured yet")
        job = jobs.enqueue(session, "duel", pair[0].event.version, pair, person)
        number = job.id
    return RedirectResponse(f"/duels/{number}", 303)


def _duel(session: Session, who: Viewer, number: int) -> dict[str, Any]:
    job = session.get(Job, number)
    if job is None or job.kind != "duel":
        raise HTTPException(404, f"there is no duel {number}")
    pair = [submission_of(session, who, entry.submission_id) for entry in job.entries]
    found = [views.outcome_of(job, each) for each in pair]
    ratios: list[dict[str, Any]] = []
    if job.state == "done" and all(o is not None and o.score is not None for o in found):
        for one, two in zip(*[o.measurements for o in found if o], strict=True):
            by_launch = views.launch_ratios(two.seconds, one.seconds)
            ratios.append({"case": one.case, "launches": by_launch,
                           "plot": views.plots.spread(by_launch)})  # fmt: skip
    return {"job": job, "pair": list(zip(pair, found, strict=True)), "ratios": ratios}


@router.get("/duels/{number}")
def duel(request: Request, who: Who, number: int) -> Response:
    """Two entries in one run."""
    with request.app.state.database.read() as session:
        return page(request, "duel.html", **_duel(session, who, number))


@router.get("/duels/{number}/state")
def duel_part(request: Request, who: Who, number: int) -> Response:
    """What changes of it."""
    with request.app.state.database.read() as session:
        return page(request, "_duel.html", **_duel(session, who, number))


@router.get("/account")
def account(request: Request, who: Who) -> Response:
    """My tokens."""
    return page(request, "account.html", tokens=_tokens(request, who), token=None)


def _tokens(request: Request, who: Viewer) -> list[Token]:
    with request.app.state.database.read() as session:
        query = select(Token).where(Token.person_id == who.id).order_by(Token.id.desc())
        return list(session.scalars(query))


@router.post("/account/tokens")
def new_token(
    request: Request, who: Sender, label: Annotated[str, Form(max_length=80)] = ""
) -> Response:
    """A new one, shown this once."""
    with request.app.state.database.write() as session:
        token = people.new_token(session, session.get_one(Person, who.id), label)
    return page(request, "account.html", tokens=_tokens(request, who), token=token)


@router.post("/account/tokens/{number}/revoke")
def revoke(request: Request, who: Sender, number: int) -> Response:
    """Make one worthless."""
    try:
        with request.app.state.database.write() as session:
            people.revoke(session, session.get_one(Person, who.id), number, keep=who.cookie)
    except people.PeopleError as error:
        raise HTTPException(404, str(error)) from None
    request.app.state.viewers.invalidate()
    return RedirectResponse("/account", 303)
