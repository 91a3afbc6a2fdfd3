"""The proof finds what it is there to find. `test_course.py` runs it on the course itself."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tito.cli import app
from tito.lessons import proof as module
from tito.lessons.mistake import load_mistakes
from tito.lessons.proof import Proof, check_mistakes, leaks, prove_lesson
from tito.lessons.wrong import with_result

from .conftest import LESSON, Repository

PROVED = 2 + 2 * 2 + 4  # solved, unsolved; two made by machine an exercise; the mistakes
MISTAKES = "modules/01_sizes/mistakes.py"


def prove(repository: Repository) -> Proof:
    course = repository.course()
    return prove_lesson(course, course.lessons[0])


def test_a_good_lesson_is_proved(repository: Repository) -> None:
    proof = prove(repository)
    assert (proof.lesson, proof.findings, proof.attempts) == ("01_sizes", (), PROVED)
    assert proof.seconds > 0


def test_a_lesson_that_takes_long_is_found(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LESSON_SECONDS", 0.0)
    (finding,) = prove(repository).findings
    assert finding.startswith("the lesson takes") and finding.endswith("0 s are the most")


def test_a_reference_that_fails_is_found(repository: Repository) -> None:
    repository.edit("return math.prod(sides)", "return sum(sides)", "tinytorch/sizes.py")
    repository.edit("print(tinytorch.area(sides))", "assert tinytorch.area(sides) == 7")
    code, test, *_ = prove(repository).findings
    assert code.startswith("with the reference code cell code-4 fails: AssertionError")
    assert test.startswith("with the reference test cell area-values fails: CheckError: area((2")
    assert "expected: 6\n  got:      5" in test


def test_tests_that_prove_nothing_are_found(repository: Repository) -> None:
    """One passes always, one believes what the student's object says of itself."""
    repository.edit('equal(area((2, 3)), 6, hint="2 times 3")\nequal(area(()), 1)', "equal(1, 1)")
    repository.edit("equal((layer.forward(2.0), layer.calls, layer.backward(1.0)), (6.0, 1, 3.0))",
                    "assert layer.forward(2.0) == 6.0\nequal(layer.factor, 3.0)")  # fmt: skip
    findings = prove(repository).findings
    assert set(findings) == {
        "test cell area-values passes with nothing written: 2 points for free",
        "test cell area-values passes with a body that returns None",
        "test cell area-values passes with a body that returns an object equal to everything",
        "test cell scale-values passes with a body that returns an object equal to everything",
        "mistake 'adds' of area should lose 2 points in area-values, which passes",
        "mistake 'does not count' of scale should lose 2 points in scale-values, which passes",
        "mistake 'passes the gradient on' of scale should lose 2 points in scale-values, which "
        "passes",
    }


def test_right_solutions_have_all_points(repository: Repository) -> None:
    text = (repository.root / MISTAKES).read_text("utf-8")
    text = text.replace("import Mistake", "import Alternative, Mistake")
    area = "def area(sides):\\n    if min(sides, default=0) < 0:\\n        raise SizeError('{}')\\n"
    area += "    total = 1\\n    for side in sides:\\n        total *= side\\n    return total"
    scale = "class Scale(tinytorch.Scale):\\n    def backward(self, g):\\n"
    scale += "        return g * self.factor"
    for word, finding in (("negative", None), ("below 0", "'loops' of area fails area-errors")):
        listed = (
            f'ALTERNATIVES = [Alternative("area", "loops", "{area.format(word)}"),\n'
            f'    Alternative("scale", "turned", "{scale}")]\n'
        )
        repository.write(MISTAKES, f"{text}\n{listed}")
        findings = prove(repository).findings
        assert (finding is None and findings == ()) or finding in findings[0]
    repository.write(MISTAKES, text + f'\nALTERNATIVES = [Alternative("area", "a", "{area}")]\n')
    assert "mistakes.py has no alternative for exercise scale" in prove(repository).findings


def test_mistakes_that_do_not_run_or_cost_more_are_found(repository: Repository) -> None:
    repository.edit("return sum(sides)", "return sum(sides", MISTAKES)
    repository.edit("return self.factor * x", "raise SizeError", MISTAKES)
    repository.edit("return math.prod(sides)", "return None", MISTAKES)
    findings = prove(repository).findings
    syntax, extra = findings[0], findings[-1]
    assert "mistake 'adds' of area: solution cell area does not run: SyntaxError" in syntax
    assert "mistake 'does not look' of area fails area-values, which it does not list" in extra


def test_a_mistake_that_should_cost_points_above_it_is_found(repository: Repository) -> None:
    repository.edit('loses={"scale-values": 2}', 'loses={"area-values": 2, "scale-values": 2}',
                    MISTAKES)  # fmt: skip
    told = "mistake 'does not count' of scale should lose 2 points in area-values, which passes"
    assert prove(repository).findings == (told,)


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('loses={"area-values": 2}', "loses={}", "mistake 'adds' loses nothing"),
        ('"area-values": 2', '"area-values": 1',
         "mistake 'adds' loses 1 in area-values, which has 2 points"),
        ('"area-values": 2', '"area-value": 2',
         "mistake 'adds' loses 2 in area-value, which is no test cell"),
        ('exercise="area"', 'exercise="aera"', "mistake 'adds' is for aera, which is no exercise"),
        ('exercise="area"', 'exercise="scale"',
         "mistakes.py has 1 mistakes for exercise area; 2 are the least"),
    ],
)  # fmt: skip
def test_a_list_of_mistakes_that_does_not_fit_its_lesson_is_found(
    repository: Repository, old: str, new: str, finding: str
) -> None:
    repository.edit(old, new, MISTAKES)
    mistakes = load_mistakes(repository.root / MISTAKES)
    assert finding in list(check_mistakes(repository.course().lessons[0], mistakes))


def test_a_solution_that_shows_in_the_student_version_is_found(repository: Repository) -> None:
    repository.edit("sides = (2, 3)", "if any(side < LEAST for side in sides):\n    pass")
    text = "if any(side < LEAST for side in sides):"
    assert list(leaks(repository.cells(), f"x\n{text}\n")) == [
        f"cell code-4 shows a line of the solution of area: {text}",
        f"the page shows a line of the solution of area: {text}",
    ]


def test_a_hidden_test_that_shows_is_found(repository: Repository) -> None:
    line = 'raises(SizeError, area, (-1, 2), match="negative")'
    repository.edit("Text above.", f"As in\n\n    {line}")
    (finding,) = leaks(repository.cells(), "")
    assert finding == f"cell text-2 shows a line of the hidden test area-errors: {line}"


def test_a_list_of_something_else_is_refused(repository: Repository) -> None:
    repository.write(MISTAKES, "MISTAKES = ['no']")
    with pytest.raises(TypeError, match="MISTAKES must be a list of Mistake"):
        load_mistakes(repository.root / MISTAKES)
    assert load_mistakes(repository.root / "mistakes.py") == []


def test_wrong_bodies_of_every_kind() -> None:
    cell = (
        "def f():\n    ### BEGIN SOLUTION\n    x = 1\n    return x\n    ### END SOLUTION\n\n\n"
        "# lines\n### BEGIN SOLUTION\ngradient('mul', a=lambda g, b: g * b, b=lambda g, a: g)\n"
        "### END SOLUTION"
    )
    assert with_result(cell, "None") == (
        "def f():\n    return None\n\n\n# lines\n"
        "gradient('mul', a=lambda g: None, b=lambda g: None)"
    )


def test_the_command(repository: Repository) -> None:
    repository.edit(LESSON[LESSON.index("```{exercise}\n---\nid: scale") :], "")
    repository.edit("points: 5", "points: 3")
    command = ["lessons", "prove", "sizes", "--json", "--root", str(repository.root)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    (proof,) = json.loads(result.stdout)
    assert proof["lesson"] == "01_sizes" and proof["attempts"] == 6
    *findings, mutant = proof["findings"]
    assert mutant.startswith("no test of area notices this change: area: side < LEAST ->")
    assert findings == [
        "mistake 'does not count' is for scale, which is no exercise",
        "mistake 'does not count' loses 2 in scale-values, which is no test cell",
        "mistake 'passes the gradient on' is for scale, which is no exercise",
        "mistake 'passes the gradient on' loses 2 in scale-values, which is no test cell",
    ]
