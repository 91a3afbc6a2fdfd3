"""Every rule of the builder: what breaks it is told, with file and line."""

from __future__ import annotations

import pytest

from tito.lessons.check import check_course
from tito.lessons.model import LessonError

from .conftest import LESSON, Repository

LATER = """\
---
title: Layers
slug: layers
part: Foundations
needs: [sizes]
makes_possible: networks
hours: 1
points: 1
---
```{exercise}
---
id: whole
definitions: [tinytorch/layers.py::Scale]
points: 1
---
```

```{test}
---
id: whole-values
for: whole
points: 1
checks: it
why: so
---
from tito.checks import equal

equal(Scale(2.0).forward(1.0), 2.0)
```
"""


def problems(repository: Repository) -> list[tuple[int, str]]:
    _, found = check_course(repository.root)
    assert all(problem.path == repository.lesson_path for problem in found), found
    return [(problem.line, problem.message) for problem in found]


def test_a_good_lesson_has_no_problems(repository: Repository) -> None:
    assert problems(repository) == []


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("sizes.py::area", "sizes.py::arae", "```{exercise}", "no definition of arae; did you"),
        ("sizes.py::area", "sizes.py::unwritten", "```{exercise}", "unwritten has an empty body"),
        ("id: area-errors", "id: area-values", "id: area-values", "the id area-values is in"),
        ("id: area-errors", "id: code-4", "id: code-4", "the builder makes ids such as code-4"),
        ("hours: 1.5\npoints: 5", "hours: 1.5\npoints: 6", "points: 6", "its test cells give 5"),
        ("sizes.py::area]\npoints: 3", "sizes.py::area]\npoints: 4", "points: 4",
         "exercise area has 4 points, but its test cells give 3"),
        ("for: scale", "for: scales", "id: scale-values", "for scales, and there is no such exer"),
        ("needs: []", "needs: [tensor]", "needs", "needs tensor, and there is no such lesson"),
        ("print(tinytorch", "%timeit tinytorch", "%timeit", "not Python (magics do not run every"),
        ("equal(area(()), 1)", "equal(area(()) 1)", "equal(area(()) 1)", "not Python"),
        ("points: 3\n", "points: 3\ngiven: 'a = = 1'\n", "given", "not Python"),
        ("equal(area(()), 1)", "equal(area(sides), 6)", "from tito.checks import equal",
         "test cell area-values uses sides, which no locked cell above it brings"),
        ("points: 3\n", "points: 3\ngiven: a = sides\n", "```{exercise}",
         "given cell area-given uses sides"),
        ("[tinytorch/sizes.py::area]", "[tinytorch/sizes.py::area, tinytorch/sizes.py::area]",
         "definitions", "tinytorch/sizes.py::area is an exercise of 01_sizes already"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(
    repository: Repository, old: str, new: str, at: str, message: str
) -> None:
    repository.edit(old, new)
    found = problems(repository)
    line = repository.line_of(at)
    if at.startswith(("id: ", "given")) and message != "not Python":
        lines = repository.lesson_path.read_text().split("\n")
        line = max(i for i, text in enumerate(lines, start=1) if text.startswith(at)) - 2
    elif at == "given":
        line += 1
    assert any(where == line and message in text for where, text in found), (line, found)


def test_an_exercise_of_more_than_forty_lines(repository: Repository) -> None:
    lines = "".join(f"    x{i} = {i}\n" for i in range(41))
    repository.edit("    return math.prod", f"{lines}    return math.prod", "tinytorch/sizes.py")
    assert problems(repository) == [
        (
            repository.line_of("definitions"),
            "exercise area has 44 lines of solution, the most is 40",
        )
    ]


@pytest.mark.parametrize(
    "line", ["", "check(area((2,)) == 2, 'two')\n", "equal(area((2,)), area((2,)))\n"]
)
def test_a_test_cell_that_could_be_forged(repository: Repository, line: str) -> None:
    repository.edit("equal(area((1,)), 1)\n", line)
    repository.edit("import equal, raises", "import check, equal, raises")
    (found,) = problems(repository)
    assert found[1].startswith("test cell area-errors compares nothing with a fixed value")


def test_more_than_five_exercises_without_a_test(repository: Repository) -> None:
    source = "".join(f'def f{i}():\n    """x"""\n    return {i}\n\n\n' for i in range(6))
    repository.write("tinytorch/many.py", source)
    exercises = "".join(
        f"```{{exercise}}\n---\nid: f-{i}\ndefinitions: [tinytorch/many.py::f{i}]\npoints: 1\n"
        f"---\n```\n\n"
        for i in range(6)
    )
    repository.edit("```{exercise}", exercises + "```{exercise}")
    text = repository.lesson_path.read_text().split("\n")
    sixth = text.index("id: f-5") - 1
    assert (sixth, "more than 5 exercises without a test") in problems(repository)


def test_a_statement_must_stand_somewhere(repository: Repository) -> None:
    repository.edit('            """The gradient of x."""\n'[4:], "", "tinytorch/layers.py")
    assert [text for _, text in problems(repository)] == [
        "tinytorch/layers.py::Scale.backward has no docstring, and the exercise no text: what is "
        "to be done is nowhere"
    ]
    repository.edit("layers.py::Scale.backward]\npoints: 2\n---", "layers.py::Scale.backward]\n"
                    "points: 2\n---\nThe gradient of x is factor times g.")  # fmt: skip
    assert problems(repository) == []


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("print(tinytorch.Scale(2.0))", "tinytorch.Scale"),
        ("from tinytorch import Scale\n\nprint(Scale(2.0))", "tinytorch.Scale"),
        ("from tinytorch.layers import Scale as S\nS(2.0)", "tinytorch.layers.Scale"),
        ("import tinytorch.layers as L\nL.Scale(2.0)", "tinytorch.layers.Scale"),
        (
            "from tinytorch import layers\nx = layers.Scale(2.0).forward(1)",
            "tinytorch.layers.Scale",
        ),
    ],
)
def test_a_name_that_a_later_lesson_owns(repository: Repository, code: str, used: str) -> None:
    repository.edit(LESSON[LESSON.index("```{exercise}\n---\nid: scale") :], "")
    repository.edit("points: 5", "points: 3")
    repository.write("modules/02_layers/lesson.md", LATER)
    assert problems(repository) == []
    repository.edit("print(tinytorch.area(sides))", code)
    (found,) = problems(repository)
    assert found[1] == f"uses {used}, which is written in 02_layers"
    assert repository.line_of("sides =") < found[0] <= repository.line_of("sides =") + 3


def test_a_lesson_cannot_need_a_later_one(repository: Repository) -> None:
    repository.edit(LESSON[LESSON.index("```{exercise}\n---\nid: scale") :], "")
    repository.edit("points: 5", "points: 3")
    repository.edit("needs: []", "needs: [layers]")
    repository.write("modules/02_layers/lesson.md", LATER)
    assert problems(repository) == [
        (repository.line_of("needs"), "needs layers, which comes later")
    ]


def test_a_definition_has_one_lesson_and_a_number_too(repository: Repository) -> None:
    repository.write("modules/01_layers/lesson.md", LATER)
    _, found = check_course(repository.root)
    messages = [problem.message for problem in found]
    assert "number or slug is taken by 01_layers" in messages
    repository.write("modules/02_sizes/lesson.md", LESSON)
    _, found = check_course(repository.root)
    taken = "tinytorch/sizes.py::area is an exercise of 02_sizes already"
    assert taken in [problem.message for problem in found]


def test_building_a_wrong_lesson_raises_with_all_that_is_wrong(repository: Repository) -> None:
    repository.edit("sizes.py::area", "sizes.py::arae")
    repository.edit("needs: []", "needs: [x]")
    with pytest.raises(LessonError) as error:
        repository.cells()
    assert len(error.value.problems) == 2
    assert str(error.value).startswith(f"{repository.lesson_path}:5: needs x")
