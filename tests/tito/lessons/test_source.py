from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tito.lessons.source import Package, SourceError, Target, find_definition
from tito.scripts import ROOT

from .conftest import Repository

REFERENCE = Package(ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "tinytorch/shapes.py::broadcast",
        "tinytorch/nn/linear.py::Linear.forward",
        'tinytorch/gradients.py::gradient("mul")',
    ],
)
def test_a_target_is_read_as_it_is_written(text: str) -> None:
    target = Target.parse(text)
    assert str(target) == text
    assert REFERENCE.find(target).docstring or target.op == "mul"


def test_the_parts_of_a_target() -> None:
    method = Target.parse("tinytorch/nn/linear.py::Linear.forward")
    assert (method.module, method.owner, method.leaf) == (
        "tinytorch.nn.linear",
        "Linear",
        "forward",
    )
    line = Target.parse("tinytorch/gradients.py::gradient('mul')")
    assert (line.op, line.owner, line.name) == ("mul", None, 'gradient("mul")')
    assert Target("tinytorch/nn/__init__.py", "x").module == "tinytorch.nn"


@pytest.mark.parametrize("text", ["area", "a.py:area", "a.txt::area", "a.py::a.b.c", "a.py::1"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(SourceError, match="is no place of a definition; write"):
        Target.parse(text)


def test_a_definition_and_its_lines(repository: Repository) -> None:
    package = Package(repository.root)
    found = package.find(Target("tinytorch/sizes.py", "area"))
    assert found.kind == "function"
    assert found.text().startswith("@_entered\ndef area(")
    assert found.text(found.head).startswith("def area(")
    assert found.text().endswith("return math.prod(sides)")
    method = package.find(Target("tinytorch/layers.py", "Scale.backward"))
    assert (method.kind, method.docstring) == ("method", "The gradient of x.")
    assert package.find(Target("tinytorch/layers.py", "Scale")).kind == "class"
    line = package.find(Target("tinytorch/gradients.py", 'gradient("mul")'))
    assert (line.kind, line.last - line.first) == ("gradient", 4)


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("tinytorch/size.py", "area", "tinytorch/size.py does not exist"),
        ("tinytorch/sizes.py", "aera", "no definition of aera; did you mean area?"),
        ("tinytorch/layers.py", "Scale.forwrd", "did you mean Scale.forward"),
        ("tinytorch/layers.py", "Shale.forward", "no definition of Shale.forward"),
        ("tinytorch/gradients.py", 'gradient("mull")', 'did you mean gradient."mul".'),
    ],
)
def test_a_name_that_does_not_exist(
    repository: Repository, path: str, name: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        Package(repository.root).find(Target(path, name))


def test_two_definitions_of_one_name_are_refused_and_overloads_do_not_count() -> None:
    target = Target("a.py", "f")
    twice = "def f(): return 1\n\ndef f(): return 2\n"
    with pytest.raises(SourceError, match="2 definitions of f"):
        find_definition(twice, target)
    overloaded = "@overload\ndef f(a: int): ...\n\ndef f(a): return 2\n"
    assert find_definition(overloaded, target).first == 4


@pytest.mark.parametrize(
    ("dotted", "place"),
    [
        ("tinytorch.Tensor", "tinytorch/tensor.py::Tensor"),
        ("tinytorch.nn.Linear", "tinytorch/nn/linear.py::Linear"),
        ("tinytorch.nn.linear.Linear.forward", "tinytorch/nn/linear.py::Linear"),
        ("tinytorch.relu", "tinytorch/functions/elementwise.py::relu"),
        ("tinytorch.clamp", "tinytorch/functions/elementwise.py::clip"),
        ("tinytorch.sum_to", None),
        ("tinytorch.positive", None),
        ("tinytorch.tensor", "tinytorch/creation.py::tensor"),
        ("tinytorch.autograd.backward", "tinytorch/autograd/engine.py::backward"),
        ("tinytorch.nn", None),
        ("tinytorch.float32", None),
        ("tinytorch.nowhere.Linear", None),
    ],
)
def test_dotted_names_are_resolved_through_re_exports(dotted: str, place: str | None) -> None:
    found = REFERENCE.resolve(dotted)
    assert (None if found is None else str(found)) == place


def test_published_functions_are_read_as_they_are_run() -> None:
    """Reading the declarations finds what running them enters, and nothing else."""
    import tinytorch
    from tinytorch.functions.publish import FUNCTIONS, METHODS

    for name in {*FUNCTIONS, *METHODS}:
        found = REFERENCE.resolve(f"tinytorch.{name}")
        function = getattr(tinytorch, name, None)
        if name in FUNCTIONS:
            assert function is FUNCTIONS[name]
            assert found is not None, name
            defined = inspect.unwrap(function)  # what is published may wrap it
            assert (found.module, found.name) == (defined.__module__, defined.__name__)
        elif found is not None:  # a method that is a function of another module as well
            assert not found.path.startswith("tinytorch/functions/"), name


def test_a_publication_that_only_running_tells_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tinytorch/functions").mkdir(parents=True)
    (tmp_path / "tinytorch/__init__.py").write_text(
        "from tinytorch.functions.publish import FUNCTIONS\n"
    )
    module = tmp_path / "tinytorch/functions/movement.py"
    module.write_text("def f(x): ...\npublish(globals(), hidden='g')\n")
    assert str(Package(tmp_path).resolve("tinytorch.f")) == "tinytorch/functions/movement.py::f"
    module.write_text("def f(x): ...\npublish(globals(), hidden=' '.join(HIDDEN))\n")
    with pytest.raises(SourceError, match=r"movement.py: the arguments of publish must be literal"):
        Package(tmp_path).resolve("tinytorch.f")


def test_public_names_are_the_ones_a_user_imports() -> None:
    """What is found by reading is what Python finds by importing."""
    import tinytorch.nn

    name = REFERENCE.public_name(Target("tinytorch/nn/linear.py", "Linear"))
    assert name == "tinytorch.nn.Linear" and tinytorch.nn.Linear.__module__ == "tinytorch.nn.linear"
    assert REFERENCE.public_name(Target("tinytorch/tensor.py", "Tensor")) == "tinytorch.Tensor"
    private = Target("tinytorch/autograd/engine.py", "_step")
    assert REFERENCE.public_name(private) == "tinytorch.autograd.engine._step"


def test_reading_the_package_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "tinytorch").mkdir()
    (tmp_path / "tinytorch/__init__.py").write_text("raise SystemExit\ndef f():\n    return 1\n")
    assert Package(tmp_path).find(Target("tinytorch/__init__.py", "f")).first == 2
