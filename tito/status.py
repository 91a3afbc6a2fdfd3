"""`tito status`: what of TinyTorch is yours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tito import console
from tito.module import AsJson, plainly, say

if TYPE_CHECKING:
    from tito.workspace.folder import Workspace
    from tito.workspace.progress import Progress


@plainly
def status(as_json: AsJson = False) -> None:
    """Show what is yours in your tinytorch, per module and as a share."""
    from tito.workspace import folder
    from tito.workspace.progress import progress

    workspace = folder.require()
    where = progress(workspace)
    if as_json:
        console.print_json(where.as_json())
        return
    rows = [
        [
            f"{m.number:02}", m.slug, m.status, console.bar(m.points / max(m.of_points, 1)),
            f"{m.points}/{m.of_points}", f"{m.definitions}/{m.of_definitions}", str(m.lines),
        ]
        for m in where.modules
    ]  # fmt: skip
    columns = ["", "module", "status", "", "points", "definitions", "your lines"]
    console.print_rows(columns, rows)
    say(f"\n{share_text(where)}")
    if older := [m.slug for m in where.modules if m.older]:
        say(f"older than TinyTorch: {', '.join(older)}; tito update keeps your answers")
    left = next((m for m in where.modules if m.status != "completed"), None)
    if left is not None:
        verb = "test" if left.status == "begun" else "start"
        say(f"next: tito module {verb} {left.number:02}")


def share_line(workspace: Workspace) -> str:
    """How much of the framework is the student's, in a sentence."""
    from tito.workspace.progress import progress

    return share_text(progress(workspace))


def share_text(where: Progress) -> str:
    """The sentence for a progress."""
    of_course = where.definitions / max(where.of_definitions, 1)
    of_lines = where.lines / max(where.of_lines, 1)
    return (
        f"yours: {where.definitions} of the course's {where.of_definitions} definitions "
        f"({of_course:.0%}), {where.lines:,} of the framework's {where.of_lines:,} lines of code "
        f"({of_lines:.1%})"
    )
