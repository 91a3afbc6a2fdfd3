from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tito.lessons.exercise import clear, solution_cell
from tito.lessons.source import Package, Target
from tito.lessons.splice import SpliceError, is_written, splice
from tito.scripts import ROOT

from .conftest import Repository

AREA = Target("tinytorch/sizes.py", "area")
UNWRITTEN = Target("tinytorch/sizes.py", "unwritten")
FORWARD = Target("tinytorch/layers.py", "Scale.forward")
BACKWARD = Target("tinytorch/layers.py", "Scale.backward")
SCALE = Target("tinytorch/layers.py", "Scale")
MUL = Target("tinytorch/gradients.py", 'gradient("mul")')


def spliced(repository: Repository, cell: str, *targets: Target, context: str = "") -> str:
    """The one file that changes."""
    files = {t.path: (repository.root / t.path).read_text(encoding="utf-8") for t in targets}
    (text,) = splice(files, targets, dedent(cell).strip("\n"), context).values()
    return text


def run(text: str) -> dict[str, object]:
    names: dict[str, object] = {}
    stub = "class SizeError(ValueError): pass\n"
    exec(text.replace("from tinytorch.errors import SizeError", stub), names)
    return names


def test_a_function_takes_the_place_of_the_package_s(repository: Repository) -> None:
    text = spliced(repository, "def area(sides):\n    return 7", AREA)
    assert "@_entered\ndef area(sides):\n    return 7\n\n\ndef unwritten()" in text
    assert "math.prod" not in text
    assert run(text)["area"]((1,)) == 7  # type: ignore[operator]


def test_markers_and_experiments_stay_behind(repository: Repository) -> None:
    cell = """
        print("an experiment")
        x = open("nowhere")
        def area(sides):
            ### BEGIN SOLUTION
            return 7
            ### END SOLUTION
        print(area(3))
    """
    text = spliced(repository, cell, AREA)
    assert "print" not in text and "open" not in text and "SOLUTION" not in text


def test_decorators_go_with_the_code_where_the_package_has_none(repository: Repository) -> None:
    cell = """
        def twice(f):
            return lambda *a: 2 * f(*a)

        @twice
        def {}(*a):
            return 7
    """
    text = spliced(repository, cell.format("unwritten"), UNWRITTEN)
    assert run(text)["unwritten"]() == 14  # type: ignore[operator]
    text = spliced(repository, cell.format("area"), AREA)
    assert "twice" not in text and run(text)["area"]((1,)) == 7  # type: ignore[operator]


def test_what_the_code_needs_comes_with_it(repository: Repository) -> None:
    cell = """
        import operator
        import math
        from functools import reduce, partial

        START = 1
        OTHER = 2

        @partial
        def times(a, b):
            return operator.mul(a, b)

        def area(sides):
            return reduce(times, sides, START)
    """
    text = spliced(repository, cell, AREA)
    head = (
        "import operator\n\nfrom functools import reduce\n\nfrom functools import partial\n\n"
        "START = 1\n\n@partial\ndef times(a, b):\n    return operator.mul(a, b)\n\n\n"
        "@_entered\ndef area(sides):"
    )
    assert head in text
    assert "OTHER" not in text and text.count("import math") == 1
    assert run(text)["area"]((2, 3)) == 6  # type: ignore[operator]


def test_a_global_that_is_only_counted_up_comes_with_it(repository: Repository) -> None:
    cell = """
        calls = 0
        def area(sides):
            global calls
            calls += 1
            return 7
    """
    names = run(spliced(repository, cell, AREA))
    assert (names["area"](()), names["calls"]) == (7, 1)  # type: ignore[operator]


def test_imports_of_other_cells_come_from_the_context(repository: Repository) -> None:
    cell = "def area(sides):\n    return int(np.prod(sides))"
    text = spliced(repository, cell, AREA, context="import os\nimport numpy as np")
    assert "import numpy as np\n\n\n@_entered" in text and "import os" not in text
    with pytest.raises(SpliceError, match=r"area uses np, which its cell does not define: put"):
        spliced(repository, cell, AREA)


def test_methods_go_into_the_class(repository: Repository) -> None:
    cell = """
        import math

        class Scale(tinytorch.Scale):
            def forward(self, x):
                return self._times(x)

            def _times(self, x):
                return math.prod((self._own_factor(), x))

            def _own_factor(self):
                return self.factor

            def backward(self, g):
                return -self._own_factor() * g / self.forward(1.0)
    """
    text = spliced(repository, cell, FORWARD, BACKWARD)
    scale = run(text)["Scale"](3.0)  # type: ignore[operator]
    assert (scale.forward(2.0), scale.backward(1.0), repr(scale)) == (6.0, -1.0, "Scale(3.0)")
    assert "tinytorch.Scale" not in text
    assert text.count("import math") == 1 and text.index("import math") < text.index("class Scale")


def test_constants_of_the_class_go_into_the_class(repository: Repository) -> None:
    cell = """
        import math

        class Scale(tinytorch.Scale):
            BASE = math.floor(2.5)
            SQUARE, unused = BASE**2, 0

            def forward(self, x):
                return self.SQUARE * x

            def backward(self, g):
                return self.SQUARE * g
    """
    text = spliced(repository, cell, FORWARD, BACKWARD)
    scale = run(text)["Scale"](3.0)  # type: ignore[operator]
    assert (scale.forward(2), scale.backward(3), text.count("BASE =")) == (8, 12, 1)
    repository.edit("class Scale(Layer):", "class Scale(Layer):\n    BASE = 1", FORWARD.path)
    with pytest.raises(SpliceError, match=r"layers.py has a Scale.BASE of its own: give the"):
        spliced(repository, cell, FORWARD, BACKWARD)


def test_a_helper_method_that_the_class_has_is_refused(repository: Repository) -> None:
    cell = """
        class Scale(tinytorch.Scale):
            def forward(self, x):
                return self.backward(x)

            def backward(self, g):
                return g
    """
    with pytest.raises(SpliceError, match=r"layers.py has a Scale.backward of its own"):
        spliced(repository, cell, FORWARD)


def test_other_indentation_is_moved(repository: Repository) -> None:
    cell = "class Scale(tinytorch.Scale):\n  def forward(self, x):\n    return 7\n"
    assert "    def forward(self, x):\n      return 7\n" in spliced(repository, cell, FORWARD)
    odd = 'class Scale(tinytorch.Scale):\n  def forward(self, x):\n    return """a\n  b"""\n'
    with pytest.raises(SpliceError, match=r"indent Scale.forward by 4 spaces"):
        spliced(repository, odd, FORWARD)


def test_a_whole_class(repository: Repository) -> None:
    cell = "class Scale(Layer):\n    def __init__(self, factor):\n        super().__init__()\n"
    text = spliced(repository, cell, SCALE)
    assert run(text)["Scale"](1).calls == 0  # type: ignore[operator]
    assert "forward" not in text


def test_a_gradient_line(repository: Repository) -> None:
    cell = """
        def of_a(g, b):
            return b * g

        gradient("mul", a=of_a, b=lambda g, a: a * g)
    """
    text = spliced(repository, cell, MUL)
    assert 'gradient("neg", a=lambda g: -g)\ndef of_a(g, b):' in text
    assert text.endswith('gradient("mul", a=of_a, b=lambda g, a: a * g)\n')


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("def area(sides:", "line 1 of the cell is no Python"),
        ("def aera(sides): return 1", "the cell must define area exactly once"),
        ("def area(s): return 1\n\ndef area(s): return 2", "must define area exactly once"),
        ('def area(s):\n    raise NotImplementedError("not written yet")', "area is not written"),
        ("def area(s): return helper(s)", "area uses helper, which its cell does not define"),
        (
            "LEAST = 3\ndef area(s): return LEAST",
            "tinytorch/sizes.py has a LEAST of its own, which other code uses: give the helper",
        ),
    ],
)
def test_a_cell_that_cannot_take_the_place(repository: Repository, cell: str, message: str) -> None:
    with pytest.raises(SpliceError, match=message):
        spliced(repository, cell, AREA)


@pytest.mark.parametrize(
    "change", ["TABLE[1] = 2", "for i in 1, 2:\n    TABLE[i].x = 3", "TABLE |= {1: 2}"]
)
def test_a_constant_that_is_made_in_several_steps_is_refused(
    repository: Repository, change: str
) -> None:
    cell = f"TABLE = {{}}\n{change}\nother = [0]\nother[0] = 1\n\ndef area(s):\n    return TABLE[s]"
    with pytest.raises(SpliceError, match=r"area uses TABLE, which other statements of its cell"):
        spliced(repository, cell, AREA)
    spliced(repository, cell.replace(change, "print(TABLE)"), AREA)


def test_a_helper_of_a_compiled_function_must_be_compiled() -> None:
    """In the notebook both run as Python; in the package numba would refuse it in pages."""
    target = Target("tinytorch/backends/blocked/matmul.py", "_copy")
    files = {target.path: Package(ROOT).text(target.path)}
    helper = "def put(x, out):\n    out[:] = x[:]\n\n\n"
    cell = helper + "def _copy(x, out):\n    put(x, out)\n"
    with pytest.raises(SpliceError, match=r"_copy is compiled .* your helper put is not: put `@k"):
        splice(files, [target], cell)
    cell = f"from tinytorch.jit.library import kernel\n\n\n@kernel\n{cell}"
    assert f"@kernel\n{helper}@kernel\ndef _copy" in splice(files, [target], cell)[target.path]


def test_an_import_of_the_same_thing_is_no_clash(repository: Repository) -> None:
    cell = "import math\n\ndef area(s):\n    return math.prod(s)"
    assert spliced(repository, cell, AREA).count("import math") == 1


def test_a_builtin_that_the_file_has_rebound_is_refused(repository: Repository) -> None:
    repository.edit("LEAST = 0", "LEAST = 0\n\n\ndef sum(x):\n    return 7", AREA.path)
    cell = "def area(s):\n    return sum(s)"
    with pytest.raises(SpliceError, match=r"has a sum of its own, so there.*builtins.sum"):
        spliced(repository, cell, AREA)
    context = "from tinytorch.sizes import sum"
    assert run(spliced(repository, cell, AREA, context=context))["area"]([1]) == 7  # type: ignore[operator]


def test_what_the_notebook_makes_of_a_builtin_goes_with_the_code(repository: Repository) -> None:
    cell = "def area(s):\n    return sum(s)"
    context = "from operator import neg as sum"
    text = spliced(repository, cell, AREA, context=context)
    assert run(text)["area"](3) == -3  # type: ignore[operator]
    own = "def sum(s):\n    return 5\n\ndef area(s):\n    return sum(s)"
    assert run(spliced(repository, own, AREA))["area"](3) == 5  # type: ignore[operator]
    repository.edit("LEAST = 0", "LEAST = sum(())", AREA.path)
    with pytest.raises(SpliceError, match=r"sizes.py uses Python's sum, and in your code sum is"):
        spliced(repository, cell, AREA, context=context)


def test_definitions_of_one_exercise_in_two_files_see_each_other(repository: Repository) -> None:
    cell = """
        def area(sides):
            return 7

        class Scale(tinytorch.Scale):
            def forward(self, x):
                return area(x)
    """
    files = {t.path: (repository.root / t.path).read_text() for t in (AREA, FORWARD)}
    changed = splice(files, [AREA, FORWARD], dedent(cell))
    assert "from tinytorch.sizes import area\n\n\nclass Scale(Layer):" in changed[FORWARD.path]
    assert "return 7" in changed[AREA.path] and "return 7" not in changed[FORWARD.path]


def test_splicing_twice_replaces_the_first(repository: Repository) -> None:
    cell = "def half(x):\n    return x // 2\n\ndef area(s):\n    return half(s[0])"
    once = spliced(repository, cell, AREA)
    repository.write(AREA.path, once)
    assert spliced(repository, cell, AREA) == once


def test_is_written() -> None:
    assert is_written("def f():\n    return 1")
    assert not is_written("def f(:")
    stub = clear("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION")
    assert not is_written(stub)


PLACES = [
    "tinytorch/shapes.py::broadcast",
    "tinytorch/nn/linear.py::Linear",
    "tinytorch/nn/linear.py::Linear.forward",
    "tinytorch/tensor.py::Tensor.view",
    "tinytorch/autograd/engine.py::backward",
    'tinytorch/gradients.py::gradient("maximum")',
]


@pytest.mark.parametrize("place", PLACES)
def test_the_reference_s_own_cell_changes_nothing(place: str) -> None:
    target, package = Target.parse(place), Package(ROOT)
    text = package.text(target.path)
    cell = solution_cell(package, [target])
    (after,) = splice({target.path: text}, [target], cell).values()
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text))
