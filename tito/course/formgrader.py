"""nbgrader's formgrader for a course: an extension of Jupyter's server, and how it is started.

Manual grades and comments are given there. What would run a student's code with the instructor's
rights, or show what hidden tests found, is refused, with the command that does it safely.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tito.course.config import Course

GRADE = "nbgrader would run this without a sandbox: tito course grade {}"
FEEDBACK = "nbgrader's pages would show the hidden tests: tito course feedback {}"


def command(course: Course, *, port: int, browser: bool) -> list[str]:
    """The command that starts it, in the course's folder."""
    extensions = {"nbgrader.server_extensions.formgrader": False, __name__: True}
    return [
        sys.executable, "-m", "jupyter_server", "--ip=127.0.0.1", f"--port={port}",
        "--allow-root", f"--ServerApp.open_browser={browser}",
        f"--ServerApp.root_dir={course.root}", "--ServerApp.default_url=/formgrader",
        f"--ServerApp.jpserver_extensions={extensions}",
    ]  # fmt: skip


def _load_jupyter_server_extension(server: Any) -> None:
    """What Jupyter's server calls."""
    from nbgrader.server_extensions.formgrader import apihandlers, formgrader

    for handler, sentence in (
        (apihandlers.AutogradeHandler, GRADE),
        (apihandlers.GenerateFeedbackHandler, FEEDBACK),
        (apihandlers.GenerateAllFeedbackHandler, FEEDBACK),
    ):
        handler.post = _refusal(sentence)
    formgrader.load_jupyter_server_extension(server)


def _refusal(sentence: str) -> Any:
    def post(handler: Any, assignment: str, *others: str) -> None:
        answer = {"success": False, "error": sentence.format(assignment), "log": ""}
        handler.write(json.dumps(answer))

    return post
