"""What the backend has for a function, and its trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.replay import function as replaying
from tinytorch.replay.trace import Trace
from tinytorch.state import current_backend
from tinytorch.tensor import Tensor


def traced(function: Callable[..., Any], *given: Tensor) -> tuple[Trace, list[int]]:
    """A trace of a function, and the slots of its results."""
    trace = Trace()
    inputs = [trace.input(t.meta, False) for t in given]
    with trace:
        out = function(*inputs)
    return trace, [t._data.index for t in (out if isinstance(out, tuple) else (out,))]


def programs(function: Callable[..., Any]) -> list[Any]:
    """What the backend has for the kinds of calls of a function: a count, a program, or False."""
    found = current_backend().programs or {}
    return [p for key, p in found.items() if key[0] is function.replayed]  # type: ignore[attr-defined]


def runs(function: Callable[..., Any]) -> bool:
    """Whether a program runs for the last kind of calls; `Several` also where something is kept."""
    return type(programs(function)[-1]) in (replaying._Program, replaying.Several)
