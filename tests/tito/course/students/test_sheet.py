"""Tables of CSV: kept as they came, and never computed by a spreadsheet."""

from __future__ import annotations

import pytest

from tito.course.config import CourseError
from tito.course.students.sheet import escape_formula, read, write

FORMULAS = ['=HYPERLINK("http://x","a")', "+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "-2+3", "＝1"]  # noqa: RUF001


def test_a_file_comes_back_byte_for_byte() -> None:
    text = '\ufeffStudent;ID;Note\r\n"Doe, Jane";4711;"a ""b"""\r\n    Points Possible;;\r\n'
    assert write(read(text.encode())) == text.replace('"Doe, Jane"', "Doe, Jane")


@pytest.mark.parametrize("cell", FORMULAS)
def test_what_a_spreadsheet_would_compute_is_text_and_is_read_back(cell: str) -> None:
    sheet = read(b"a,b\nx,y\n")
    made = write(type(sheet)(("a", cell), ((cell, "1"),)))
    assert made.count("'" + cell.split('"')[0]) == 2
    assert read(made.encode()).rows[0] == (cell, "1")


@pytest.mark.parametrize("cell", ["-", "-2.5", "+3", "1e-3", "-12,5", "50%", "Jane", "", None, 4.5])
def test_numbers_and_dashes_stay(cell: object) -> None:
    assert escape_formula(cell) == ("" if cell is None else cell)


def test_what_is_no_table_is_said() -> None:
    for data, said in [
        (b"\xff\xfe", "not in UTF-8"),
        (b"", "no header"),
        (b"a,b\n1,2,3\n", "3 cells under a header of 2"),
    ]:
        with pytest.raises(CourseError, match=said):
            read(data)
