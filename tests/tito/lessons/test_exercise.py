from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tito.lessons.exercise import BEGIN, STUB, clear, solution_cell, solution_lines, written_lines
from tito.lessons.source import Package, SourceError, Target
from tito.scripts import ROOT

from .conftest import Repository


def cell(repository: Repository, *places: str) -> str:
    return solution_cell(Package(repository.root), [Target.parse(place) for place in places])


def test_a_function_keeps_signature_and_docstring(repository: Repository) -> None:
    source = cell(repository, "tinytorch/sizes.py::area")
    assert source.startswith("def area(sides: Sequence[int]) -> int:\n")
    assert solution_lines(source) == [
        "# the product of nothing is 1",
        "if any(side < LEAST for side in sides):",
        'raise SizeError(f"{sides} has a negative side")',
        "return math.prod(sides)",
    ]
    assert written_lines(source) == 3
    cleared = clear(source)
    docstring = ast.get_docstring(ast.parse(cleared).body[0])  # type: ignore[arg-type]
    assert docstring is not None and docstring.startswith("The product of the sides.")
    assert cleared.endswith(
        '    """\n    # YOUR CODE HERE\n    raise NotImplementedError("not written yet")'
    )


def test_a_body_that_begins_with_a_decorator(repository: Repository) -> None:
    """The decorator is part of the solution, as the function below it."""
    source = """
        def counted(function):
            \"\"\"Counts calls.\"\"\"

            # keeps the name
            @wraps(function)
            def call(*args):
                return function(*args)

            return call
    """
    (repository.root / "tinytorch" / "calls.py").write_text(dedent(source))
    cleared = clear(cell(repository, "tinytorch/calls.py::counted"))
    body = cleared.split('"""')[-1]
    assert body.split("\n    ")[1:] == STUB.split("\n")


def test_methods_stand_in_a_class_derived_from_the_package_s(repository: Repository) -> None:
    source = cell(
        repository, "tinytorch/layers.py::Scale.forward", "tinytorch/layers.py::Scale.backward"
    )
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert ast.unparse(node.bases[0]) == "tinytorch.Scale"
    assert [m.name for m in node.body if isinstance(m, ast.FunctionDef)] == ["forward", "backward"]
    assert source.count(BEGIN) == 2


def test_a_whole_class_keeps_what_is_no_body_and_its_representation(
    repository: Repository,
) -> None:
    cleared = clear(cell(repository, "tinytorch/layers.py::Scale"))
    assert cleared.startswith('class Scale(Layer):\n    """factor * x"""\n')
    assert cleared.count("NotImplementedError") == 3
    assert 'return f"Scale({self.factor})"' in cleared
    assert "super().__init__()" not in cleared


def test_gradient_lines_share_one_solution(repository: Repository) -> None:
    source = cell(
        repository,
        'tinytorch/gradients.py::gradient("neg")',
        'tinytorch/gradients.py::gradient("mul")',
    )
    assert source.count(BEGIN) == 1
    assert solution_lines(source)[0] == 'gradient("neg", a=lambda g: -g)'
    assert clear(source) == (
        "# The gradient of each input of: neg, mul\n"
        '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'
    )


def test_definitions_of_several_kinds_in_one_cell(repository: Repository) -> None:
    source = cell(repository, "tinytorch/sizes.py::area", "tinytorch/layers.py::Scale.forward")
    assert [type(node) for node in ast.parse(source).body] == [ast.FunctionDef, ast.ClassDef]


def test_an_empty_body_is_refused(repository: Repository) -> None:
    with pytest.raises(SourceError, match="unwritten has an empty body"):
        cell(repository, "tinytorch/sizes.py::unwritten")


@pytest.mark.parametrize("body", ["pass", "...", 'raise NotImplementedError("later")'])
def test_a_body_that_says_nothing_is_empty(repository: Repository, body: str) -> None:
    repository.write("tinytorch/more.py", f"def f():\n    {body}\n")
    with pytest.raises(SourceError, match="empty body"):
        cell(repository, "tinytorch/more.py::f")


def test_a_body_on_the_line_of_the_signature_is_refused(repository: Repository) -> None:
    repository.write("tinytorch/more.py", "def f(): return 1\n")
    with pytest.raises(SourceError, match="must be below its signature"):
        cell(repository, "tinytorch/more.py::f")


def test_a_method_that_calls_super_is_refused(repository: Repository) -> None:
    with pytest.raises(SourceError, match=r"calls super.*name the whole class"):
        cell(repository, "tinytorch/layers.py::Scale.__init__")


def _places() -> list[str]:
    """All functions and classes of the package that have a docstring and a body."""
    places = []
    for path in sorted((ROOT / "tinytorch/functions").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
                places.append(f"{path.relative_to(ROOT).as_posix()}::{node.name}")
    return places


def test_every_function_of_the_package_could_be_an_exercise() -> None:
    """Whatever its layout: the cell compiles, with and without its solution, and nothing is left
    of the body; marked and unmarked it means the same."""
    package, places = Package(ROOT), _places()
    assert len(places) > 100
    for place in places:
        target = Target.parse(place)
        source = solution_cell(package, [target])
        (function,) = ast.parse(clear(source)).body
        assert isinstance(function, ast.FunctionDef) and len(function.body) == 2
        (solved,) = ast.parse(source).body
        reference = package.find(target).node
        assert isinstance(reference, ast.FunctionDef) and isinstance(solved, ast.FunctionDef)
        reference.decorator_list = []
        assert ast.dump(solved) == ast.dump(reference)
