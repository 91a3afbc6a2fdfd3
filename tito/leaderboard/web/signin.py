"""Who asks: a browser with a session, or a program with a token; joining and signing in."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from tito.leaderboard import people
from tito.leaderboard.database import Database
from tito.leaderboard.people import PeopleError, SignedIn
from tito.leaderboard.tables import Person
from tito.leaderboard.web.views import page

COOKIE = "tito_session"
SEEN_SECONDS = 60.0
router = APIRouter()


class NotSignedIn(Exception):
    """The page is for people who have joined."""


def to_sign_in(request: Request, error: Exception) -> Response:
    """Where to go then."""
    return RedirectResponse("/sign-in", 303)


@dataclass(frozen=True)
class Viewer:
    """Who looks at a page.

    Attributes:
        classroom: the id of their class; None for instructors.
        csrf: what a form of theirs must hold.
        cookie: of the session.
    """

    id: int
    pseudonym: str
    role: str
    classroom: int | None
    csrf: str
    cookie: str

    @property
    def is_instructor(self) -> bool:
        return self.role == "instructor"


def maybe_viewer(request: Request) -> Viewer | None:
    """The person whose session the cookie names, if it is an open one."""
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        return None
    found: Viewer | None = request.app.state.viewers.get(
        cookie, lambda: _viewer(request.app.state.database, cookie)
    )
    request.state.viewer = found
    return found


def _viewer(database: Database, cookie: str) -> Viewer | None:
    with database.read() as session:
        found = people.by_cookie(session, cookie)
        if found is None:
            return None
        person = found.person
        return Viewer(
            person.id, person.pseudonym, person.role, person.classroom_id, found.csrf, cookie
        )


def viewer(request: Request) -> Viewer:
    """Whoever is signed in."""
    found = maybe_viewer(request)
    if found is None:
        raise NotSignedIn
    return found


def same_origin(request: Request) -> None:
    """A form comes from a page of ours."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "this form was sent from a page of another host")


async def form_of(request: Request, who: Annotated[Viewer, Depends(viewer)]) -> Viewer:
    """Whoever sent a form, after it was checked that the form is from a page that we made."""
    same_origin(request)
    given = (await request.form()).get("csrf", "")
    if not isinstance(given, str) or not secrets.compare_digest(given.encode(), who.csrf.encode()):
        raise HTTPException(403, "this form is too old, or not ours: load the page again")
    return who


def instructor(who: Annotated[Viewer, Depends(viewer)]) -> Viewer:
    """Only instructors."""
    if not who.is_instructor:
        raise HTTPException(403, "this page is for instructors")
    return who


def instructor_form(who: Annotated[Viewer, Depends(form_of)]) -> Viewer:
    """A form that only instructors may send."""
    return instructor(who)


def token_of(request: Request) -> int:
    """The id of the person whose token is in the header."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise HTTPException(401, "a token is needed, in the header Authorization: Bearer")
    with request.app.state.database.read() as session:
        person = people.by_token(session, secret.strip())
        if person is None:
            raise HTTPException(401, "this token is unknown, or was revoked")
        found, is_old = person.id, (person.seen or 0) < time.time() - SEEN_SECONDS
    if is_old:
        with request.app.state.database.write() as session:
            session.get_one(Person, found).seen = time.time()
    return found


def runner(request: Request, person_id: Annotated[int, Depends(token_of)]) -> int:
    """Only runners."""
    with request.app.state.database.read() as session:
        if session.get_one(Person, person_id).role != "runner":
            raise HTTPException(403, "only a runner's token may do this")
    return person_id


# -- pages -----------------------------------------------------------------------------------------


def _open(request: Request, response: Response, signed: SignedIn) -> Response:
    response.set_cookie(
        COOKIE,
        signed.cookie,
        max_age=people.SESSION_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.app.state.https,
    )
    return response


@router.get("/join")
def join_page(request: Request) -> Response:
    """The secret is behind a # in the link: no server and no proxy ever has it in its log."""
    return page(request, "join.html")


@router.post("/join", dependencies=[Depends(same_origin)])
def join(
    request: Request,
    secret: Annotated[str, Form(max_length=200)],
    pseudonym: Annotated[str, Form(max_length=200)],
) -> Response:
    """Become somebody; the token is shown this once."""
    try:
        with request.app.state.database.write() as session:
            person = people.join(session, secret, pseudonym)
            token = people.new_token(session, person, "first")
            signed = people.sign_in(session, person)
            name, role = person.pseudonym, person.role
    except PeopleError as error:
        return page(request, "join.html", 400, error=str(error), pseudonym=pseudonym, secret=secret)
    joined = page(request, "joined.html", token=token, pseudonym=name, role=role)
    return joined if role == "runner" else _open(request, joined, signed)


@router.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """With a token, in another browser."""
    return page(request, "sign_in.html")


@router.post("/sign-in", dependencies=[Depends(same_origin)])
def sign_in(request: Request, token: Annotated[str, Form(max_length=200)]) -> Response:
    """Open a session."""
    with request.app.state.database.write() as session:
        person = people.by_token(session, token.strip())
        if person is not None and person.role in ("student", "instructor"):
            signed = people.sign_in(session, person)
            return _open(request, RedirectResponse("/", 303), signed)
    return page(request, "sign_in.html", 400, error="this token is unknown, or was revoked")


@router.post("/sign-out")
def sign_out(request: Request, who: Annotated[Viewer, Depends(form_of)]) -> Response:
    """Close the session."""
    with request.app.state.database.write() as session:
        people.sign_out(session, who.cookie)
    request.app.state.viewers.invalidate()
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(COOKIE)
    return response
