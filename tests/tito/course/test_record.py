"""Which cells run again where one exercise is run on its own."""

from __future__ import annotations

from tito.course.exam.job import Unit
from tito.course.record import without_examples


def example(name: str, source: str) -> Unit:
    return Unit(name, source, is_edited=False)


def test_examples_are_left_out_unless_something_takes_a_name_from_them() -> None:
    cells = (
        Unit("given", "import numpy as np"),
        example("data", "points = np.zeros(3)"),
        Unit("solution", "def f(x):\n    return x"),
        Unit("test", "equal(f(2), 2)", "test", is_edited=False),
        example("long", "x = train(points)"),
        example("scale", "factor = len(points)"),
        Unit("own", "def helper(x):\n    return factor * x"),
    )
    kept = [unit.id for unit in without_examples(cells)]
    assert kept == ["given", "data", "solution", "test", "scale", "own"]


def test_where_a_cell_is_not_understood_all_are_kept() -> None:
    cells = (example("long", "x = train()"), Unit("own", "%timeit f(x)"))
    assert without_examples(cells) == cells
