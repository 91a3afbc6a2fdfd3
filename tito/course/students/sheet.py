"""A table of CSV as a platform writes it, kept as it came, and cells that no spreadsheet computes.

Source: OWASP, "CSV Injection": a cell that begins with one of = + - @, a tab or a line break is
computed when a spreadsheet opens the file; an apostrophe before it keeps it text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tito.course.config import CourseError

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?|-")  # a dash is an empty cell
BOM = "\ufeff"


@dataclass(frozen=True)
class Sheet:
    """A table: a header and rows, each as long as the header.

    Attributes:
        bom: the file begins with the mark of UTF-8, as Excel's do.
        newline: at the end of a line.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    delimiter: str = ","
    bom: bool = False
    newline: str = "\n"

    def column(self, name: str) -> int | None:
        """The place of a column; None if there is none of that name."""
        wanted = name.casefold()
        return next((i for i, h in enumerate(self.header) if h.strip().casefold() == wanted), None)

    def cell(self, row: Sequence[str], *names: str) -> str:
        """What a row has in the first of these columns that there is; "" if there is none."""
        for name in names:
            place = self.column(name)
            if place is not None:
                return row[place].strip()
        return ""


def read(data: bytes, name: str = "the file") -> Sheet:
    """A table of a file.

    Raises:
        CourseError: it is no CSV in UTF-8, or its rows have more cells than its header.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CourseError(f"{name} is not in UTF-8 ({error}): save it as `CSV UTF-8`") from None
    bom, text = text.startswith(BOM), text.removeprefix(BOM)
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    newline = "\r\n" if first.endswith("\r") else "\n"
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise CourseError(f"{name} is no CSV: {error}") from None
    if not lines or len(lines[0]) < 2:
        raise CourseError(f"{name} has no header with columns")
    header, *rest = lines
    made = []
    for number, row in enumerate(rest, 2):
        if len(row) > len(header):
            raise CourseError(
                f"{name}, line {number}: {len(row)} cells under a header of {len(header)}"
            )
        if any(cell.strip() for cell in row):
            cells = [*row, *[""] * (len(header) - len(row))]
            made.append(tuple(map(_as_it_was, cells)))
    return Sheet(tuple(header), tuple(made), delimiter, bom, newline)


def write(sheet: Sheet) -> str:
    """The text of a table."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sheet.delimiter, lineterminator=sheet.newline)
    writer.writerow([harmless(cell) for cell in sheet.header])
    writer.writerows([harmless(cell) for cell in row] for row in sheet.rows)
    return BOM * sheet.bom + text.getvalue()


def harmless(value: Any) -> Any:
    """A cell that a spreadsheet shows and does not compute; "" for None.

    >>> harmless("=1+1"), harmless("-2.5"), harmless(None)
    ("'=1+1", '-2.5', '')
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _as_it_was(cell: str) -> str:
    """What `harmless` was given."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
