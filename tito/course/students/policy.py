"""Deadlines, free late days and the penalty: what `nbgrader_config.py` says about time.

A late day has begun when a second of it has passed. Free days are spent in the order of the
deadlines. What is later than `most_days` counts nothing, and spends no free day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY = 24 * 60 * 60
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?) ?([A-Za-z][\w+/-]*|[+-]\d\d:\d\d)")
SETTINGS = ("free_days", "penalty_per_day", "most_days", "grace_minutes")


class PolicyError(ValueError):
    """A setting about time is not as it has to be; the text says which, and what would be."""


@dataclass(frozen=True)
class Handed:
    """A submission, as far as time is concerned.

    Attributes:
        submitted: None if nobody knows when.
        deadline: of this student; None if there is none.
    """

    assignment: str
    submitted: datetime | None
    deadline: datetime | None


@dataclass(frozen=True)
class Late:
    """How late a submission is.

    Attributes:
        days: that have begun after the deadline.
        free: of them that cost nothing.
        too_late: it counts nothing.
    """

    days: int = 0
    free: int = 0
    too_late: bool = False


@dataclass(frozen=True)
class Policy:
    """What the course says about time.

    Attributes:
        deadlines: by assignment, with their zone.
        free_days: late days of each student that cost nothing, in the whole course.
        penalty_per_day: for each other day, as a part of the assignment's points.
        most_days: what is later counts nothing; None for no such limit.
        grace_minutes: what is late by no more is not late.
        set: the course says something about lateness; otherwise nbgrader's own penalties stay.
    """

    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    free_days: int = 0
    penalty_per_day: float = 0.0
    most_days: int | None = None
    grace_minutes: float = 0.0
    set: bool = False

    @classmethod
    def read(cls, deadlines: Any, late: Any) -> Policy:
        """From the settings `TinyTorch.deadlines` and `TinyTorch.late`.

        Raises:
            PolicyError: one of them has another form.
        """
        if not isinstance(deadlines, Mapping) or not isinstance(late, Mapping):
            raise PolicyError("TinyTorch.deadlines and TinyTorch.late are dictionaries")
        unknown = sorted(set(late) - set(SETTINGS))
        if unknown:
            raise PolicyError(f"no such setting: TinyTorch.late[{unknown[0]!r}]; known: {SETTINGS}")
        for name, value in late.items():
            if name == "most_days" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise PolicyError(f"TinyTorch.late[{name!r}] is {value!r}, not a number from 0 on")
            if name == "penalty_per_day" and value > 1:
                raise PolicyError(
                    f"TinyTorch.late[{name!r}] is {value!r}, not a part: 0.1 for 10 %"
                )
        times = {name: parse_time(text) for name, text in deadlines.items()}
        return cls(times, **late, set=bool(late))

    def late(self, handed: Iterable[Handed]) -> dict[str, Late]:
        """How late the submissions of one student are, by assignment."""
        left, found = self.free_days, {}
        timed = [h for h in handed if h.submitted is not None and h.deadline is not None]
        for each in sorted(timed, key=lambda h: (h.deadline, h.assignment)):
            assert each.submitted is not None
            assert each.deadline is not None
            seconds = (each.submitted - each.deadline).total_seconds()
            days = math.ceil(seconds / DAY) if seconds > 60 * self.grace_minutes else 0
            too_late = self.most_days is not None and days > self.most_days
            free = 0 if too_late else min(days, int(left))
            left -= free
            found[each.assignment] = Late(days, free, too_late)
        return found

    def penalty(self, late: Late, raw: float, max_score: float) -> float:
        """The points that lateness costs: never more than there are.

        >>> Policy(penalty_per_day=0.1).penalty(Late(days=3, free=1), raw=18, max_score=20)
        4.0
        """
        if late.too_late:
            return max(raw, 0.0)
        wanted = self.penalty_per_day * (late.days - late.free) * max_score
        return min(max(raw, 0.0), wanted)


def parse_time(text: object) -> datetime:
    """A time with its zone, in UTC.

    >>> parse_time("2026-10-01 23:59 Europe/Berlin").isoformat()
    '2026-10-01T21:59:00+00:00'

    Raises:
        PolicyError: it has another form, or no clock there has ever shown it.
    """
    found = TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise PolicyError(f"{text!r} is no time with a zone: write 2026-10-01 23:59 Europe/Berlin")
    day, clock, zone = found.groups()
    try:
        if zone[0] in "+-":
            return datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(UTC)
        local = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZoneInfo(zone))
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise PolicyError(f"{text!r} is no time: {error}") from None
    time = local.astimezone(UTC)
    if time.astimezone(local.tzinfo).replace(tzinfo=None) != local.replace(tzinfo=None):
        raise PolicyError(f"{text!r} is no time: clocks there skip it, for summer time")
    return time
