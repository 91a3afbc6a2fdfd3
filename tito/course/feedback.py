"""Feedback for students: nbgrader's page for each notebook, without what they must not see.

A hidden test stays hidden: its source is cut, and so is whatever the student's code had to say
while it ran, which could have been made to tell it.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tito.course import states
from tito.course.config import LOG, Course, quiet
from tito.course.files import write_whole
from tito.course.history.requests import Request, requests
from tito.course.notebook import HIDDEN, grade_id, hidden_tests, read_notebook, without_hidden
from tito.course.sanitize import clean, without_remote
from tito.course.states import State
from tito.course.students.extensions import concealed, extensions
from tito.course.tables import database

NOT_READ = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{notebook}</title></head>
<body><h1>{notebook}</h1><p>The file that was handed in could not be read: {reason}.</p></body>
</html>
"""


def feedback(
    course: Course, known: State, until: datetime | None = None, asked: Sequence[Request] = ()
) -> Path | None:
    """Write the page for one graded notebook; None if there is nothing to say yet.

    Args:
        until: what hidden tests found is not shown before that; None if it is shown.
        asked: the student's regrade requests.
    """
    folder = course.folder("feedback", known.student, known.assignment)
    page = folder / f"{known.notebook}.html"
    if known.state == states.UNREADABLE:
        text = NOT_READ.format(
            notebook=html.escape(known.notebook), reason=html.escape(known.detail)
        )
    elif known.state == states.GRADED:
        text = _page(course, known, until)
    else:
        return None
    head, end, tail = text.rpartition("</body>")
    write_whole(page, f"{head}{_answers(asked)}{end}{tail}".encode())
    return page


def _answers(asked: Sequence[Request]) -> str:
    """The student's regrade requests and what became of them, as the end of a page."""
    items = [
        f"<dt>{html.escape(each.test or each.assignment)}: {html.escape(each.text)}</dt>"
        f"<dd>{html.escape(each.answer or 'not answered yet')}</dd>"
        for each in asked
    ]
    return f"<h4>Regrade requests</h4><dl>{''.join(items)}</dl>" if items else ""


def all_pages(
    course: Course,
    known: Sequence[State],
    on_progress: Callable[[State | None, int], None] = lambda state, total: None,
) -> tuple[list[Path], dict[str, str]]:
    """The pages that could be made, and why the others could not, by student and notebook.

    Args:
        on_progress: told the number of pages, then every state whose page is done.
    """
    pages, failed = [], {}
    with database(course) as engine:
        extended, asked = extensions(engine), requests(engine)
    on_progress(None, len(known))
    for state in known:
        until = concealed(course.policy, extended, state.assignment)
        mine = [r for r in asked if (r.assignment, r.student) == (state.assignment, state.student)]
        try:
            page = feedback(course, state, until, mine)
        except Exception as error:  # one page that fails stops no other
            LOG.debug("the page for %s", state, exc_info=True)
            failed[f"{state.student}/{state.notebook}"] = f"{type(error).__name__}: {error}"
        else:
            pages += [] if page is None else [page]
        on_progress(state, len(known))
    return pages, failed


def _page(course: Course, known: State, until: datetime | None) -> str:
    from jinja2 import pass_context
    from nbconvert.exporters import HTMLExporter
    from nbgrader.converters import GenerateFeedback

    directory = course.directory(known.assignment, known.student)
    names = {
        "student": known.student,
        "assignment": known.assignment,
        "notebook": known.notebook,
        "db_url": directory.db_url,
    }
    node = read_notebook(graded_file(course, known))
    hidden = hidden_tests(node)
    node = without_hidden_tests(node)
    with quiet():
        step = GenerateFeedback(coursedir=directory, config=course.config)
        exporter = HTMLExporter(config=step.config)
        for each in step.preprocessors:
            exporter.register_preprocessor(each, enabled=True)
        if until is not None:
            exporter.register_preprocessor(partial(_conceal, hidden=hidden, until=until))
        own = exporter.markdown2html
        exporter.register_filter("markdown2html", pass_context(lambda c, s: clean(own(c, s))))
        resources = {"unique_key": known.notebook, "nbgrader": names}
        text, _ = exporter.from_notebook_node(node, resources=resources)
    return without_remote(str(text))


def _conceal(node: Any, resources: Any, hidden: Sequence[str], until: datetime) -> tuple[Any, Any]:
    """A page without what hidden tests found: neither at the test, nor in the sum."""
    score = most = 0.0
    for cell in node.cells:
        mine = cell.metadata.get("nbgrader", {})
        if not mine.get("grade"):
            continue
        if grade_id(cell) in hidden:
            mine["grade"] = False  # without points the page shows it as any other cell
            cell.outputs = []
            when = f"{until:%Y-%m-%d %H:%M} UTC"
            cell.source += f"\n# its result, of {mine['points']:g} points, is shown after {when}"
        else:
            score, most = score + mine["score"], most + mine["points"]
    resources["nbgrader"].update(score=score, max_score=most, late_penalty=0)
    return node, resources


def graded_file(course: Course, known: State) -> Path:
    """The notebook with the verdicts in it."""
    folder = course.folder("autograded", known.student, known.assignment)
    return folder / f"{known.notebook}.ipynb"


def without_hidden_tests(node: Any) -> Any:
    """A graded notebook as its student may see it."""
    for cell in node.cells:
        if cell.cell_type != "code" or HIDDEN not in cell.source:
            continue
        told = cell.metadata.get("tinytorch", {}).get("checks", "")
        sentence = f"a hidden test{f': it checks {told}' if told else ''}"
        cell.source = (without_hidden(cell.source) + f"\n# {sentence}").strip()
        for output in cell.outputs:
            output.update(evalue="", traceback=[f"not passed: {sentence}"])
    return node
