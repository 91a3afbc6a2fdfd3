"""Invitations, tokens and sessions. A secret is shown once; the database has its SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from tito.leaderboard import audit, names, tables
from tito.leaderboard.tables import Classroom, Invitation, Person, Token

RESERVED = "the server"  # so the audit log calls what nobody did
PSEUDONYM = re.compile(r"[\w][\w .-]{1,38}[\w]")
SESSION_SECONDS = 14 * 24 * 3600
INVITATION_SECONDS = 30 * 24 * 3600
FIRST_SECONDS = 24 * 3600  # of the link that makes the first instructor


class PeopleError(Exception):
    """A name is taken or not allowed, or a secret is none of ours; the text says which."""


@dataclass(frozen=True)
class SignedIn:
    """What a browser gets: the cookie's value. `csrf` goes into forms."""

    cookie: str
    csrf: str


def hashed(secret: str) -> str:
    """A secret has 256 random bits, so one round without salt is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _secret() -> str:
    return secrets.token_urlsafe(32)


def add_classroom(session: Session, name: str, actor: Person | None = None) -> Classroom:
    """A new class.

    Raises:
        PeopleError: there is one of this name, or it is no name.
    """
    name = name.strip()
    if not PSEUDONYM.fullmatch(name):
        raise PeopleError(f"a class needs a name of 3 to 40 letters, digits and .-_, not {name!r}")
    if session.scalar(select(Classroom).where(Classroom.name == name)):
        raise PeopleError(f"there is a class {name!r} already")
    classroom = Classroom(name=name)
    session.add(classroom)
    session.flush()
    audit.note(session, actor, "create class", name)
    return classroom


def invite(
    session: Session,
    role: str,
    classroom: Classroom | None,
    uses: int,
    actor: Person | None = None,
    seconds: float = INVITATION_SECONDS,
) -> str:
    """The secret of a join link."""
    secret = _secret()
    session.add(
        Invitation(
            hash=hashed(secret),
            role=role,
            classroom_id=classroom.id if classroom else None,
            uses_left=uses,
            expires=time.time() + seconds,
        )
    )
    audit.note(session, actor, "invite", f"{uses} x {role}", classroom.name if classroom else "")
    return secret


def join(session: Session, secret: str, pseudonym: str) -> Person:
    """Make a person of whoever has a join link.

    Raises:
        PeopleError: the link is unknown, used up or too old, or the pseudonym is not free.
    """
    found = session.scalar(
        select(Invitation).where(Invitation.hash == hashed(secret.strip())).with_for_update()
    )
    if found is None or found.uses_left < 1 or found.expires < time.time():
        raise PeopleError("this join link is not valid: ask for a new one")
    person = add_person(session, pseudonym, found.role, found.classroom_id)
    found.uses_left -= 1
    audit.note(session, person, "join", person.pseudonym, person.role)
    return person


def add_person(session: Session, pseudonym: str, role: str, classroom_id: int | None) -> Person:
    """A person of a role.

    Raises:
        PeopleError: the pseudonym is taken, or looks like one that is, or is none.
    """
    pseudonym = names.normalized(pseudonym)
    if not PSEUDONYM.fullmatch(pseudonym):
        raise PeopleError(
            f"a pseudonym has 3 to 40 letters, digits, spaces and .-_, not {pseudonym[:60]!r}"
        )
    if names.mixes_scripts(pseudonym):
        raise PeopleError(f"{pseudonym!r} has letters of several scripts, or of an unusual one")
    # who joins holds the first person's row until the end: two at once may not be too alike
    session.scalar(select(Person.id).order_by(Person.id).limit(1).with_for_update(key_share=True))
    for taken in (RESERVED, *session.scalars(select(Person.pseudonym))):
        if names.look_alike(taken, pseudonym):
            raise PeopleError(f"the pseudonym {pseudonym!r} is taken, or looks like one that is")
    person = Person(pseudonym=pseudonym, role=role, classroom_id=classroom_id)
    session.add(person)
    session.flush()
    return person


def new_token(session: Session, person: Person, label: str) -> str:
    """A token for the API. This is the only time that it is seen."""
    secret = _secret()
    label = "".join(c for c in label if c.isprintable()).strip()[:80] or "token"
    session.add(Token(person_id=person.id, hash=hashed(secret), label=label))
    audit.note(session, person, "new token", label)
    return secret


def by_token(session: Session, secret: str) -> Person | None:
    """Whose token this is; None if nobody's, or revoked."""
    token = session.scalar(
        select(Token).where(Token.hash == hashed(secret), Token.revoked.is_(None))
    )
    return token.person if token else None


def revoke(session: Session, actor: Person, token_id: int, keep: str = "") -> None:
    """Make a token worthless: one's own, or, as an instructor, anybody's.

    Whoever stole it may have signed in with it: its person's sessions are closed as well.

    Args:
        keep: the cookie of the one session that stays open.

    Raises:
        PeopleError: there is no such token.
    """
    token = session.get(Token, token_id)
    if token is None or (token.person_id != actor.id and actor.role != "instructor"):
        raise PeopleError(f"you have no token {token_id}")
    token.revoked = token.revoked or time.time()
    session.execute(
        delete(tables.Session).where(
            tables.Session.person_id == token.person_id, tables.Session.hash != hashed(keep)
        )
    )
    audit.note(session, actor, "revoke token", f"{token.person.pseudonym}: {token.label}")


def sign_in(session: Session, person: Person) -> SignedIn:
    """Open a session of a browser."""
    session.execute(delete(tables.Session).where(tables.Session.expires < time.time()))
    cookie, csrf = _secret(), _secret()
    session.add(
        tables.Session(
            person_id=person.id,
            hash=hashed(cookie),
            csrf=csrf,
            expires=time.time() + SESSION_SECONDS,
        )
    )
    return SignedIn(cookie, csrf)


def by_cookie(session: Session, cookie: str) -> tables.Session | None:
    """The open session of a cookie."""
    return session.scalar(
        select(tables.Session).where(
            tables.Session.hash == hashed(cookie), tables.Session.expires > time.time()
        )
    )


def sign_out(session: Session, cookie: str) -> None:
    """Close a session."""
    session.execute(delete(tables.Session).where(tables.Session.hash == hashed(cookie)))
