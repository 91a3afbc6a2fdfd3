"""`tito update`: new text and tests around your answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tito.module import plainly, say, warn_of

if TYPE_CHECKING:
    from tito.workspace.update import Update


@plainly
def update(
    name: Annotated[
        str | None, typer.Argument(metavar="MODULE", help="Which module; by default all.")
    ] = None,
) -> None:
    """Bring lessons up to date: new text and tests around your answers, which stay as they are.

    A file that changes is kept in .tito/backups/ as it was.
    """
    from tito.workspace import course, folder, module
    from tito.workspace.update import update as bring

    workspace = folder.require()
    warn_of(module.refresh(workspace))
    lessons = [course.find(name)] if name else course.lessons()
    for lesson in lessons:
        done = bring(workspace, lesson)
        if done is None:
            path = module.write_file(workspace, lesson, module.form_of(workspace, lesson))
            say(f"{path.name}: new")
        elif done.backup is None:
            say(f"{done.path.name}: up to date")
        else:
            for line in _lines(done):
                say(line)


def _lines(done: Update) -> list[str]:
    lines = [f"{done.path.name}: brought up to date; as it was: {done.backup}"]
    for what, names in (("new", done.new), ("changed", done.changed), ("gone", done.gone)):
        if names:
            counted = [f"{n} ({names.count(n)})" if n in ("text", "code") else n for n in names]
            lines.append(f"  {what}: {', '.join(dict.fromkeys(counted))}")
    if done.answers:
        lines.append(f"  yours, as they were: {', '.join(done.answers)}")
    for name in done.statements:
        lines.append(f"  {name}: its statement has changed, and is above your answer now")
    return lines
