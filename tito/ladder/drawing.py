"""The ladder as a picture: how many times as fast as the lowest rung, now and before."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tito.workspace.folder import WorkspaceError

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
    now = {rung["rung"]: rung for rung in results[-1]["rungs"] if "seconds" in rung}
    if not now:
        raise WorkspaceError("there is nothing to draw: no rung was timed")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.45 * len(now) + 1.3), layout="constrained")
    axes = figure.subplots()
    names = list(now)
    fast = [now[name]["times_as_fast"] for name in names]
    least = min(1.0, *fast) / 2
    for place, (name, value) in enumerate(zip(names, fast, strict=True)):
        length = value / least  # on a logarithmic axis a bar begins at `least`, not at 0
        own = length ** _own(now[name])
        axes.barh(place, least * own - least, left=least, color=YOURS)
        axes.barh(place, value - least * own, left=least * own, color=OURS)
        axes.text(value * 1.1, place, f"{value:,.3g}", va="center")
        if before := _best_before(results[:-1], name):
            axes.plot([before], [place], marker="|", markersize=16, color=BEFORE)
    axes.set_xscale("log")
    axes.set_xlim(least, max(fast) * 3)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(f"times as fast as {names[0]}; blue: arithmetic in your kernels; red: before")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    written = [path.with_suffix(suffix) for suffix in SUFFIXES]
    for each in written:
        figure.savefig(each)
    return written


def _own(rung: dict[str, Any]) -> float:
    share = rung.get("share") or {}
    flops: float = share.get("flops") or 0
    return share["own_flops"] / flops if flops else 0.0


def _best_before(results: Sequence[dict[str, Any]], name: str) -> float:
    values = [
        rung["times_as_fast"]
        for result in results
        for rung in result["rungs"]
        if rung["rung"] == name and "times_as_fast" in rung
    ]
    return max(values, default=0.0)
