"""A small repository: a package `tinytorch` of three definitions, and a lesson on two of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tito.lessons.build import Course
from tito.lessons.cells import Cell
from tito.lessons.parse import parse_lesson

PACKAGE = {
    "tinytorch/__init__.py": """
        from tinytorch.layers import Scale as Scale
        from tinytorch.sizes import area as area
    """,
    "tinytorch/errors.py": """
        class SizeError(ValueError):
            pass
    """,
    "tinytorch/sizes.py": '''
        """Sizes."""

        from __future__ import annotations

        import math
        from collections.abc import Sequence

        from tinytorch.errors import SizeError

        LEAST = 0


        def _entered(function):
            return function


        @_entered
        def area(sides: Sequence[int]) -> int:
            """The product of the sides.

            Raises:
                SizeError: one is negative.

            >>> area((2, 3))
            6
            """
            # the product of nothing is 1
            if any(side < LEAST for side in sides):
                raise SizeError(f"{sides} has a negative side")
            return math.prod(sides)


        def unwritten() -> None:
            """Nothing to do."""
    ''',
    "tinytorch/layers.py": '''
        """Layers."""

        from __future__ import annotations


        class Layer:
            """The base."""

            def __init__(self) -> None:
                self.calls = 0


        class Scale(Layer):
            """factor * x"""

            def __init__(self, factor: float) -> None:
                super().__init__()
                self.factor = factor

            def forward(self, x: float) -> float:
                """x, larger."""
                self.calls += 1
                return self.factor * x

            def backward(self, g: float) -> float:
                """The gradient of x."""
                return self.factor * g

            def __repr__(self) -> str:
                return f"Scale({self.factor})"
    ''',
    "tinytorch/gradients.py": """
        from tinytorch.layers import Scale


        def gradient(name, **formulas):
            pass


        gradient("neg", a=lambda g: -g)
        gradient(
            "mul",
            a=lambda g, b: g * b,
            b=lambda g, a: g * a,
        )
    """,
}

LESSON = """\
---
title: Sizes
slug: sizes
part: Foundations
needs: []
makes_possible: layers with sizes
hours: 1.5
points: 5
---
# Sizes

Text above.

## A heading

```python
# no directive: part of the text
```

```{code}
sides = (2, 3)
print(tinytorch.area(sides))
```

```{exercise}
---
id: area
definitions: [tinytorch/sizes.py::area]
points: 3
hints:
  - Multiply them.
  - "`math.prod` does."
---
Write it.
```

```{test}
---
id: area-values
for: area
points: 2
checks: products
why: layers need them
---
from tito.checks import equal

equal(area((2, 3)), 6, hint="2 times 3")
equal(area(()), 1)
```

```{test}
---
id: area-errors
for: area
points: 1
visible: false
checks: negative sides
why: there are none
---
from tinytorch.errors import SizeError
from tito.checks import equal, raises

equal(area((1,)), 1)
raises(SizeError, area, (-1, 2), match="negative")
```

```{exercise}
---
id: scale
definitions: [tinytorch/layers.py::Scale.forward, tinytorch/layers.py::Scale.backward]
points: 2
---
```

```{test}
---
id: scale-values
for: scale
points: 2
checks: forward and backward
why: it is a layer
---
from tito.checks import equal

layer = Scale(3.0)
equal((layer.forward(2.0), layer.calls, layer.backward(1.0)), (6.0, 1, 3.0))
```
"""

MISTAKES = '''
from tito.lessons.mistake import Mistake

MISTAKES = [
    Mistake(
        exercise="area",
        name="adds",
        source="""
def area(sides):
    if any(side < 0 for side in sides):
        raise SizeError("negative")
    return sum(sides)
""",
        loses={"area-values": 2},
    ),
    Mistake(
        exercise="area",
        name="does not look",
        source="def area(sides):\\n    return math.prod(sides)",
        loses={"area-errors": 1},
    ),
    Mistake(
        exercise="scale",
        name="does not count",
        source="""
class Scale(tinytorch.Scale):
    def forward(self, x):
        return self.factor * x
""",
        loses={"scale-values": 2},
    ),
    Mistake(
        exercise="scale",
        name="passes the gradient on",
        source="""
class Scale(tinytorch.Scale):
    def backward(self, g):
        return g
""",
        loses={"scale-values": 2},
    ),
]
'''


class Repository:
    """The folder, and how tests change what is in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path, text in PACKAGE.items():
            self.write(path, dedent(text).lstrip("\n"))
        self.lesson_path = root / "modules/01_sizes/lesson.md"
        self.write("modules/01_sizes/lesson.md", LESSON)
        self.write("modules/01_sizes/mistakes.py", MISTAKES)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def edit(self, old: str, new: str, path: str = "modules/01_sizes/lesson.md") -> None:
        """Replace a text in a file, the lesson by default; it must be there."""
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), encoding="utf-8")

    def line_of(self, text: str, path: str = "modules/01_sizes/lesson.md") -> int:
        """The number of the first line that begins with a text."""
        lines = (self.root / path).read_text(encoding="utf-8").split("\n")
        return next(i for i, line in enumerate(lines, start=1) if line.startswith(text))

    def course(self) -> Course:
        return Course.load(self.root)

    def cells(self) -> list[Cell]:
        """The cells of the lesson."""
        return self.course().cells(parse_lesson(self.lesson_path))

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells() if cell.id == name)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)
