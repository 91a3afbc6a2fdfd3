"""A repository with two small lessons, and a student at work in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tito import scripts
from tito.cli import app

ROOT = Path(__file__).parents[3]

FIRST = """---
title: First
slug: first
part: Foundations
needs: []
makes_possible: dimensions that count from the end
hours: 1
points: 6
---
# First

```{code}
import time
time.sleep(0)
def shown():
    return 1
```

```{exercise}
---
id: count
definitions: [tinytorch/functions/dims.py::normalize_dim]
points: 4
hints: [hint one, hint two]
---
```

```{test}
---
id: count-values
for: count
points: 3
checks: dimensions from the front and from the end
why: users write -1
---
from tito.checks import equal
equal(normalize_dim(-1, 3), 2, hint="-1 is the last")
equal(normalize_dim(1, 3), 1)
```

```{test}
---
id: count-errors
for: count
points: 1
visible: false
checks: a dimension that is not there
why: a typo must be found
---
from tito.checks import raises
raises(IndexError, normalize_dim, 3, 3)
```

```{exercise}
---
id: size
definitions: [tinytorch/functions/dims.py::infer_size]
points: 2
---
```

```{test}
---
id: size-values
for: size
points: 2
checks: the size that -1 stands for
why: reshape needs it
---
from tito.checks import equal
equal(infer_size((2, -1), 6), (2, 3))
```
"""
SECOND = """---
title: Second
slug: second
part: Foundations
needs: [first]
makes_possible: layers that compute, and gradients of products
hours: 1
points: 3
---
```{exercise}
---
id: forward
definitions: [tinytorch/nn/linear.py::Linear.forward]
points: 2
---
```

```{test}
---
id: forward-values
for: forward
points: 2
checks: a product and a bias
why: it is the layer of all networks
---
from tito.checks import equal
layer = Linear(2, 1)
equal(layer(tinytorch.ones(3, 2)).shape, (3, 1))
```

```{exercise}
---
id: product
definitions: ['tinytorch/gradients.py::gradient("mul")']
points: 1
---
```

```{test}
---
id: product-values
for: product
points: 1
checks: the gradient of x * y
why: every layer has a product
---
from tito.checks import equal
x = tinytorch.tensor([3.0], requires_grad=True)
table.apply("mul", x, tinytorch.tensor([5.0])).sum().backward()
equal(x.grad.tolist(), [5.0])
```
"""
INTEGRATION = '''
import tinytorch

def test_reshape():
    """reshape works out a size."""
    assert tinytorch.zeros(4, 6).reshape(8, -1).shape == (8, 3)

def test_sum():
    """a sum over the last dimension"""
    assert tinytorch.ones(2, 3).transpose(-1, 0).shape == (3, 2)
'''
MILESTONE = '''"""A network of one layer."""
import sys
import tinytorch
from tinytorch import nn

layer = nn.Linear(2, 1)
x = tinytorch.ones(3, 2, requires_grad=True)
(layer(x).reshape(-1, 1) * 2.0).sum().backward()
print('{"passed": true}' if "--json" in sys.argv else "it ran from " + tinytorch.__path__[0])
sys.exit(3 if "--backend" in sys.argv else 0)
'''
COUNT = """
def normalize_dim(dim, ndim, what="dim"):
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise IndexError(f"{what} {dim} is out of range: {ndim} dimensions")
    return dim % max(ndim, 1)
"""
SIZE = """
def infer_size(shape, elements):
    if -1 not in shape:
        if prod(shape) != elements:
            raise ShapeError(f"reshape: {elements} elements do not fit into {shape}")
        return shape
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or not known or elements % known:
        raise ShapeError(f"reshape: {elements} elements do not fit into {shape}")
    return tuple(elements // known if n == -1 else n for n in shape)
"""
FORWARD = """
class Linear(tinytorch.nn.Linear):
    def forward(self, x):
        return x @ self.weight.T if self.bias is None else x @ self.weight.T + self.bias
"""
PRODUCT = 'gradient("mul", a=lambda g, b: b * g, b=lambda g, a: a * g)'
FIRST_ANSWERS = {"count": COUNT, "size": SIZE}
SECOND_ANSWERS = {"forward": FORWARD, "product": PRODUCT}


@dataclass
class Student:
    """At work in a workspace; `tito` runs the command line there."""

    root: Path

    def tito(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    def file(self, name: str) -> Path:
        return self.root / name

    def package_file(self, path: str) -> str:
        """The text of a file of their package."""
        return (self.root / "tinytorch" / path).read_text()

    def write(self, name: str, answers: dict[str, str]) -> None:
        """Put answers into the cells of a notebook."""
        path = self.file(name)
        notebook = json.loads(path.read_text())
        for cell in notebook["cells"]:
            id = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if id in answers:
                cell["source"] = answers[id]
        path.write_text(json.dumps(notebook))

    def complete(self, module: str, answers: dict[str, str]) -> None:
        """Write the answers and complete the module."""
        name = {"first": "01_first.ipynb", "second": "02_second.ipynb"}[module]
        self.write(name, answers)
        result = self.tito("module", "complete", module)
        assert result.exit_code == 0, result.output


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with two lessons and a milestone; the package and tito are the real ones."""
    root = tmp_path / "clone"
    for folder, lesson in (("01_first", FIRST), ("02_second", SECOND)):
        (root / "modules" / folder).mkdir(parents=True)
        (root / "modules" / folder / "lesson.md").write_text(lesson)
    (root / "modules/01_first/integration.py").write_text(INTEGRATION)
    (root / "milestones/09_1999_layer").mkdir(parents=True)
    (root / "milestones/09_1999_layer/main.py").write_text(MILESTONE)
    (root / "tinytorch").symlink_to(ROOT / "tinytorch")
    (root / "tito").symlink_to(ROOT / "tito")
    monkeypatch.setattr(scripts, "ROOT", root)
    return root


@pytest.fixture
def student(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Student:
    """In a new workspace."""
    student = Student(tmp_path / "mine")
    result = student.tito("init", str(student.root))
    assert result.exit_code == 0, result.output
    monkeypatch.chdir(student.root)
    return student
