"""A table of CSV as a platform writes it, kept as it came."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from tito.course.config import CourseError
from tito.spreadsheet import escape_formula, unescape_formula

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
            made.append(tuple(map(unescape_formula, cells)))
    return Sheet(tuple(header), tuple(made), delimiter, bom, newline)


def write(sheet: Sheet) -> str:
    """The text of a table."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sheet.delimiter, lineterminator=sheet.newline)
    writer.writerow([escape_formula(cell) for cell in sheet.header])
    writer.writerows([escape_formula(cell) for cell in row] for row in sheet.rows)
    return BOM * sheet.bom + text.getvalue()
