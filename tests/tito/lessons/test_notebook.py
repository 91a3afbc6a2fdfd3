from __future__ import annotations

import sys
import warnings
from typing import Any
from unittest.mock import patch

import pytest

from tito.lessons.exercise import STUB
from tito.lessons.notebook import notebook, notebook_text

from .conftest import Repository

nbformat = pytest.importorskip("nbformat")


def _nbgrader() -> Any:
    # what it imports first of all, pkg_resources, puts setuptools' own packages on the path
    with warnings.catch_warnings(), patch.object(sys, "path", sys.path[:]):
        warnings.simplefilter("ignore")  # nbgrader's own, when it is imported
        import nbgrader.nbgraderformat
        import nbgrader.preprocessors
    return nbgrader


def read(repository: Repository, *, student: bool) -> Any:
    text = notebook_text(repository.cells(), student=student)
    return nbformat.reads(text, as_version=4)


@pytest.mark.parametrize("student", [False, True])
def test_it_is_a_valid_notebook_for_jupyter_and_for_nbgrader(
    repository: Repository, student: bool
) -> None:
    made = read(repository, student=student)
    nbformat.validate(made)
    _nbgrader().nbgraderformat.MetadataValidator().validate_nb(made)


def test_the_metadata_of_cells(repository: Repository) -> None:
    made = {cell.id: cell for cell in read(repository, student=False).cells}
    assert made["area"].metadata.nbgrader == {
        "cell_type": "code", "grade": False, "grade_id": "area", "locked": False,
        "schema_version": 3, "solution": True, "task": False,
    }  # fmt: skip
    test = made["area-values"].metadata
    assert (test.nbgrader.grade, test.nbgrader.locked, test.nbgrader.points) == (True, True, 2)
    assert test.tinytorch == {
        "mark": test.tinytorch.mark, "for": "area", "checks": "products",
        "why": "layers need them",
    }  # fmt: skip
    assert made["area-given"].metadata.nbgrader.locked
    for cell in (made["code-4"], made["text-2"]):
        mark = cell.metadata.tinytorch.mark
        kind = "code" if cell.cell_type == "code" else "markdown"
        assert cell.metadata == {"tinytorch": {"mark": mark, "id": f"{kind}-{mark}"}}


def test_the_student_version_is_what_nbgrader_makes_of_the_instructor_s(
    repository: Repository,
) -> None:
    preprocessors = _nbgrader().preprocessors
    made, resources = read(repository, student=False), {}
    for step in (
        preprocessors.ClearSolutions(code_stub={"python": STUB}),
        preprocessors.ClearHiddenTests(),
    ):
        made, resources = step.preprocess(made, resources)
    ours = read(repository, student=True)
    assert [c.source.rstrip("\n") for c in made.cells] == [c.source for c in ours.cells]


def test_nothing_in_it_changes_from_build_to_build(repository: Repository) -> None:
    first, second = (notebook(repository.cells(), student=True) for _ in range(2))
    assert first == second
