"""Feedback for students: nbgrader's page for each notebook, without what they must not see.

A hidden test stays hidden: its source is cut, and so is whatever the student's code had to say
while it ran, which could have been made to tell it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tito.course import states
from tito.course.config import LOG, Course, quiet
from tito.course.harmless import clean, without_remote
from tito.course.notebook import HIDDEN, read_notebook, without_hidden
from tito.course.states import State

NOT_READ = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{notebook}</title></head>
<body><h1>{notebook}</h1><p>The file that was handed in could not be read: {reason}.</p></body>
</html>
"""


def feedback(course: Course, known: State) -> Path | None:
    """Write the page for one graded notebook; None if there is nothing to say yet."""
    folder = course.folder("feedback", known.student, known.assignment)
    page = folder / f"{known.notebook}.html"
    if known.state == states.UNREADABLE:
        text = NOT_READ.format(
            notebook=html.escape(known.notebook), reason=html.escape(known.detail)
        )
    elif known.state == states.GRADED:
        text = _page(course, known)
    else:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return page


def all_pages(course: Course, known: Sequence[State]) -> tuple[list[Path], dict[str, str]]:
    """The pages that could be made, and why the others could not, by student and notebook."""
    pages, failed = [], {}
    for state in known:
        try:
            page = feedback(course, state)
        except Exception as error:  # one page that fails stops no other
            LOG.debug("the page for %s", state, exc_info=True)
            failed[f"{state.student}/{state.notebook}"] = f"{type(error).__name__}: {error}"
        else:
            pages += [] if page is None else [page]
    return pages, failed


def _page(course: Course, known: State) -> str:
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
    node = without_hidden_tests(read_notebook(graded_file(course, known)))
    with quiet():
        step = GenerateFeedback(coursedir=directory, config=course.config)
        exporter = HTMLExporter(config=step.config)
        for each in step.preprocessors:
            exporter.register_preprocessor(each, enabled=True)
        own = exporter.markdown2html
        exporter.register_filter("markdown2html", pass_context(lambda c, s: clean(own(c, s))))
        resources = {"unique_key": known.notebook, "nbgrader": names}
        text, _ = exporter.from_notebook_node(node, resources=resources)
    return without_remote(str(text))


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
