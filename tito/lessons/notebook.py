"""Cells to a notebook with nbgrader's cell metadata, schema version 3.

Source: nbgrader, "Format and version of nbgrader metadata",
https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html; nbformat 4.5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tito.lessons.cells import Cell

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
CELL_KINDS = ("given", "solution", "test")  # those that nbgrader knows
FAILS = "raises-exception"  # nbconvert and JupyterLab go on behind such a cell
MENDED = "mended"  # a tag as well: `tito course generate` leaves these cells out
TAGS = {"shown": [FAILS], "mended": [MENDED]}


def notebook(cells: Sequence[Cell], *, student: bool) -> dict[str, Any]:
    """A notebook as JSON.

    Args:
        student: without solutions and hidden tests.
    """
    return {
        "cells": [_cell(c, student) for c in cells if not (student and c.kind == "mended")],
        "metadata": {"kernelspec": KERNEL, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def notebook_text(cells: Sequence[Cell], *, student: bool) -> str:
    """The notebook's file; the same lesson always gives the same text."""
    return json.dumps(notebook(cells, student=student), indent=1, ensure_ascii=False) + "\n"


def _cell(cell: Cell, student: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if cell.kind in CELL_KINDS:
        metadata["nbgrader"] = nbgrader_metadata(cell)
    elif cell.kind in TAGS:
        metadata["tags"] = TAGS[cell.kind]
    mine: dict[str, Any] = {"mark": cell.mark}
    if cell.kind not in CELL_KINDS:
        mine["id"] = cell.key
    if cell.kind == "test":
        mine |= {"for": cell.exercise, "checks": cell.checks, "why": cell.why}
        mine |= {} if cell.seconds is None else {"seconds": cell.seconds}
    elif cell.kind == "solution":
        mine |= {"definitions": list(cell.definitions)}
    metadata["tinytorch"] = mine
    made: dict[str, Any] = {
        "cell_type": "markdown" if cell.kind == "markdown" else "code",
        "id": cell.id,
        "metadata": metadata,
        "source": (cell.student if student else cell.source).splitlines(keepends=True),
    }
    if made["cell_type"] == "code":
        made |= {"execution_count": None, "outputs": []}
    return made


def nbgrader_metadata(cell: Cell) -> dict[str, Any]:
    """What nbgrader has to know of a cell: tests are graded, tests and given code are locked."""
    metadata: dict[str, Any] = {
        "cell_type": "code",
        "grade": cell.kind == "test",
        "grade_id": cell.id,
        "locked": cell.kind != "solution",
        "schema_version": 3,
        "solution": cell.kind == "solution",
        "task": False,
    }
    if cell.kind == "test":
        metadata["points"] = cell.points
    return metadata
