"""JSON for `tito submit` and for runners. A token goes into the header, and nowhere else."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, HTTPException, Request
from pydantic import BaseModel, Field, FiniteFloat
from sqlalchemy.orm import Session

from tito.leaderboard import board, events, jobs, submissions
from tito.leaderboard.jobs import LeaseLostError
from tito.leaderboard.submissions import RefusedError
from tito.leaderboard.tables import Job, Person, Submission
from tito.leaderboard.web.signin import runner, token_of

router = APIRouter(prefix="/api")
Asker = Annotated[int, Depends(token_of)]
Runner = Annotated[int, Depends(runner)]


async def body(request: Request) -> bytes:
    """As it came."""
    return await request.body()


# -- competitors -----------------------------------------------------------------------------------


@router.get("/events")
def list_events(request: Request, asker: Asker) -> list[dict[str, Any]]:
    """The events of the class."""
    with request.app.state.database.read() as session:
        person = session.get_one(Person, asker)
        return [
            {**events.describe(e), "quota_left": submissions.quota(session, e, asker).left}
            for e in submissions.visible_events(session, person)
        ]


@router.get("/events/{name}/board")
def show_board(
    request: Request, asker: Asker, name: str, machine: str | None = None
) -> list[dict[str, Any]]:
    """Ranks and scores."""
    with request.app.state.database.read() as session:
        event = _event(session, asker, name)
        return [row.to_dict() for row in board.ranking(session, event, machine)]


def _event(session: Session, asker: int, name: str) -> Any:
    try:
        return submissions.find_event(session, session.get_one(Person, asker), name)
    except RefusedError as error:
        raise HTTPException(404, str(error)) from None


@router.post("/events/{name}/submissions", status_code=201)
def submit(
    request: Request, asker: Asker, name: str, data: Annotated[bytes, Depends(body)]
) -> dict[str, Any]:
    """Enter a file: the body is its bytes."""
    try:
        filename = str(json.loads(request.headers.get("x-filename", '"entry.py"')))
    except (ValueError, RecursionError):
        raise HTTPException(400, "X-Filename is a JSON string") from None
    try:
        with request.app.state.database.write() as session:
            event = _event(session, asker, name)
            person = session.get_one(Person, asker)
            arrived = request.state.arrived
            made = submissions.submit(session, person, event, data, filename, arrived)
            left = submissions.quota(session, event, asker).left
            return {"submission": made.id, "event": event.name, "quota_left": left}
    except RefusedError as error:
        raise HTTPException(400, str(error)) from None


@router.get("/submissions/{number}")
def show_submission(request: Request, asker: Asker, number: int) -> dict[str, Any]:
    """State and scores of one's own."""
    with request.app.state.database.read() as session:
        mine = (Submission.id == number, Submission.person_id == asker)
        latest = submissions.latest(session, *mine)
        if not latest:
            raise HTTPException(404, f"you have no submission {number}")
        found, job, outcome = latest[0]
        told: dict[str, Any] = {
            "submission": found.id, "event": found.event.name, "state": job.state,
            "before": jobs.position(session, job) if job.state == "waiting" else 0,
            "progress": job.progress, "verdict": None, "text": job.note,
        }  # fmt: skip
        if job.state == "done" and outcome is not None:
            told |= {
                "verdict": outcome.verdict, "text": outcome.text, "score": outcome.score,
                "low": outcome.low, "high": outcome.high, "machine": outcome.run.machine_class,
                "compile_seconds": outcome.compile_seconds,
                "cases": [{"case": m.case, "ratio": m.ratio, "low": m.low, "high": m.high,
                           "milliseconds": m.milliseconds} for m in outcome.measurements],
            }  # fmt: skip
        return told


# -- runners ---------------------------------------------------------------------------------------


class Case(BaseModel):
    """A contestant in one case."""

    case: str = Field(max_length=80)
    ratio: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    milliseconds: FiniteFloat
    gflops: FiniteFloat
    seconds: list[list[FiniteFloat]]


class Result(BaseModel):
    """What a runner says of a contestant."""

    contestant: str = Field(max_length=80)
    verdict: str = Field(max_length=20)
    text: str = Field(max_length=4000)
    score: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    compile_seconds: FiniteFloat | None
    measurements: list[Case]


class Report(BaseModel):
    """What a runner says of a job."""

    machine: dict[str, str | FiniteFloat | None]
    machine_class: str = Field(max_length=300)
    outcomes: list[Result]


Lease = Annotated[str, Body(max_length=64)]


def _held(session: Session, asker: int, number: int, lease: str) -> tuple[Job, Person]:
    person = session.get_one(Person, asker)
    try:
        return jobs.held(session, person, number, lease), person
    except LeaseLostError as error:
        raise HTTPException(409, str(error)) from None


@router.post("/runner/about", status_code=204)
def about(request: Request, asker: Runner, machine: dict[str, str]) -> None:
    """A runner says what it is."""
    with request.app.state.database.write() as session:
        session.get_one(Person, asker).about = machine


@router.post("/runner/jobs")
def take(request: Request, asker: Runner) -> dict[str, Any] | None:
    """The next job, with all that it needs."""
    with request.app.state.database.write() as session:
        person = session.get_one(Person, asker)
        taken = jobs.take(session, person, events.finals_of_others(session, person))
    if taken is None:
        return None
    # It is taken before it is read: one that cannot be read is given up, and holds up no other.
    with request.app.state.database.read() as session:
        job = session.get_one(Job, taken.id)
        event = job.version.event
        return {
            "id": job.id,
            "lease": job.lease,
            "event": event.name,
            "files": job.version.files,
            "launches": event.launches * (2 if job.kind == "final" else 1),
            "beside": event.beside if job.kind == "measure" else [],
            "entries": [
                {
                    "name": jobs.name_of(e.submission),
                    "class_name": e.submission.class_name,
                    "text": e.submission.code.text if e.submission.code else None,
                }
                for e in job.entries
            ],
        }


@router.post("/runner/jobs/{number}/heartbeat", status_code=204)
def heartbeat(
    request: Request,
    asker: Runner,
    number: int,
    lease: Lease,
    progress: Annotated[FiniteFloat, Body()],
) -> None:
    """The lease is kept."""
    with request.app.state.database.write() as session:
        jobs.heartbeat(_held(session, asker, number, lease)[0], progress)


@router.post("/runner/jobs/{number}/release", status_code=204)
def release(
    request: Request,
    asker: Runner,
    number: int,
    lease: Lease,
    note: Annotated[str, Body(max_length=400)],
) -> None:
    """The runner stops."""
    with request.app.state.database.write() as session:
        jobs.give_back(_held(session, asker, number, lease)[0], note)


@router.post("/runner/jobs/{number}/result", status_code=204)
def result(request: Request, asker: Runner, number: int, lease: Lease, report: Report) -> None:
    """What was measured."""
    with request.app.state.database.write() as session:
        job, person = _held(session, asker, number, lease)
        jobs.record(session, job, person, report.model_dump())
    request.app.state.boards.invalidate()
