"""Directives for what is done without points: predict and then run, find the bug and mend it.

```{predict}            a question, then code that binds `measured`
```{find-the-bug}       a question, then definitions with a mistake in them
```{shown-test}         a test that fails until it is mended
```{mended}             the definitions without it, for the proof and for instructors
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tito.lessons.model import FindTheBug, Lesson, Mended, Practice, Predict, Problem, ShownTest
from tito.lessons.names import bound_names
from tito.lessons.options import (
    Fence,
    Known,
    Options,
    Report,
    is_amount,
    is_choices,
    is_id,
    is_text,
    is_texts,
)

PREDICT: Known = {
    "id": (is_id, False),
    "question": (is_text, False),
    "within": (is_amount, True),
    "choices": (is_choices, True),
}
FIND_THE_BUG: Known = {
    "id": (is_id, False),
    "question": (is_text, False),
    "hints": (is_texts, False),
}
FOR_A_BUG: Known = {"for": (is_id, False)}
HINTS = 3


def _options(fence: Fence, known: Known, report: Report) -> Options:
    return Options(fence.split()[0], fence.line + 2, known, report)


def predict(fence: Fence, report: Report) -> Predict:
    """The block `{predict}`."""
    options = _options(fence, PREDICT, report)
    values = options.values
    if ("within" in options.lines) == ("choices" in options.lines):
        report(fence.line, "a prediction has either `within` (of a number) or `choices`")
    source, code_line = fence.code("experiment", report)
    return Predict(
        id=values.get("id", ""),
        question=values.get("question", "").strip(),
        source=source,
        within=values.get("within"),
        choices=tuple(values.get("choices", ())),
        line=fence.line,
        lines=options.lines,
        code_line=code_line,
    )


def find_the_bug(fence: Fence, report: Report) -> FindTheBug:
    """The block `{find-the-bug}`."""
    options = _options(fence, FIND_THE_BUG, report)
    values = options.values
    hints = tuple(values.get("hints", ()))
    if "hints" in values and len(hints) != HINTS:
        report(options.lines["hints"], f"a bug has {HINTS} hints, not {len(hints)}")
    source, code_line = fence.code("bug", report)
    return FindTheBug(
        id=values.get("id", ""),
        question=values.get("question", "").strip(),
        hints=hints,
        source=source,
        line=fence.line,
        code_line=code_line,
    )


def shown_test(fence: Fence, report: Report) -> ShownTest:
    """The block `{shown-test}`."""
    values = _options(fence, FOR_A_BUG, report).values
    source, code_line = fence.code("shown test", report)
    return ShownTest(values.get("for", ""), source, fence.line, code_line)


def mended(fence: Fence, report: Report) -> Mended:
    """The block `{mended}`."""
    values = _options(fence, FOR_A_BUG, report).values
    source, code_line = fence.code("mended code", report)
    return Mended(values.get("for", ""), source, fence.line, code_line)


PRACTICE: dict[str, Callable[[Fence, Report], Practice]] = {
    "predict": predict,
    "find-the-bug": find_the_bug,
    "shown-test": shown_test,
    "mended": mended,
}


def check_practice(lesson: Lesson) -> Iterator[Problem]:
    """What is wrong with the blocks of a lesson that give no points; their code is Python."""
    bugs = [block for block in lesson.practice if isinstance(block, FindTheBug)]
    for block in lesson.practice:
        if isinstance(block, Predict):
            yield from _binds(lesson, block)
        elif isinstance(block, FindTheBug):
            yield from _defines(lesson, block)
        elif not any(bug.id == block.bug and bug.line < block.line for bug in bugs):
            message = f"there is no {{find-the-bug}} {block.bug} above it"
            yield Problem(lesson.path, block.line, message)
    for bug in bugs:
        for kind, name in ((ShownTest, "shown-test"), (Mended, "mended")):
            mine = [b for b in lesson.practice if isinstance(b, kind) and b.bug == bug.id]
            if len(mine) != 1:
                message = f"{bug.id} must have one {{{name}}} below it, and has {len(mine)}"
                yield Problem(lesson.path, bug.line, message)


def _binds(lesson: Lesson, block: Predict) -> Iterator[Problem]:
    bound = bound_names(block.source)
    if "measured" not in bound:
        yield Problem(lesson.path, block.code_line, f"{block.id} does not bind `measured`")
    if "prediction" in bound:
        message = f"{block.id} binds `prediction`, which is the reader's"
        yield Problem(lesson.path, block.code_line, message)


def _defines(lesson: Lesson, bug: FindTheBug) -> Iterator[Problem]:
    """`tito module test` runs only the definitions of a cell that nobody has changed."""
    definitions = (ast.FunctionDef, ast.ClassDef)
    if not any(isinstance(node, definitions) for node in ast.parse(bug.source).body):
        yield Problem(lesson.path, bug.code_line, f"{bug.id} defines no function and no class")
