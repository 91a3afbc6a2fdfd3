"""Figures that lessons draw from numbers they have just measured: SVG text, shown by notebooks.

Beside it a notebook gets the same as PNG, if Pillow is there (matplotlib brings it): JupyterLab
shows no SVG in a notebook that it does not trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 110, 26, 44  # margins, with titles and numbers
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
TICKS = 5


class Figure:
    """A drawing. A notebook shows it when it is the last value of a cell.

    Attributes:
        svg: the text.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_png_(self) -> bytes | None:
        from importlib.util import find_spec

        if find_spec("PIL") is None:
            return None  # what IPython takes for "no such form"
        from tito.figure_png import png

        return png(self.svg)

    def __repr__(self) -> str:
        return f"<figure, {len(self.svg)} characters of SVG>"


def line_chart(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    title: str = "",
    x_label: str = "",
    log: bool = False,
) -> Figure:
    """Lines through the points (x, y) of each series, with its name at their end.

    Args:
        x: positions, at least two different ones.
        series: name -> as many values as x has. What is not finite is left out, as with `log` is
            what is not positive.
        log: a logarithmic y axis.

    Raises:
        ValueError: a series has another length, or there is nothing to draw.

    >>> line_chart([0, 1], {"y": [1.0, 2.0]}, title="two points").svg.count("<polyline")
    1
    """
    if wrong := [name for name, ys in series.items() if len(ys) != len(x)]:
        raise ValueError(f"line_chart: {wrong[0]!r} has {len(series[wrong[0]])} values, x {len(x)}")
    lines = {
        name: [
            (a, math.log10(b) if log else b) for a, b in zip(x, ys, strict=True) if _seen(b, log)
        ]
        for name, ys in series.items()
    }
    ys = [y for points in lines.values() for _, y in points]
    if not ys or min(x) == max(x):
        raise ValueError("line_chart: there is nothing to draw: no finite value, or a single x")
    low, high = min(ys), max(ys)
    low, high = (low, high) if low < high else (low - 1, high + 1)

    def place(a: float, b: float) -> tuple[float, float]:
        across = (a - min(x)) / (max(x) - min(x)) * (WIDTH - LEFT - RIGHT)
        up = (b - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [_text(WIDTH / 2, 16, title, "middle"), _text(WIDTH / 2, HEIGHT - 6, x_label, "middle")]
    for i in range(TICKS):
        share = i / (TICKS - 1)
        right, up = place(max(x), low + share * (high - low))
        value = low + share * (high - low)
        parts.append(f'<path d="M{LEFT} {up}H{right}" stroke="#d0d7de"/>')
        parts.append(_text(LEFT - 6, up + 4, f"{10**value if log else value:.2g}", "end"))
        at = min(x) + share * (max(x) - min(x))
        parts.append(_text(place(at, low)[0], HEIGHT - BOTTOM + 16, f"{at:.3g}", "middle"))
    for i, (name, points) in enumerate(lines.items()):
        color = COLORS[i % len(COLORS)]
        path = " ".join(f"{a},{b}" for a, b in (place(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT + 8, TOP + 12 + 16 * i, name, "start", color))
    return _figure(WIDTH, HEIGHT, parts)


def _seen(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def cells(
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    colors: Sequence[Sequence[int]] | None = None,
) -> Figure:
    """Boxes with a value in each, one row of boxes below another.

    Args:
        rows: the values; rows may differ in length.
        colors: for each row, for each box, a number: boxes of one number have one colour. By
            default the number of its row.

    >>> cells([[1, 2], [3]]).svg.count("<rect")
    3
    """
    size = 36
    given = colors or [[i] * len(row) for i, row in enumerate(rows)]
    parts = [_text(4, 16, title, "start")]
    for i, (row, shades) in enumerate(zip(rows, given, strict=True)):
        for j, (value, shade) in enumerate(zip(row, shades, strict=True)):
            x, y, color = 4 + j * size, TOP + i * size, COLORS[shade % len(COLORS)]
            parts.append(
                f'<rect x="{x}" y="{y}" width="{size - 2}" height="{size - 2}" fill="{color}" '
                f'fill-opacity="0.18" stroke="{color}"/>'
            )
            parts.append(_text(x + size / 2 - 1, y + size / 2 + 4, str(value), "middle"))
    width = max([8 * len(title), *(size * len(row) for row in rows)]) + 8
    return _figure(width, TOP + size * len(rows) + 4, parts)


def _text(x: float, y: float, text: str, anchor: str, color: str = "currentColor") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def _figure(width: float, height: float, parts: Sequence[str]) -> Figure:
    return Figure(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>'
    )
