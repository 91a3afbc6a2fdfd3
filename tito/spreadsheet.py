"""Cells that no spreadsheet computes.

Source: OWASP, "CSV Injection": a cell that begins with one of = + - @, a tab or a line break is
computed when a spreadsheet opens the file; an apostrophe before it keeps it text.
"""

from __future__ import annotations

import re
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?|-")  # a dash is an empty cell


def escape_formula(value: Any) -> Any:
    """A cell that a spreadsheet shows and does not compute; "" for None.

    >>> escape_formula("=1+1"), escape_formula("-2.5"), escape_formula(None)
    ("'=1+1", '-2.5', '')
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def unescape_formula(cell: str) -> str:
    """What `escape_formula` was given."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
