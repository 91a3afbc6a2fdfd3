"""A profile as one HTML file that needs nothing else: it opens without a network."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinytorch.fx.profile.plots import COLORS
from tinytorch.fx.profile.report_page import PAGE, STYLE
from tinytorch.fx.profile.rows import CATEGORIES

if TYPE_CHECKING:
    from tinytorch.fx.profile.profile import Profile

WIDTH, HEIGHT = 190, 40  # of a node's cell in the drawing


def write_html(profile: Profile, path: str | Path, limit: int | None = None) -> None:
    """Write the report: memory and time against rank, modules, nodes and activations in tables, and
    the graph, which can be zoomed and searched.

    Args:
        limit: bytes, drawn as a line in the memory chart.
    """
    Path(path).write_text(render(profile, limit))


def render(profile: Profile, limit: int | None = None) -> str:
    """The page as text."""
    data = {
        "limit": limit,
        "categories": [[c, COLORS[c], profile.memory[c]] for c in CATEGORIES],
        "phases": {name: [r.start, r.stop] for name, r in profile.phases.items()},
        "nodes": _nodes(profile),
        "activations": profile.activation_rows(),
        "size": [WIDTH, HEIGHT],
    }
    # "</" would end the script element in the middle of a string
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = PAGE.replace("@STYLE@", STYLE).replace("@TITLE@", html.escape(profile.title))
    return page.replace("@SUMMARY@", html.escape(str(profile))).replace("@DATA@", text)


def _nodes(profile: Profile) -> list[dict[str, Any]]:
    places = layout(profile)
    ranks = {n.name: n.rank for n in profile.nodes}
    return [
        {
            "name": n.name,
            "op": n.op,
            "phase": n.phase,
            "type": n.type,
            "us": round(n.seconds * 1e6, 2),
            "flops": n.flops,
            "made": n.made_bytes,
            "live": n.predicted_bytes,
            "measured": n.measured_bytes,
            "line": n.line,
            "module": n.module,
            "from": [ranks[name] for name in n.inputs],
            "at": places[n.rank],
        }
        for n in profile.nodes
    ]


def layout(profile: Profile) -> list[tuple[int, int]]:
    """The column and row of each node: one row below the last of its inputs.

    Nodes of a row are side by side. Inputs of the graph are in the row above their first use,
    or they would all crowd the first one.
    """
    ranks = {n.name: n.rank for n in profile.nodes}
    rows = [0] * len(profile.nodes)
    for n in profile.nodes:
        computed = [rows[ranks[a]] for a in n.inputs if profile.nodes[ranks[a]].phase]
        rows[n.rank] = max((row + 1 for row in computed), default=1)
    first_use = {ranks[a]: n.rank for n in reversed(profile.nodes) for a in n.inputs}
    for n in profile.nodes:
        if not n.phase and n.rank in first_use:
            rows[n.rank] = max(rows[first_use[n.rank]] - 1, 0)
    filled: dict[int, int] = {}
    places = []
    for row in rows:
        places.append((filled.get(row, 0), row))
        filled[row] = filled.get(row, 0) + 1
    return places
