"""A leaderboard with something on it: the backends that come with TinyTorch, really measured."""

from __future__ import annotations

from importlib.util import find_spec

from sqlalchemy import select

from tito.leaderboard import events, people, submissions
from tito.leaderboard.database import Database
from tito.leaderboard.tables import Event, Person

CLASSROOM, RUNNER = "demo", "this machine"
EVENTS = ("matmul", "elementwise")


def backends() -> list[str]:
    """Those that can run here."""
    compiled = ["blocked", "optimized"] if find_spec("numba") else []
    return [*compiled, *(["torch"] if find_spec("torch") else [])]


def prepare(database: Database) -> str:
    """Events and entries, once; a token for a runner on this machine, anew at each start."""
    with database.write() as session:
        runner = session.scalar(select(Person).where(Person.pseudonym == RUNNER))
        if runner is None:
            runner = people.add_person(session, RUNNER, "runner", None)
        token = people.new_token(session, runner, "demo")
        if session.scalar(select(Event).limit(1)) is None:
            room = people.add_classroom(session, CLASSROOM)
            house = [people.add_person(session, n, "house", room.id) for n in backends()]
            for name in EVENTS:
                event = events.add_event(session, None, room, f"{name}-demo", name)
                for person in house:
                    submissions.submit_baseline(session, person, event, person.pseudonym)
    return token
