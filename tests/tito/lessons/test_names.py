from __future__ import annotations

import ast

import pytest

from tito.lessons.names import bound_names, format_imports, free_names, imports_for, imports_of


@pytest.mark.parametrize(
    ("source", "free"),
    [
        ("x = np.ones(n)", {"np", "n"}),
        ("def f(a: A = d) -> B:\n    c: C = a\n    return c + g(e)", {"d", "g", "e"}),
        ("def f(n):\n    return [x for x in range(n) if x in seen]", {"seen"}),
        ("class A(Base):\n    size = LIMIT\n    def f(self): return self.size", {"Base", "LIMIT"}),
        ("def f():\n    def g(): return later\n    return g\nlater = 1", set()),
        ("import math\nprint(math.pi)", set()),
        ("def f(x):\n    y: int\n    return x", set()),
        ("def f():\n    global n\n    n += 1", {"n"}),
        ("def f(): return x\na = [x for x in y], {z: w for z, w in y}", {"x", "y"}),
        ("async def f(x: X):\n    return lambda y: x + y + z", {"z"}),
    ],
)
def test_free_names(source: str, free: set[str]) -> None:
    assert free_names(source) == free


def test_bound_names_also_inside_blocks() -> None:
    source = "import a.b\nif c:\n    d = 1\nfor e in f: pass\ndef g(): h = 1"
    assert bound_names(source) == {"a", "d", "e", "g"}


def test_a_variable_of_a_comprehension_is_not_bound() -> None:
    source = "a = [b for b in c]\nd = {e: {f for f in e} for e in c}\nclass H: pass"
    assert bound_names(source) == {"a", "d", "H"}


def test_imports_one_by_one() -> None:
    source = (
        "from __future__ import annotations\nimport a.b\nimport numpy as np\n"
        "from x import y as z, w\nif TYPE_CHECKING:\n    from t import T\n"
    )
    assert imports_of(ast.parse(source).body) == {
        "a": "import a.b",
        "np": "import numpy as np",
        "z": "from x import y as z",
        "w": "from x import w",
        "T": "from t import T",
    }


def test_what_the_module_has_is_imported_from_it() -> None:
    text = "import numpy as np\nLIMIT = 3\ndef helper(): pass\n"
    found = imports_for({"np", "LIMIT", "helper", "unknown"}, text, "tinytorch.sizes")
    assert found == {
        "np": "import numpy as np",
        "LIMIT": "from tinytorch.sizes import LIMIT",
        "helper": "from tinytorch.sizes import helper",
    }


def test_a_long_import_is_wrapped() -> None:
    names = [f"a_rather_long_name_{i}" for i in range(6)]
    text = format_imports([f"from m import {name}" for name in names])
    assert text == "from m import (\n" + "".join(f"    {n},\n" for n in names) + ")"
    compile(text, "<test>", "exec")
