from __future__ import annotations

from textwrap import dedent

import pytest

from tito.lessons.cells import context_of
from tito.lessons.markup import duration, prepared, split_sections
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
        ("markdown", "area-tests"),
        ("test", "area-values"),
        ("test", "area-errors"),
        ("markdown", "scale-text"),
        ("solution", "scale"),
        ("markdown", "scale-tests"),
        ("test", "scale-values"),
    ]


def test_the_header_and_the_statement(repository: Repository) -> None:
    header = repository.cell("lesson").source
    assert header.startswith("# 01 Sizes\n")
    assert "needs: nothing · about 1.5 hours · 5 points" in header
    statement = repository.cell("area-text").source
    assert statement.startswith("### Exercise 1: Area (3 points)\n\n")
    assert '<div class="alert alert-info">\n\n**Write `area`.**' in statement
    assert "\n\nWrite it.\n\n" in statement
    assert "<details><summary>Hint 2</summary>\n\n`math.prod` does.\n\n</details>" in statement


def test_what_the_solution_needs_is_imported_above_it(repository: Repository) -> None:
    assert repository.cell("area-given").source == (
        "import math\nfrom collections.abc import Sequence\n"
        "from tinytorch.errors import SizeError\nfrom tinytorch.sizes import LEAST"
    )


def test_an_import_is_made_once_and_given_code_stands_below(repository: Repository) -> None:
    repository.edit(
        "points: 3", "points: 3\ngiven:\n  - from tinytorch.sizes import LEAST\n  - MOST = 9"
    )
    assert repository.cell("area-given").source == (
        "import math\nfrom collections.abc import Sequence\n"
        "from tinytorch.errors import SizeError\n\n"
        "from tinytorch.sizes import LEAST\nMOST = 9"
    )


def test_a_name_that_would_mean_two_things_is_refused(repository: Repository) -> None:
    repository.edit("import math", "from cmath import sqrt as math", "tinytorch/sizes.py")
    future = "from __future__ import annotations"
    repository.edit(future, f"{future}\nimport math", "tinytorch/layers.py")
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


def test_the_tests_of_an_exercise_are_announced_with_what_they_check(
    repository: Repository,
) -> None:
    text = repository.cell("area-tests").source
    assert text.startswith(
        '<div class="alert alert-warning">\n\n**Locked: the tests of exercise 1.'
    )
    assert "- 2 points: products\n- 1 point, hidden: negative sides\n" in text


def test_the_tool_box_says_what_helpers_give(repository: Repository) -> None:
    helper = '''
        def first(side, *others, strict=False):
            """The first side. Of none there is none."""
            return side
    '''
    repository.write("tinytorch/first.py", dedent(helper))
    imports = "import math\nfrom tinytorch.first import first"
    repository.edit("import math", imports, "tinytorch/sizes.py")
    repository.edit("return math.prod(sides)", "return math.prod(sides, start=first(1))",
                    "tinytorch/sizes.py")  # fmt: skip
    repository.edit("points: 3\nhints", "points: 3\ntools: ['`math.prod(x)`: a product']\nhints")
    assert (
        "Tool box:\n\n- `first(side, *others, strict)`: The first side\n- `math.prod(x)`: a product"
    ) in repository.cell("area-text").source


def test_markdown_in_a_summary_is_rendered_and_lessons_to_come_are_marked() -> None:
    text = (
        "In module 2, modules 1, 3 and 12. There are 3 apples:\n```\nmodule 9\n```\n"
        "<details><summary>Why `a < b`, *not* **c**,\nof lesson 4?</summary>\n\n`x`\n\n</details>"
    )
    assert prepared(text, there={1, 2}) == (
        "In module 2, modules 1, 3 (to come) and 12 (to come). There are 3 apples:\n"
        "```\nmodule 9\n```\n"
        "<details><summary>Why <code>a &lt; b</code>, <em>not</em> <strong>c</strong>,\n"
        "of lesson 4 (to come)?</summary>\n\n`x`\n\n</details>"
    )


def test_an_hour_is_one_hour() -> None:
    assert [duration(h) for h in (1, 1.5, 2)] == ["1 hour", "1.5 hours", "2 hours"]
