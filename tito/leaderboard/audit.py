"""Who did what, in rows that are only ever added."""

from __future__ import annotations

from sqlalchemy.orm import Session

from tito.leaderboard.tables import Audit, Person

LONGEST = 2000


def note(
    session: Session, actor: Person | None, action: str, subject: str, details: str = ""
) -> None:
    """Add a row, in the transaction of what it tells of.

    Example:
        >>> note(session, instructor, "disqualify", "submission 12", "calls BLAS")  # doctest: +SKIP
    """
    session.add(
        Audit(
            actor_id=actor.id if actor else None,
            action=action,
            subject=subject[:120],
            details=details[:LONGEST],
        )
    )
