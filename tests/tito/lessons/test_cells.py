from __future__ import annotations

import pytest

from tito.lessons.cells import context_of
from tito.lessons.markup import split_sections
from tito.lessons.model import LessonError

from .conftest import Repository


def test_the_cells_in_order(repository: Repository) -> None:
    assert [(cell.kind, cell.id) for cell in repository.cells()] == [
        ("markdown", "lesson"),
        ("given", "imports"),
        ("markdown", "text-2"),
        ("markdown", "text-3"),
        ("code", "code-4"),
        ("markdown", "area-text"),
        ("given", "area-given"),
        ("solution", "area"),
        ("test", "area-values"),
        ("test", "area-errors"),
        ("markdown", "scale-text"),
        ("solution", "scale"),
        ("test", "scale-values"),
    ]


def test_the_header_and_the_statement(repository: Repository) -> None:
    header = repository.cell("lesson").source
    assert header.startswith("# 01 Sizes\n")
    assert "needs: nothing · about 1.5 hours · 5 points" in header
    statement = repository.cell("area-text").source
    assert "**Exercise: area** (3 points)\n\nWrite it." in statement
    assert "<details><summary>Hint 2</summary>\n\n`math.prod` does.\n\n</details>" in statement


def test_what_the_solution_needs_is_imported_above_it(repository: Repository) -> None:
    assert repository.cell("area-given").source == (
        "import math\nfrom tinytorch.errors import SizeError\nfrom tinytorch.sizes import LEAST"
    )


def test_an_import_is_made_once_and_given_code_stands_below(repository: Repository) -> None:
    repository.edit(
        "points: 3", "points: 3\ngiven:\n  - from tinytorch.sizes import LEAST\n  - MOST = 9"
    )
    assert repository.cell("area-given").source == (
        "import math\nfrom tinytorch.errors import SizeError\n\n"
        "from tinytorch.sizes import LEAST\nMOST = 9"
    )


def test_a_name_that_would_mean_two_things_is_refused(repository: Repository) -> None:
    repository.edit("import math", "from cmath import sqrt as math", "tinytorch/sizes.py")
    repository.edit('"""Layers."""', '"""Layers."""\nimport math', "tinytorch/layers.py")
    repository.edit("return self.factor * x", "return math.e * x", "tinytorch/layers.py")
    with pytest.raises(LessonError, match=r"needs `import math`.*already `from cmath import sqrt"):
        repository.cells()


def test_a_builtin_that_the_module_rebinds_is_imported(repository: Repository) -> None:
    """Or the notebook would run other code than the package."""
    own = "LEAST = 0\n\n\ndef any(x):\n    return False"
    repository.edit("LEAST = 0", own, "tinytorch/sizes.py")
    assert "from tinytorch.sizes import LEAST, any" in repository.cell("area-given").source


def test_the_table_of_gradient_lines_comes_once(repository: Repository) -> None:
    for place in ("sizes.py::area", "layers.py::Scale.backward"):
        op = {"sizes.py::area": "neg", "layers.py::Scale.backward": "mul"}[place]
        repository.edit(f"tinytorch/{place}", f"'tinytorch/gradients.py::gradient(\"{op}\")'")
    cells = repository.course().lessons[0]
    from tito.lessons.cells import lesson_cells

    made = lesson_cells(cells, repository.course().package)
    assert sum("GradientTable()" in cell.source for cell in made) == 1


def test_hidden_tests_are_not_in_the_student_version(repository: Repository) -> None:
    hidden = repository.cell("area-errors")
    assert "raises(SizeError" in hidden.source
    assert hidden.student == (
        "# area-errors: hidden test, 1 point\n# Checks: negative sides\n# Why: there are none"
    )
    visible = repository.cell("area-values")
    assert visible.student == visible.source


def test_text_is_cut_at_headings_outside_of_code() -> None:
    text = "a\n# b\n```\n# c\n```\n## d\n````\n```\n# e\n````\nf"
    assert split_sections(text) == ["a", "# b\n```\n# c\n```", "## d\n````\n```\n# e\n````\nf"]


def test_the_context_of_an_exercise(repository: Repository) -> None:
    lesson = repository.course().lessons[0]
    cells = repository.cells()
    area, scale = lesson.exercises
    assert "import tinytorch" in context_of(cells, area, lesson)
    assert "import math" in context_of(cells, area, lesson)
    assert "import area" not in context_of(cells, area, lesson)
    assert "from tinytorch.sizes import area" in context_of(cells, scale, lesson)
    compile(context_of(cells, scale, lesson), "<context>", "exec")
