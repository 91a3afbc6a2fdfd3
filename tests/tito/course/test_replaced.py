"""Grading in a package in which the lesson's definitions are the student's."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest

import tinytorch
from tests.system_tools import needs_sandbox
from tests.tito.course.conftest import POINTS, cell, code
from tito.course.exam.job import Budget, Job, Transcript
from tito.course.exam.judge import judge
from tito.course.exam.key import Key, make_key
from tito.course.exam.run import run_job
from tito.course.notebook import course_cells, hidden_tests, restore
from tito.course.record import units
from tito.course.replaced import answers, replaced
from tito.lessons.source import Package

PACKAGE = Package(Path(tinytorch.__file__).resolve().parents[1])
BUDGET = Budget(cell_seconds=60.0, seconds=600.0, memory_bytes=1 << 30)
PLACES = {
    "normalize": "tinytorch/functions/dims.py::normalize_dim",
    "infer": "tinytorch/functions/dims.py::infer_size",
}
NORMALIZE = (
    "import operator\ndef normalize_dim(dim, ndim, what='dim'):\n    ### BEGIN SOLUTION\n"
    "    extent = max(ndim, 1)\n    dim = operator.index(dim)\n"
    "    if not -extent <= dim < extent:\n        raise IndexError(f'{what}: {dim}')\n"
    "    return dim % extent\n    ### END SOLUTION\n"
)
INFER = (
    "from math import prod\ndef infer_size(shape, elements):\n    ### BEGIN SOLUTION\n"
    "    if -1 not in shape:\n        return shape\n"
    "    rest = prod(s for s in shape if s != -1)\n"
    "    return tuple(elements // rest if s == -1 else s for s in shape)\n    ### END SOLUTION\n"
)
TESTS = {
    "normalize-values": "from tito.checks import equal\nequal(normalize_dim(-1, 3), 2)",
    "infer-values": (
        "import tinytorch\nfrom tito.checks import equal\nequal(infer_size((2, -1), 6), (2, 3))\n"
        "equal(tinytorch.zeros(6).reshape(2, -1).transpose(0, -1).shape, (3, 2))"
    ),
}


@cache
def source() -> Any:
    cells = []
    for name, text in (("normalize", NORMALIZE), ("infer", INFER)):
        POINTS[f"{name}-values"] = 1
        made = cell("solution", name, text)
        made["metadata"]["tinytorch"] = {"definitions": [PLACES[name]]}
        test = cell("test", f"{name}-values", TESTS[f"{name}-values"])
        test["metadata"]["tinytorch"] = {"for": name}
        cells += [made, test]
    data = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.from_dict(data)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def key() -> Key:
    return make_key(course_cells(source()), hidden_tests(source()), budget=BUDGET)


def submitted(**texts: str) -> Any:
    node = deepcopy(source())
    for each in node.cells:
        each.source = texts.get(each.id, each.source)
    if "helper" in texts:
        node.cells.insert(0, nbformat.from_dict(code(texts["helper"], "helper")))  # type: ignore[no-untyped-call]
    return restore(node, source())


def files(only: list[str] | None = None, **texts: str) -> str:
    return replaced(answers(submitted(**texts), source()), PACKAGE, only)[
        "tinytorch/functions/dims.py"
    ]


def passed_of(key: Key, node: Any) -> set[str]:
    return _passed(key, node, None)[0]


def passed(key: Key, only: list[str] | None = None, **texts: str) -> tuple[set[str], Transcript]:
    return _passed(key, submitted(**texts), only)


def _passed(key: Key, node: Any, only: list[str] | None) -> tuple[set[str], Transcript]:
    job = Job(
        units(node, source(), key.tests),
        key.to_run(),
        BUDGET,
        package=replaced(answers(node, source()), PACKAGE, only),
    )
    said = run_job(job)
    verdicts = {n: judge(t, said.tests.get(n), said.ended.get(n)) for n, t in key.tests.items()}
    return {name for name, verdict in verdicts.items() if verdict.passed}, said


def test_the_definitions_of_the_lesson_are_the_students_and_nothing_else_is() -> None:
    mine = "def normalize_dim(dim, ndim, what='dim'):\n    return 'mine'\n"
    text = files(normalize=mine)
    assert "return 'mine'" in text
    assert "elements // rest" in text
    assert "def shape_arguments" in text
    single = files(only=["infer"], normalize=mine)
    assert "return 'mine'" not in single


@pytest.mark.parametrize(
    ("cell_text", "reason"),
    [
        ("def normalize_dim(dim, ndim):\n    raise NotImplementedError('not written yet')",
         "not written yet"),
        ("def normalize_dim(:", "is no Python"),
        ("", "must define normalize_dim"),
        ("x = " + "(" * 300 + ")" * 300, "is no Python"),
        ("x = '" + "x" * 60_000 + "'", "not written yet"),
        ("def normalize_dim(dim, ndim, what='dim'):\n    return nowhere(dim)", "uses nowhere"),
    ],
)  # fmt: skip
def test_what_has_no_place_in_the_package_raises_there(cell_text: str, reason: str) -> None:
    text = files(normalize=cell_text)
    assert "throw(NotImplementedError(" in text
    assert reason in text
    compile(text, "dims.py", "exec")


def test_what_only_ipython_understands_costs_nothing() -> None:
    """A right solution under `%%time` was half of the points: the package had it as not written."""
    mine = "%%time\ndef normalize_dim(dim, ndim, what='dim'):\n    return 'mine'\n%timeit f()\nf?"
    (answer, _) = answers(submitted(normalize=mine), source())
    assert answer.written
    text = files(normalize=mine)
    assert "return 'mine'" in text and "throw(" not in text


def test_a_helper_in_a_cell_of_their_own_goes_with_it() -> None:
    text = files(
        helper="%matplotlib inline\ndef extent_of(ndim):\n    return max(ndim, 1)",
        normalize="def normalize_dim(dim, ndim, what='dim'):\n    return dim % extent_of(ndim)",
    )
    assert "def extent_of(ndim)" in text
    assert "throw(" not in text


@needs_sandbox
def test_a_right_solution_has_all_points_and_runs_in_the_framework(key: Key) -> None:
    assert passed(key)[0] == {"normalize-values", "infer-values"}


@needs_sandbox
@pytest.mark.parametrize(
    "calls",
    [
        "import tinytorch.functions.dims as theirs\n"
        "def normalize_dim(dim, ndim, what='dim'):\n"
        "    return theirs.normalize_dim(dim, ndim, what)",
        "from tinytorch.functions.dims import normalize_dim",
        "import glob, marshal, os, tinytorch\n"
        "def normalize_dim(dim, ndim, what='dim'):\n"
        "    where = os.path.dirname(tinytorch.__file__) + '/functions/__pycache__/dims.*.pyc'\n"
        "    names = {}\n"
        "    exec(marshal.loads(open(glob.glob(where)[0], 'rb').read()[16:]), names)\n"
        "    return names['normalize_dim'](dim, ndim, what)",
    ],
)
def test_the_reference_is_nowhere_to_be_called(key: Key, calls: str) -> None:
    assert "normalize-values" not in passed(key, normalize=calls)[0]
    assert "normalize-values" not in passed(key, only=["normalize"], normalize=calls)[0]


@needs_sandbox
def test_the_faults_of_one_exercise_cost_no_other_one(key: Key) -> None:
    wrong = "def normalize_dim(dim, ndim, what='dim'):\n    return 7"
    assert passed(key, normalize=wrong)[0] == set()
    assert passed(key, only=["infer"], normalize=wrong)[0] >= {"infer-values"}


@needs_sandbox
def test_a_package_that_cannot_be_imported_is_told_so(key: Key) -> None:
    ends = (
        "import os\ndef stop():\n    os._exit(3)\nSTOP = stop()\n"
        "def normalize_dim(dim, ndim, what='dim'):\n    return STOP"
    )
    found, said = passed(key, normalize=ends)
    assert found == set()
    assert "with your code in it `import tinytorch` fails" in said.ended["infer-values"]


def without(names: set[str], *own: str) -> Any:
    """A submission that lacks cells of the course, with cells of the student's own before them."""
    node = deepcopy(source())
    made = [nbformat.from_dict(code(text, f"own {i}")) for i, text in enumerate(own)]  # type: ignore[no-untyped-call]
    node.cells = made + [each for each in node.cells if each.id not in names]
    return restore(node, source())


def test_an_exercise_whose_cell_was_deleted_is_no_reference_to_call(key: Key) -> None:
    calls = "from tinytorch.functions.dims import infer_size, normalize_dim"
    assert passed_of(key, without(set(PLACES), calls)) == set()
    assert passed_of(key, without({"infer", "infer-values"}, calls)) == {"normalize-values"}


def test_what_is_in_a_cell_without_its_name_is_graded(key: Key) -> None:
    """A program has saved the notebook without the metadata that names the cells."""
    names = {each.id for each in source().cells}
    assert passed_of(key, without(names, NORMALIZE, INFER)) == set(TESTS)
    assert passed_of(key, without(names, NORMALIZE)) == {"normalize-values"}
