"""What was measured, in words and in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.bench.units import format_seconds
from tito.ladder.measure import OK, Measured, ratio
from tito.workspace import course

BESIDE = ("optimized", "torch")  # whom the others are set beside, apart from the first
LEGEND = "x: how many times as fast as that tier; below: the tier before"


def rows(found: Sequence[Measured]) -> tuple[list[str], list[list[str]]]:
    """The table: columns, and a row for each tier that was timed."""
    timed = [each for each in found if each.status == OK]
    if not timed:
        return [], []
    beside = [timed[0], *(each for each in timed[1:] if each.tier.name in BESIDE)]
    shares = any(each.share is not None for each in timed)
    columns = ["tier", "step", f"x {timed[0].tier.name}", "x below"]
    columns += [f"x {each.tier.name}" for each in beside[1:]]
    columns += ["yours: calls", "FLOPs"] if shares else []
    table = []
    for below, each in zip([None, *timed], timed, strict=False):
        times = [_times(ratio(other, each)) for other in beside]
        times.insert(1, _times(ratio(below, each)) if below is not None else "")
        row = [each.tier.name, format_seconds(each.seconds), *times]
        row += _share(each) if shares else []
        lesson = course.name_of(each.tier.lesson)
        table.append([*row, f"{each.tier.says} ({lesson})" if lesson else each.tier.says])
    return [*columns, "what runs"], table


def _times(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _share(each: Measured) -> list[str]:
    share = each.share
    if share is None or not share.calls:
        return ["", ""]
    return [f"{share.own_calls / share.calls:.0%}", f"{share.own_flops / max(share.flops, 1):.0%}"]


def not_timed(found: Sequence[Measured]) -> list[str]:
    """A line for each tier that was not."""
    return [f"{each.tier.name}: {each.status}: {each.says}" for each in found if each.status != OK]


def as_json(step: str, found: Sequence[Measured], **more: Any) -> dict[str, Any]:
    """What --json prints, and what the history keeps."""
    timed = [each for each in found if each.status == OK]
    values = []
    for each in found:
        value = each.as_json()
        value["lesson"] = course.name_of(each.tier.lesson)
        if each.status == OK:
            value["times_as_fast"] = ratio(timed[0], each)
        values.append(value)
    passed = all(each.status in (OK, "absent") for each in found)
    return {"step": step, "passed": passed, **more, "tiers": values}
