from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tinytorch.bench import format_bytes, format_count, format_seconds, format_table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.0, "2 s"),
        (2e-2, "20 ms"),
        (2e-5, "20 us"),
        (2e-8, "20 ns"),
        (0.0, "0 ns"),
        (-2.0, "-2 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1 MiB"), (-3 << 30, "-3 GiB")]
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1e3, "1 k"), (2.5e9, "2.5 G"), (-1e12, "-1 T")]
)
def test_counts(count: float, text: str) -> None:
    assert format_count(count) == text


cells = st.text("abc", max_size=6)


@given(st.lists(st.tuples(cells, cells, cells), max_size=4))
def test_columns_stand_below_each_other(rows: list[tuple[str, str, str]]) -> None:
    lines = format_table(["first", "second", "third"], rows).split("\n")
    assert len(lines) == len(rows) + 1
    end = len(lines[0])
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.ljust(end).endswith(row[2])
        assert line.startswith(row[0])


def test_a_ragged_row_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a row of 1 cells for 2 columns: \['x'\]"):
        format_table(["a", "b"], [["x"]])
