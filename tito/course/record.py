"""nbgrader's autograding around a sandbox: its steps before the notebook runs, and those after.

Only the step in between, nbgrader's `Execute`, is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tito.course.config import Course, quiet
from tito.course.exam.job import Transcript, Unit
from tito.course.exam.judge import Verdict
from tito.course.notebook import grade_id, hidden_tests, seconds_of, without_hidden
from tito.course.sanitize import is_picture
from tito.lessons.names import bound_names, read_names

MOST_TEXT = 25_000
MOST_SHOWN = 20


class Assignment:
    """One assignment of a course, with nbgrader's autograder set up for it."""

    def __init__(self, course: Course, name: str) -> None:
        self.course = course
        self.name = name

    def sanitize(self, student: str, notebook: str, node: Any) -> Any:
        """A restored notebook after nbgrader's own steps: outputs cleared, cells overwritten."""
        autograde = self._autograde(student)
        steps = autograde.sanitize_preprocessors
        with quiet():
            return self._through(steps, autograde, student, notebook, node)

    def record(self, student: str, notebook: str, path: Path, node: Any) -> None:
        """Store the grades that are in a notebook's outputs, and the notebook itself.

        Args:
            path: the submitted file.
        """
        from nbgrader.preprocessors import Execute

        autograde = self._autograde(student)
        folder = self.course.folder("autograded", student, self.name)
        target = folder / f"{notebook}.ipynb"
        target.unlink(missing_ok=True)
        autograde.notebooks = [str(path)]
        steps = [step for step in autograde.autograde_preprocessors if step is not Execute]
        with quiet():
            autograde.init_assignment(self.name, student)
            graded = self._through(steps, autograde, student, notebook, node)
        folder.mkdir(parents=True, exist_ok=True)
        _write(target, graded)
        autograde.set_permissions(self.name, student)

    def record_unreadable(self, student: str, notebook: str) -> None:
        """No point for a file that is no notebook: what nbgrader does if there is no file."""
        with quiet(), self.course.gradebook() as gradebook:
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(self.name, student)
            submission = gradebook.find_submission_notebook(notebook, self.name, student)
            for grade in submission.grades:
                grade.auto_score = 0
                grade.needs_manual_grade = False
            gradebook.db.commit()
        folder = self.course.folder("autograded", student, self.name)
        (folder / f"{notebook}.ipynb").unlink(missing_ok=True)

    def _autograde(self, student: str) -> Any:
        from nbgrader.converters import Autograde

        return Autograde(
            coursedir=self.course.directory(self.name, student), config=self.course.config
        )

    def _through(
        self, steps: list[Any], autograde: Any, student: str, notebook: str, node: Any
    ) -> Any:
        """A notebook after steps of nbgrader."""
        import nbformat
        from nbconvert.exporters import NotebookExporter

        exporter = NotebookExporter(config=autograde.config)
        for step in steps:
            exporter.register_preprocessor(step)
        names = {
            "student": student,
            "assignment": self.name,
            "notebook": notebook,
            "db_url": autograde.coursedir.db_url,
        }
        resources = {"unique_key": notebook, "nbgrader": names}
        text, _ = exporter.from_notebook_node(node, resources=resources)
        return nbformat.reads(text, as_version=4)


def _write(path: Path, node: Any) -> None:
    import nbformat

    partial = path.with_suffix(".partial")
    nbformat.write(node, partial)
    partial.replace(path)


def units(node: Any, source: Any, tests: Mapping[str, Any]) -> tuple[Unit, ...]:
    """The code cells of a notebook as the student has them.

    Args:
        source: the course's notebook.
        tests: test cells by id.
    """
    hidden = set(hidden_tests(node))
    shown = {cell.source for cell in source.cells if grade_id(cell) is None}
    found = []
    for i, cell in enumerate(node.cells):
        if cell.cell_type != "code":
            continue
        name = grade_id(cell)
        if name not in tests:
            is_edited = cell.source not in shown
            found.append(Unit(f"cell {i}", cell.source, None, is_edited, seconds_of(cell)))
            continue
        seen = without_hidden(cell.source) if name in hidden else cell.source
        found.append(
            Unit(f"cell {i}", seen if seen.strip() else None, name, False, seconds_of(cell))
        )
    return tuple(found)


def without_examples(cells: Sequence[Unit]) -> tuple[Unit, ...]:
    """The cells without the course's own examples, from which no other cell takes a name.

    An example that nobody has changed is run for its output, and it may train a model. Where one
    exercise is run again on its own, its output is there already.
    """
    kept: list[Unit] = []
    wanted: set[str] = set()
    for unit in reversed(cells):
        if unit.source is not None:
            try:
                binds, reads = bound_names(unit.source), read_names(unit.source)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return tuple(cells)  # a cell with magics, or no Python: what it takes is not known
            example = not unit.is_edited and unit.test is None
            if example and not binds & wanted:
                continue
            wanted |= reads
        kept.append(unit)
    return tuple(reversed(kept))


def with_outputs(node: Any, transcript: Transcript, verdicts: Mapping[str, Verdict]) -> Any:
    """The notebook with what its cells printed, and with a verdict at each test.

    Warnings on stderr become ordinary text: nbgrader takes stderr in a test for a failure.
    """

    for i, cell in enumerate(node.cells):
        if cell.cell_type != "code":
            continue
        verdict = verdicts.get(grade_id(cell) or "")
        if verdict is not None:
            cell.outputs = [] if verdict.passed else [_error("NotPassed", verdict.message)]
        else:
            unit = f"cell {i}"
            cell.outputs = _shown(transcript.cells.get(unit, {}))
            if unit in transcript.ended:
                cell.outputs.append(_error("ProcessEnded", transcript.ended[unit]))
    return node


def _shown(cell: Mapping[str, Any]) -> list[Any]:
    """Outputs for what a process said that it printed; it may have said anything."""
    from nbformat.v4 import new_output

    outputs = []
    text, shown, error = cell.get("text"), cell.get("shown"), cell.get("error")
    if isinstance(text, str) and text:
        outputs.append(new_output("stream", name="stdout", text=text[:MOST_TEXT]))
    for data in shown[:MOST_SHOWN] if isinstance(shown, list) else ():
        if isinstance(data, dict) and isinstance(data.get("text/plain"), str):
            plain = {"text/plain": data["text/plain"][:MOST_TEXT]}
            if is_picture("image/png", data.get("image/png")):
                plain["image/png"] = data["image/png"]
            outputs.append(new_output("display_data", data=plain))
    if isinstance(error, dict):
        message = str(error.get("message"))[:MOST_TEXT]
        outputs.append(_error(str(error.get("type"))[:100], message))
    return outputs


def _error(name: str, message: str) -> Any:
    from nbformat.v4 import new_output

    return new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])
