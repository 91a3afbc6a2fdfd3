from __future__ import annotations

import pytest

from tito.lessons.model import Code, Exercise, LessonError, Test, Text
from tito.lessons.parse import parse_lesson
from tito.lessons.source import Target

from .conftest import Repository


def problems(repository: Repository) -> list[tuple[int, str]]:
    with pytest.raises(LessonError) as error:
        parse_lesson(repository.lesson_path)
    assert all(p.path == repository.lesson_path for p in error.value.problems)
    return [(p.line, p.message) for p in error.value.problems]


def test_what_stands_at_the_top(repository: Repository) -> None:
    lesson = parse_lesson(repository.lesson_path)
    assert (lesson.folder, lesson.number, lesson.slug, lesson.title) == (
        "01_sizes", 1, "sizes", "Sizes",
    )  # fmt: skip
    assert (lesson.hours, lesson.points, lesson.needs) == (1.5, 5, ())
    assert lesson.names == ("01", "1", "sizes", "01_sizes")


def test_blocks_in_order_with_their_lines(repository: Repository) -> None:
    lesson = parse_lesson(repository.lesson_path)
    kinds = [type(block) for block in lesson.blocks]
    assert kinds == [Text, Code, Exercise, Test, Test, Exercise, Test]
    text, code = lesson.blocks[:2]
    assert isinstance(text, Text) and "# no directive" in text.source
    assert text.line == repository.line_of("# Sizes")
    assert code.line == repository.line_of("sides = ")
    for test in lesson.tests:
        assert test.line == repository.line_of(f"id: {test.id}") - 2
    assert lesson.tests[0].code_line == repository.line_of("from tito.checks import equal")


def test_an_exercise(repository: Repository) -> None:
    area, scale = parse_lesson(repository.lesson_path).exercises
    assert area.targets == (Target("tinytorch/sizes.py", "area"),)
    assert area.hints == ("Multiply them.", "`math.prod` does.")
    assert area.statement == "Write it."
    assert area.lines["points"] == repository.line_of("points: 3")
    assert [t.name for t in scale.targets] == ["Scale.forward", "Scale.backward"]


@pytest.mark.parametrize("given", ["[a = 1, b = 2]", "|\n  a = 1\n  b = 2", "[a = 1, 'b = 2']"])
def test_given_is_a_list_of_lines_or_a_block(repository: Repository, given: str) -> None:
    repository.edit("points: 3", f"points: 3\ngiven: {given}")
    assert parse_lesson(repository.lesson_path).exercises[0].given == "a = 1\nb = 2"


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("title: Sizes\n", "", "slug", "missing: title"),
        ("part: Foundations", "part: Fun", "part", "part must be one of Foundations, Backends"),
        ("hours: 1.5", "hours: soon", "hours", "hours must be a number above 0, not 'soon'"),
        ("slug: sizes", "slug: size", "slug", "the slug is 'size', the folder 01_sizes"),
        ("hours: 1.5", "hours: 1\nhours: 2", "hours: 2", "hours is given twice"),
        ("hours: 1.5", "hours: [1", "points: 5", "not YAML"),
        ("points: 3", "points: 3\npoint: 3", "point: 3", "unknown option point; known: id, def"),
        ("points: 3\n", "", "id: area", "missing: points"),
        ("points: 3", "points: 0", "points: 0", "points must be a whole number above 0, not 0"),
        ("points: 3", "points: true", "points: true", "points must be a whole number above 0"),
        ("id: area\n", "id: Area\n", "id: Area", "id must be lower-case letters"),
        ("visible: false", "visible: no way", "visible", "visible must be true or false"),
        ("checks: products", "checks: ''", "checks: ''", "checks must be a text"),
        ("why: layers need them\n", "", "id: area-values", "missing: why"),
        ("points: 2\nchecks: products", "checks: products", "id: area-values", "missing: points"),
        ("sizes.py::area", "sizes.py:area", "definitions", "is no place of a definition; write"),
        ("[tinytorch/sizes.py::area]", "[]", "definitions: []", "at least one definition"),
        ("```{code}", "```{cod}", "```{cod}", "unknown directive {cod}; known: {exercise}, {test}"),
        ("```{code}", "```{code} x", "```{code} x", "{code} takes no argument: 'x'"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(
    repository: Repository, old: str, new: str, at: str, message: str
) -> None:
    repository.edit(old, new)
    found = problems(repository)
    assert any(line == repository.line_of(at) and message in text for line, text in found), found


def test_empty_cells_are_refused(repository: Repository) -> None:
    repository.edit("sides = (2, 3)\nprint(tinytorch.area(sides))\n", "")
    repository.edit(
        'equal(area((1,)), 1)\nraises(SizeError, area, (-1, 2), match="negative")\n', ""
    )
    repository.edit(
        "from tinytorch.errors import SizeError\nfrom tito.checks import equal, raises\n", ""
    )
    assert [text for _, text in problems(repository)] == [
        "this code cell is empty",
        "this test cell is empty",
    ]


def test_a_fence_that_is_not_closed(repository: Repository) -> None:
    repository.edit("print(tinytorch.area(sides))\n```", "print(tinytorch.area(sides))")
    line = repository.line_of("```{code}")
    begins = f"another directive begins in line {repository.line_of('```{exercise}')}"
    assert problems(repository) == [(line, f"the block ```{{code}} is not closed: {begins}")]
    repository.write("modules/01_sizes/lesson.md", "---\ntitle: x\n---\n````{code}\nx = 1\n```\n")
    assert (4, "the block ````{code} is not closed") in problems(repository)


def test_a_lesson_begins_with_its_entries(repository: Repository) -> None:
    repository.write("modules/01_sizes/lesson.md", "# Sizes\n")
    assert "a lesson begins with its entries" in problems(repository)[0][1]


def test_all_problems_are_told_at_once(repository: Repository) -> None:
    repository.edit("hours: 1.5", "hours: 0")
    repository.edit("points: 3", "points: 0")
    assert len(problems(repository)) == 2
