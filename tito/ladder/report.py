"""What was measured, in words and in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.bench.units import format_seconds
from tito.ladder.measure import OK, Measured, ratio

BESIDE = ("optimized", "torch")  # whom the others are set beside, apart from the first


def rows(found: Sequence[Measured]) -> tuple[list[str], list[list[str]]]:
    """The table: columns, and a row for each rung that was timed."""
    timed = [each for each in found if each.status == OK]
    if not timed:
        return [], []
    first = timed[0]
    beside = [each for each in timed if each.rung.name in BESIDE]
    shares = any(each.share is not None for each in timed)
    columns = ["rung", "step", f"times as fast as {first.rung.name}"]
    columns += [f"times {each.rung.name}'s time" for each in beside]
    columns += ["yours: calls", "FLOPs"] if shares else []
    table = []
    for each in timed:
        row = [each.rung.name, format_seconds(each.seconds), f"{ratio(first, each):,.4g}"]
        row += [f"{ratio(each, other):.3g}" for other in beside]
        row += _share(each) if shares else []
        table.append([*row, each.rung.says])
    return [*columns, "what runs"], table


def _share(each: Measured) -> list[str]:
    share = each.share
    if share is None or not share.calls:
        return ["", ""]
    return [f"{share.own_calls / share.calls:.0%}", f"{share.own_flops / max(share.flops, 1):.0%}"]


def not_timed(found: Sequence[Measured]) -> list[str]:
    """A line for each rung that was not."""
    return [f"{each.rung.name}: {each.status}: {each.says}" for each in found if each.status != OK]


def as_json(step: str, found: Sequence[Measured], **more: Any) -> dict[str, Any]:
    """What --json prints, and what the history keeps."""
    timed = [each for each in found if each.status == OK]
    values = []
    for each in found:
        value = each.as_json()
        if each.status == OK:
            value["times_as_fast"] = ratio(timed[0], each)
        values.append(value)
    passed = all(each.status in (OK, "absent") for each in found)
    return {"step": step, "passed": passed, **more, "rungs": values}
