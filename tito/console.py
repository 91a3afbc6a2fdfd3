"""What `tito` prints: coloured on a terminal, plain text otherwise, JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tito import strict_json

PLAIN_WIDTH = 200  # of lines that nobody's terminal limits
COLOURS = {"ok": "green", "missing": "yellow", "broken": "bold red"}

# a slice x[:a:] of a student's is no emoji
out = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document on stdout, with nothing around it; null for what is no finite number."""
    print(strict_json.dumps(value))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of text, flush left, under their names."""
    if not out.is_terminal:
        out.width = PLAIN_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell, style=COLOURS.get(cell, "")) for cell in row])
    out.print(table)


def print_beside(title: str, rows: Sequence[tuple[str, str, bool]]) -> None:
    """Two texts beside each other; in a row of lines that differ a mark is between them."""
    if not out.is_terminal:
        out.width = PLAIN_WIDTH
    out.print(Text(f"\n{title}", style="bold"))
    if not rows:
        out.print("the same as ours")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", expand=out.is_terminal)
    for column in ("yours", "", "ours"):
        table.add_column(column, overflow="fold", ratio=1 if column else None)
    for left, right, differs in rows:
        style = "yellow" if differs else ""
        table.add_row(Text(left, style=style), "|" if differs else "", Text(right, style=style))
    out.print(table)


def bar(share: float, width: int = 12) -> str:
    """A share as a bar of characters.

    >>> bar(0.5, 8)
    '####....'
    """
    done = round(min(max(share, 0.0), 1.0) * width)
    return "#" * done + "." * (width - done)


def unknown(kind: str, given: str, known: Sequence[str]) -> str:
    """The sentence for a name that does not exist: the nearest ones, then all.

    >>> unknown("milestone", "cnm", ["xor", "cnn"])
    "there is no milestone 'cnm'. Did you mean 'cnn'? There are: xor, cnn"
    """
    close = get_close_matches(given, known)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return f"there is no {kind} {given!r}.{hint} There are: {', '.join(known)}"
