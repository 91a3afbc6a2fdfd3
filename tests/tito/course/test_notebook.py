"""What a student handed in, read and put right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.tito.course.conftest import TESTS, cell, code, instructor_notebook, submission, write
from tito.course.notebook import (
    UnreadableError,
    course_cells,
    grade_id,
    hidden_tests,
    read_notebook,
    restore,
    without_hidden,
)


@pytest.fixture
def source() -> Any:
    return nbformat.from_dict(instructor_notebook())


def restored(tmp_path: Path, source: Any, edit: Any) -> list[Any]:
    """The cells of a submission after an edit of the student's and the restoration."""
    path = tmp_path / "submitted.ipynb"
    path.write_text(submission(edit), encoding="utf-8")
    node = restore(read_notebook(path), source)
    nbformat.validate(node)
    return list(node.cells)


def names(cells: list[Any]) -> list[str | None]:
    return [grade_id(each) for each in cells]


def test_the_students_code_stays_and_the_courses_is_the_courses(
    tmp_path: Path, source: Any
) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        write("double", "def double(x): return 3")(cells)
        write("double-values", "pass")(cells)
        write("imports", "np = None")(cells)
        write("demo", "changed")(cells)

    cells = {each.id: each.source for each in restored(tmp_path, source, edit)}
    assert cells["double"] == "def double(x): return 3"
    assert cells["double-values"] == TESTS["double-values"]
    assert cells["imports"] == "import numpy as np"
    assert "changed" in cells.values()


def test_deleted_cells_are_back_where_they_stood(tmp_path: Path, source: Any) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        gone = ("imports", "double-values", "clamp-values", "clamp-hidden")
        cells[:] = [c for c in cells if c["id"] not in gone]

    cells = restored(tmp_path, source, edit)
    expected = ["imports", "double", "double-values", None, "clamp", "clamp-values", "clamp-hidden"]
    assert names(cells) == expected


def test_a_deleted_solution_stays_deleted(tmp_path: Path, source: Any) -> None:
    cells = restored(tmp_path, source, lambda cells: cells.pop(1))
    assert "double" not in names(cells)
    assert names(cells).index("double-values") == 1


def test_of_a_cell_that_is_there_twice_the_last_counts(tmp_path: Path, source: Any) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        cells.append({**cells[2], "source": "pass"})
        cells.append(cell("solution", "double", "def double(x): return 5"))

    cells = restored(tmp_path, source, edit)
    assert names(cells).count("double-values") == names(cells).count("double") == 1
    assert [c.source for c in cells if grade_id(c) == "double"] == ["def double(x): return 5"]
    assert cells[2].source == TESTS["double-values"]  # the first one now runs as their own


@pytest.mark.parametrize(
    "metadata",
    [
        {"grade_id": "double-values", "grade": True, "points": 1000, "solution": True},
        {"grade_id": "double-values", "schema_version": 99, "task": True, "locked": False},
        {"grade_id": "double-values", "cell_type": "markdown"},
    ],
)
def test_nothing_else_of_the_metadata_is_believed(
    tmp_path: Path, source: Any, metadata: dict[str, Any]
) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        cells[2] |= {"metadata": {"nbgrader": metadata}, "source": "pass"}

    found = restored(tmp_path, source, edit)[2]
    assert found.metadata == source.cells[2].metadata
    assert found.source == TESTS["double-values"]


@pytest.mark.parametrize("metadata", [{"nbgrader": 3}, {"nbgrader": {"grade_id": ["a"]}}, {}])
def test_metadata_that_makes_no_sense_makes_a_cell_of_the_students_own(
    tmp_path: Path, source: Any, metadata: dict[str, Any]
) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        cells[1]["metadata"] = metadata

    cells = restored(tmp_path, source, edit)
    assert cells[1].source.startswith("def double") or cells[2].source.startswith("def double")
    assert "double" not in names(cells)


def test_a_cell_of_another_type_is_what_the_course_says(tmp_path: Path, source: Any) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        cells[1] = {"cell_type": "markdown", "id": "double", "metadata": cells[1]["metadata"],
                    "source": "def double(x): return 4"}  # fmt: skip

    assert restored(tmp_path, source, edit)[1].cell_type == "code"


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_markup_of_the_students_own_is_made_harmless(
    tmp_path: Path, source: Any, kind: str
) -> None:
    ours = "<details>ours</details>"
    source.cells.insert(0, nbformat.v4.new_markdown_cell(ours))

    def edit(cells: list[dict[str, Any]]) -> None:
        for text in ("1 < 2 <script>x</script>", ours):
            cells.append({"cell_type": kind, "id": text[:3], "metadata": {}, "source": text})

    texts = [c.source for c in restored(tmp_path, source, edit) if c.cell_type != "code"]
    assert texts == ["1 < 2 &lt;script>x&lt;/script>", ours]


def test_cell_ids_are_made_unique(tmp_path: Path, source: Any) -> None:
    def edit(cells: list[dict[str, Any]]) -> None:
        cells += [code("1", "same"), code("2", "same")]

    ids = [each.id for each in restored(tmp_path, source, edit)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no notebook"),
        (b"3", "no notebook"),
        (b'{"score": 100}', "no notebook"),
        (b'{"cells": 3, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "no notebook"),
        (b'{"cells": [3], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "no notebook"),
        (b'{"cells": [{"cell_type": "code"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
         "no notebook"),
        (b'{"cells": [], "metadata": {}, "nbformat": 400}', "no notebook"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_unreadable_in_words(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "submitted.ipynb"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=reason):
        read_notebook(path)


def test_halves_of_characters_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "submitted.ipynb"
    path.write_text(submission(write("double", "a = '\ud800'")), encoding="utf-8")
    json.dumps(read_notebook(path), ensure_ascii=False).encode()


def test_the_course_knows_its_cells(source: Any) -> None:
    found = [(each.id, each.kind) for each in course_cells(source)]
    assert found == [
        ("imports", "given"), ("double", "solution"), ("double-values", "test"),
        ("clamp", "solution"), ("clamp-values", "test"), ("clamp-hidden", "test"),
    ]  # fmt: skip
    assert hidden_tests(source) == ["clamp-hidden"]
    assert without_hidden("a\n### BEGIN HIDDEN TESTS\nb\n### END HIDDEN TESTS\nc") == "a\nc"
