"""The ladder as a picture: how many times as fast as the lowest tier, now and before."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tito.workspace.folder import WorkspaceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

YOURS, OURS, BEFORE = "#1f6feb", "#8c959f", "#d1242f"
SUFFIXES = (".svg", ".png")


def draw(results: Sequence[dict[str, Any]], title: str, path: Path) -> list[Path]:
    """Draw the last of `results`, with the best that was reached before as marks.

    A bar is blue as far as its arithmetic was done by the student's kernels.

    Args:
        path: of the pictures, without suffix.

    Returns:
        The files written, SVG and PNG.

    Raises:
        WorkspaceError: matplotlib is not installed, or nothing was timed.
    """
    if find_spec("matplotlib") is None:
        raise WorkspaceError("the picture needs matplotlib: pip install 'tinytorch[train]'")
    now = {tier["tier"]: tier for tier in results[-1]["tiers"] if "seconds" in tier}
    if not now:
        raise WorkspaceError("there is nothing to draw: no tier was timed")
    from matplotlib.figure import Figure

    several = len(results) > 1
    height = 0.45 * len(now) + 1.3
    figure = Figure(figsize=(7.2, height + 2.6 * several), layout="constrained")
    if several:
        bars, lines = figure.subplots(2, 1, height_ratios=(height, 2.6))
        _draw_lines(lines, results, list(now))
    else:
        bars = figure.subplots()
    _draw_bars(bars, now, results[:-1])
    bars.set_title(title)
    written = [path.with_suffix(suffix) for suffix in SUFFIXES]
    for each in written:
        figure.savefig(each)
    return written


def _draw_bars(axes: Axes, now: dict[str, Any], before: Sequence[dict[str, Any]]) -> None:
    """How many times as fast as the lowest tier."""
    fast = {name: tier["times_as_fast"] for name, tier in now.items()}
    least = min(1.0, *fast.values()) / 2  # where the bars begin: a logarithmic axis has no 0
    for place, (name, value) in enumerate(fast.items()):
        own = least * (value / least) ** _own(now[name])
        axes.barh(place, own - least, left=least, color=YOURS)
        axes.barh(place, value - own, left=own, color=OURS)
        best = _best_before(before, name)
        if best:
            axes.plot([best], [place], marker="|", markersize=16, color=BEFORE)
        axes.text(max(value, best) * 1.15, place, f"{value:,.3g}", va="center")
    names = [f"{name}\n{tier.get('lesson', '')}".strip() for name, tier in now.items()]
    axes.set_yticks(range(len(now)), names, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(least, max(fast.values()) * 3)
    axes.set_xlabel(f"times as fast as {next(iter(now))}; blue: arithmetic in your kernels; "
                    "red: the best before")  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)


def _draw_lines(axes: Axes, results: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """The time of a step on each tier, measurement after measurement."""
    for name in names:
        points = [
            (number, tier["seconds"])
            for number, result in enumerate(results, 1)
            for tier in result["tiers"]
            if tier["tier"] == name and "seconds" in tier
        ]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_yscale("log")
    axes.set_xticks(range(1, len(results) + 1))
    axes.set_xlabel("measurement")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


def _own(tier: dict[str, Any]) -> float:
    share = tier.get("share") or {}
    flops: float = share.get("flops") or 0
    return share["own_flops"] / flops if flops else 0.0


def _best_before(results: Sequence[dict[str, Any]], name: str) -> float:
    values = [
        tier["times_as_fast"]
        for result in results
        for tier in result["tiers"]
        if tier["tier"] == name and "times_as_fast" in tier
    ]
    return max(values, default=0.0)
