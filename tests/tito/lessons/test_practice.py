"""Predict and then run, find the bug: from lesson.md to cells, checked and proved."""

from __future__ import annotations

import io
import math
from contextlib import redirect_stdout
from typing import Any

import pytest

from tito.lessons import proof
from tito.lessons.model import FindTheBug, LessonError, Mended, Predict, ShownTest
from tito.lessons.notebook import notebook
from tito.lessons.pages import page
from tito.lessons.parse import parse_lesson

from .conftest import Repository

PREDICT = """
```{predict}
---
id: how-large
question: What is the area of a sheet of *A4*?
within: 0.1
---
measured = float(area((21, 29)))
```

```{predict}
---
id: which-way
question: More sides?
choices: [larger, "the same"]
---
measured = "larger" if area((2, 2, 2)) > 4 else "the same"
```
"""
BUG = '''
```{find-the-bug}
---
id: border
question: This frame is too large. Why?
hints: [draw it, count the corners, "each corner is counted twice"]
---
def border(width, height):
    """How many squares are at the border."""
    return 2 * width + 2 * height
```

```{shown-test}
---
for: border
---
from tito.checks import equal

equal(border(3, 3), 8, hint="the corners")
```

```{mended}
---
for: border
---
def border(width, height):
    """How many squares are at the border."""
    return 2 * width + 2 * height - 4
```
'''
PLACE = "```{exercise}\n---\nid: scale"


@pytest.fixture
def practice(repository: Repository) -> Repository:
    repository.edit(PLACE, f"{PREDICT}\n{BUG}\n{PLACE}")
    return repository


def found(repository: Repository) -> list[tuple[int, str]]:
    with pytest.raises(LessonError) as error:
        repository.cells()
    return [(p.line, p.message) for p in error.value.problems]


def test_the_blocks(practice: Repository) -> None:
    how, which, bug, shown, mended = parse_lesson(practice.lesson_path).practice
    assert isinstance(how, Predict) and isinstance(which, Predict)
    assert (how.within, how.choices) == (0.1, ())
    assert (which.within, which.choices) == (None, ("larger", "the same"))
    assert how.code_line == practice.line_of("measured = float")
    assert isinstance(bug, FindTheBug) and len(bug.hints) == 3
    assert bug.code_line == practice.line_of("def border")
    assert isinstance(shown, ShownTest) and isinstance(mended, Mended)
    assert (shown.bug, mended.bug) == ("border", "border")


def test_the_cells_of_a_student_and_of_an_instructor(practice: Repository) -> None:
    def ids(*, student: bool) -> list[str]:
        made: list[dict[str, Any]] = notebook(practice.cells(), student=student)["cells"]
        known = [cell["id"] for cell in made]
        return known[known.index("how-large-question") : known.index("scale-text")]

    bug = ["border-question", "border", "border-shown"]
    predict = [f"{id}{end}" for id in ("how-large", "which-way")
               for end in ("-question", "-prediction", "")]  # fmt: skip
    assert ids(student=True) == [*predict, *bug]
    assert ids(student=False) == [*predict, *bug, "border-mended"]
    made = {cell["id"]: cell for cell in notebook(practice.cells(), student=False)["cells"]}
    assert made["border-shown"]["metadata"]["tags"] == ["raises-exception"]
    assert made["border-mended"]["metadata"]["tags"] == ["mended"]
    assert "tags" not in made["border"]["metadata"] | made["how-large"]["metadata"]
    assert "".join(made["how-large-prediction"]["source"]).startswith("prediction = None")


def test_the_questions_are_callouts_that_say_what_is_asked(practice: Repository) -> None:
    text = practice.cell("how-large-question").source
    assert text.startswith('<div class="alert alert-success">\n\n**Predict, then run.**')
    assert "sheet of *A4*?\n\nA number; up to 10 % off is right." in text
    assert "One of: `larger`, `the same`." in practice.cell("which-way-question").source
    bug = practice.cell("border-question").source
    assert 'class="alert alert-danger"' in bug and bug.count("<details>") == 3


@pytest.mark.parametrize(
    ("id", "prediction", "said"),
    [
        ("how-large", None, "No prediction yet"),
        ("how-large", 600, "right: 1.5 % off, and 10 % were allowed"),
        ("how-large", 60.9, "why?: 90.0 % off"),
        ("which-way", " Larger", "right"),
        ("which-way", "the same", "not what you said"),
    ],
)
def test_an_experiment_prints_prediction_beside_measurement(
    practice: Repository, id: str, prediction: object, said: str
) -> None:
    names = {"prediction": prediction, "area": math.prod}
    with redirect_stdout(io.StringIO()) as out:
        exec(practice.cell(id).source, names)
    assert said in out.getvalue()
    assert "measured   " in out.getvalue()


@pytest.mark.parametrize(
    ("id", "prediction", "message"),
    [
        ("how-large", "much", "prediction must be a number, such as 0.5, not 'much'"),
        ("how-large", True, "not True"),
        ("which-way", 3, "prediction must be one of 'larger', 'the same', not 3"),
    ],
)
def test_a_prediction_of_a_wrong_kind_is_told_before_the_answer(
    practice: Repository, id: str, prediction: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        exec(practice.cell(id).source, {"prediction": prediction})


def test_the_page_has_all_but_the_mended_code(practice: Repository) -> None:
    course = practice.course()
    text = page(course.lessons[0], course.package)
    assert "equal(border(3, 3), 8" in text and "return 2 * width + 2 * height\n" in text
    assert "- 4" not in text


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("within: 0.1\n", "", "```{predict}", "has either `within` (of a number) or `choices`"),
        ("within: 0.1", "within: 0.1\nchoices: [a, b]", "```{predict}", "has either `within`"),
        ("[larger, ", "[", "choices", "choices must be a list of two or more different texts"),
        ("hints: [draw it, ", "hints: [", "hints: [c", "a bug has 3 hints, not 2"),
    ],
)
def test_options_that_do_not_fit(
    practice: Repository, old: str, new: str, at: str, message: str
) -> None:
    practice.edit(old, new)
    with pytest.raises(LessonError) as error:
        parse_lesson(practice.lesson_path)
    problems = [(p.line, p.message) for p in error.value.problems]
    line = practice.line_of(at)
    assert any(where == line and message in text for where, text in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("measured = float(area((21, 29)))", "area((21, 29))", "how-large does not bind `meas"),
        ("measured = float", "prediction = measured = float", "how-large binds `prediction`"),
        ("---\nfor: border\n---\nfrom", "---\nfor: bord\n---\nfrom", "no {find-the-bug} bord"),
        ("```{mended}\n---\nfor: border", "```{shown-test}\n---\nfor: border", "has 0"),
        ("id: which-way", "id: how-large", "the id how-large is in line"),
        ("id: which-way", "id: x-shown", "the builder makes ids such as x-shown"),
    ],
)
def test_what_does_not_belong_together(
    practice: Repository, old: str, new: str, message: str
) -> None:
    practice.edit(old, new)
    assert any(message in text for _, text in found(practice))


def test_a_bug_is_a_definition(practice: Repository) -> None:
    practice.edit(
        'def border(width, height):\n    """How many squares are at the border."""\n'
        "    return 2 * width + 2 * height\n",
        "border = lambda width, height: 2 * width + 2 * height\n",
    )
    message = "border defines no function and no class"
    assert (practice.line_of("border = "), message) in found(practice)


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("", "", None),
        ("height - 4", "height - 3", "with the reference shown on mended cell border-shown fails"),
        ("equal(border(3, 3), 8", "equal(border(3, 3), 12", "passes on the buggy code"),
        ("equal(border(3, 3), 8", "equal(bord(3, 3), 8", "does not fail by a check of its own"),
    ],
)
def test_the_proof_shows_that_the_test_sees_the_bug(
    practice: Repository, old: str, new: str, finding: str | None
) -> None:
    if old:
        practice.edit(old, new)
    cells = proof._everything(practice.cells())
    (outcomes,) = proof._run([cells], [], practice.root)
    findings = list(proof._all_pass(cells, outcomes))
    if finding is None:
        assert findings == []
    else:
        assert any(finding in each for each in findings), findings


def test_mended_code_that_is_shown_is_a_leak(practice: Repository) -> None:
    assert list(proof.leaks(practice.cells(), "")) == []
    practice.edit("Text above.", "Text above.\n\n    return 2 * width + 2 * height - 4\n")
    assert any("shows a line of the mended border" in x for x in proof.leaks(practice.cells(), ""))
