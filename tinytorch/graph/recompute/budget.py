"""Memory budgets: how they are written, and which plans are within one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tinytorch.bench.units import format_bytes
from tinytorch.graph.recompute.problem import RecomputeError

#: Bytes; or as a float a fraction of the peak with everything kept; or as a text either: "512MiB".
Budget = int | float | str
UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30,
         "kb": 10**3, "mb": 10**6, "gb": 10**9}  # fmt: skip


def parse_budget(budget: Budget) -> int | float:
    """Bytes, or a fraction above 0 and up to 1; what is neither is refused before any work.

    >>> parse_budget("512MiB"), parse_budget("0.5"), parse_budget(4096)
    (536870912, 0.5, 4096)

    Raises:
        RecomputeError: it is neither.
    """
    given: int | float | None = None
    if isinstance(budget, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", budget.strip())
        if match is not None and match[2].lower() in UNITS:
            is_fraction = not match[2] and "." in match[1]
            given = (
                float(match[1]) if is_fraction else int(float(match[1]) * UNITS[match[2].lower()])
            )
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        given = budget
    if given is None:
        raise RecomputeError(
            f"{budget!r} is no budget: bytes (536870912 or '512MiB'), or a fraction of keeping "
            "everything (0.5)"
        )
    if isinstance(given, float) and not 0 < given <= 1:
        raise RecomputeError(
            f"a budget of {given:g} is a fraction, which is above 0 and at most 1 (0.5 is half of "
            f"keeping everything); for bytes give an integer or a unit ('{given:g}GiB')"
        )
    if given <= 0:
        raise RecomputeError(f"a budget of {given} bytes: it must be above 0")
    return given


def bytes_of(budget: Budget, whole: int) -> int:
    """A budget in bytes, where keeping everything takes `whole`."""
    parsed = parse_budget(budget)
    return int(parsed * whole) if isinstance(parsed, float) else parsed


class _HasPeak(Protocol):
    @property
    def peak(self) -> int: ...


P = TypeVar("P", bound=_HasPeak)


def fitting(plans: Sequence[P], whole: int, budget: Budget, means: str = "") -> list[P]:
    """The plans whose peak is within a budget; there is at least one.

    Args:
        plans: the one with the lowest peak first.
        whole: the peak with everything kept, of which a budget may be a fraction.
        means: what the plans could use, for the message.

    Raises:
        RecomputeError: no plan is; the message says the lowest budget that can be met.
    """
    limit = bytes_of(budget, whole)
    found = [plan for plan in plans if plan.peak <= limit]
    if not found:
        lowest = plans[0].peak
        raise RecomputeError(
            f"a budget of {format_bytes(limit)} ({limit / whole:.1%} of everything kept) "
            f"cannot be met{means}; the lowest that can is {lowest} bytes "
            f"({format_bytes(lowest)}, {lowest / whole:.1%})"
        )
    return found
