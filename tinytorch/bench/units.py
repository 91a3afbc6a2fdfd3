"""Quantities for people: 12.3 us, 4.5 MiB, 1.23 G; and tables of them in plain text."""

from __future__ import annotations

from collections.abc import Sequence

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _digits(number: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"


def format_seconds(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> format_seconds(0.00123), format_seconds(12.5), format_seconds(3e-8)
    ('1.23 ms', '12.5 s', '30 ns')
    """
    for unit, name in _TIME:
        if abs(seconds) >= unit:
            return f"{_digits(seconds / unit)} {name}"
    return f"{_digits(seconds * 1e9)} ns"


def format_bytes(count: float) -> str:
    """A size of memory in powers of 1024.

    >>> format_bytes(1536), format_bytes(7), format_bytes(1023 << 10)
    ('1.5 KiB', '7 B', '1023 KiB')
    """
    for unit, name in _BINARY:
        if abs(count) >= unit:
            return f"{_digits(count / unit)} {name}"
    return f"{count:.0f} B"


def format_count(count: float) -> str:
    """A number in powers of 1000.

    >>> format_count(13_100_000), format_count(0), format_count(250)
    ('13.1 M', '0', '250')
    """
    for unit, name in _DECIMAL:
        if abs(count) >= unit:
            return f"{_digits(count / unit)} {name}"
    return _digits(count)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns of text under their names: the first flush left, the others, numbers, flush right.

    Args:
        left: how many columns are flush left.

    Raises:
        ValueError: a row has more or fewer cells than there are columns.

    >>> print(format_table(["op", "calls"], [["add", "12"], ["matmul", "3"]]))
    op      calls
    add        12
    matmul      3
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells for {len(columns)} columns: {list(row)}")
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """`format_table` in Markdown.

    >>> print(markdown_table(["op", "calls"], [["add", "12"]]))
    | op | calls |
    | --- | --: |
    | add | 12 |
    """
    lines = [columns, ["---"] * left + ["--:"] * (len(columns) - left), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
