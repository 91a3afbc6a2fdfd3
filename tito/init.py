"""`tito init`: a workspace to build your own TinyTorch in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tito.module import checked_format, plainly, say


@plainly
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="Lessons as notebooks (ipynb, the default) or plain Python (py)."
        ),
    ] = None,
) -> None:
    """Make a workspace: the lessons without answers, and a tinytorch that becomes yours.

    In a folder that is a workspace already, bring it up to date; what you wrote stays.
    """
    from tito.workspace import begin, course

    workspace = begin.init(folder, checked_format(form) if form else None)
    first = course.lessons()[0]
    say(f"your workspace is {workspace.root}")
    say(f"next: cd {shlex.quote(str(folder))} && tito module start {first.number:02}")
