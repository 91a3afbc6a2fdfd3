"""`tito init`: a workspace to build your own TinyTorch in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tito.module import checked_format, plainly, say


@plainly
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    form: Annotated[
        str, typer.Option("--format", help="Lessons as notebooks (ipynb) or plain Python (py).")
    ] = "ipynb",
) -> None:
    """Make a workspace: the lessons without answers, and a tinytorch that becomes yours.

    In a folder that is a workspace already, bring it up to date; what you wrote stays.
    """
    form = checked_format(form)
    from tito.workspace import begin, course

    workspace = begin.init(folder, form)
    first = course.lessons()[0]
    say(f"your workspace is {workspace.root}")
    say(f"next: cd {folder} && tito module start {first.number:02}")
