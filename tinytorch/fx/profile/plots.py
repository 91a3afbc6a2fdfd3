"""Pictures of a profile. They need matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinytorch.errors import missing_extra
from tinytorch.fx.profile.rows import CATEGORIES

if TYPE_CHECKING:
    from tinytorch.fx.profile.profile import Profile

COLORS = {
    "parameter": "#4c72b0",
    "optimizer_state": "#8172b3",
    "activation": "#dd8452",
    "gradient": "#c44e52",
    "other": "#8c8c8c",
}


def figure_of(height: float) -> tuple[Any, Any]:
    """A matplotlib figure of a height in inches, and its axes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "fx", "a plot") from None
    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots()


def _mark_phases(axes: Any, profile: Profile) -> None:
    for phase, ranks in profile.phases.items():
        axes.axvline(ranks.start, color="black", linewidth=0.8, linestyle=":")
        axes.annotate(phase, (ranks.start, 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -3), textcoords="offset points", va="top", fontsize=8)  # fmt: skip


def plot_memory(profile: Profile, path: str | Path, limit: int | None = None) -> None:
    """Draw memory against rank, by category, with the phases and the measured line.

    Args:
        path: of the picture; the suffix says the format.
        limit: bytes, drawn as a line.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, axes = figure_of(4)
    rows = [[b / 2**20 for b in profile.memory[c]] for c in CATEGORIES]
    axes.stackplot(range(len(profile.nodes)), rows, labels=CATEGORIES,
                   colors=[COLORS[c] for c in CATEGORIES], step="post")  # fmt: skip
    measured = [n.measured_bytes / 2**20 for n in profile.nodes]
    axes.step(range(len(measured)), measured, where="post", color="black", linewidth=0.7,
              label=f"measured ({profile.meter})")  # fmt: skip
    if limit is not None:
        axes.axhline(limit / 2**20, color="red", linestyle="--", label="limit")
    _mark_phases(axes, profile)
    axes.set_xlabel("execution rank")
    axes.set_ylabel("MiB alive")
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title(f"{profile.title} on {profile.device}")
    figure.savefig(path)


def plot_nodes(profile: Profile, path: str | Path) -> None:
    """Draw the time of each node, and below it the memory that it makes, against rank.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, _ = figure_of(6)
    figure.clear()
    upper, lower = figure.subplots(2, 1, sharex=True)
    ranks = [n.rank for n in profile.nodes]
    upper.vlines(ranks, 0, [n.seconds * 1e3 for n in profile.nodes], linewidth=0.8)
    upper.set_ylabel("ms")
    lower.vlines(ranks, 0, [n.made_bytes / 2**20 for n in profile.nodes], linewidth=0.8)
    lower.set_ylabel("MiB made")
    lower.set_xlabel("execution rank")
    for axes in (upper, lower):
        _mark_phases(axes, profile)
        axes.set_ylim(bottom=0)
    upper.set_title(f"{profile.title} on {profile.device}")
    figure.savefig(path)


def plot_inactive(profile: Profile, path: str | Path) -> None:
    """Draw for each activation how long it is inactive, against its size; and the time it would
    take to bring it to the host and back, above which swapping is hidden.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, axes = figure_of(4)
    found = profile.activations
    sizes = [a.nbytes / 2**20 for a in found]
    dots = axes.scatter(sizes, [a.inactive_seconds * 1e3 for a in found], s=12,
                        c=[a.recompute_seconds * 1e3 for a in found])  # fmt: skip
    figure.colorbar(dots, label="ms to recompute")
    swap = sorted((a.nbytes / 2**20, 2 * a.swap_seconds * 1e3) for a in found)
    axes.plot([x for x, _ in swap], [y for _, y in swap], color="black", linewidth=0.8,
              label="swap out and in")  # fmt: skip
    axes.set_xlabel("MiB")
    axes.set_ylabel("ms inactive")
    axes.legend(fontsize=8)
    axes.set_title(f"{profile.title}: {len(found)} activations")
    figure.savefig(path)
