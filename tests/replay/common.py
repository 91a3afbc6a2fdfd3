"""What the backend has for a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.replay import function as replaying
from tinytorch.state import current_backend


def programs(function: Callable[..., Any]) -> list[Any]:
    """What the backend has for the kinds of calls of a function: a count, a program, or False."""
    found = current_backend().programs or {}
    return [p for key, p in found.items() if key[0] is function.replayed]  # type: ignore[attr-defined]


def runs(function: Callable[..., Any]) -> bool:
    """Whether a program runs for the last kind of calls; `Several` also where something is kept."""
    return type(programs(function)[-1]) in (replaying._Program, replaying.Several)
