"""Drawings as SVG, made here: no script, and no style of its own that the policy would forbid."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 160, 18


def interval(low: float, middle: float, high: float, top: float) -> Markup:
    """A score as a bar from 0, its interval as a line over it; `top` is the axis's end."""
    scale = (WIDTH - 4) / (top or 1.0)
    a, m, b = (2 + scale * v for v in (low, middle, high))
    return Markup(
        f'<svg class="interval" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{middle:.3f}, from {low:.3f} to {high:.3f}">'
        f'<rect class="bar" x="2" y="5" width="{max(m - 2, 0):.1f}" height="8"/>'
        f'<path class="whisker" d="M{a:.1f} 9H{b:.1f}M{a:.1f} 4V14M{b:.1f} 4V14"/></svg>'
    )


def spread(ratios: Sequence[float]) -> Markup:
    """A point for each launch, on an axis that all of them fill; a line where the ratio is 1."""
    if not ratios:
        return Markup("")
    low, high = min(*ratios, 1.0), max(*ratios, 1.0)
    scale = (WIDTH - 12) / ((high - low) or 1.0)
    points = "".join(
        f'<circle class="launch" cx="{6 + scale * (r - low):.1f}" cy="9" r="3"/>' for r in ratios
    )
    one = 6 + scale * (1.0 - low)
    return Markup(
        f'<svg class="spread" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="launches from {min(ratios):.3f} to {max(ratios):.3f}">'
        f'<path class="one" d="M{one:.1f} 1V17"/>{points}</svg>'
    )


def record(steps: Sequence[tuple[float, float]]) -> Markup:
    """The best score over time: a staircase, from the first score to the last."""
    if len(steps) < 2:
        return Markup("")
    width, height, left, bottom = 600, 160, 50, 24
    begin, end = steps[0][0], steps[-1][0]
    top = max(score for _, score in steps) * 1.1
    x_scale, y_scale = (width - left - 10) / ((end - begin) or 1.0), (height - bottom - 10) / top

    def place(at: float, score: float) -> tuple[float, float]:
        return left + x_scale * (at - begin), height - bottom - y_scale * score

    x, y = place(*steps[0])
    path = f"M{x:.1f} {y:.1f}"
    for at, score in steps[1:]:
        x, y = place(at, score)
        path += f"H{x:.1f}V{y:.1f}"
    minutes = (end - begin) / 60
    unit = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    unit = unit if minutes < 2880 else f"{minutes / 1440:.1f} days"
    return Markup(
        f'<svg class="record" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="the record rose from {steps[0][1]:.2f} to {steps[-1][1]:.2f} in {unit}">'
        f'<path class="axis" d="M{left} 10V{height - bottom}H{width - 10}"/>'
        f'<path class="line" d="{path}"/>'
        f'<text x="{left - 6}" y="20" text-anchor="end">{top / 1.1:.2f}</text>'
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end">0</text>'
        f'<text x="{width - 10}" y="{height - 6}" text-anchor="end">{unit}</text></svg>'
    )
