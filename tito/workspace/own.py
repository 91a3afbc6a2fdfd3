"""Run a script on the student's package, and say how much of the code that ran was theirs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tito import console, scripts
from tito.workspace import completed, course, module
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.share import Share, measure, read_report, times

TRACE = Path(__file__).with_name("trace.py")


def run_script(
    workspace: Workspace, script: Path, arguments: Sequence[str], *, as_json: bool, all_mine: bool
) -> int:
    """Run a script in a fresh process on the workspace's package.

    Args:
        as_json: the script prints one JSON object, to which the share is added as "yours".
        all_mine: fail if a definition ran that a lesson has as an exercise and that is ours.

    Returns:
        The script's exit code, or 1.
    """
    module.refresh(workspace)
    with tempfile.TemporaryDirectory(prefix="tito-") as folder:
        report = Path(folder, "trace.json")
        code, text = scripts.run_script(
            TRACE,
            [str(report), str(workspace.package), str(script), *arguments],
            capture=as_json,
            package=workspace.root,
        )
        trace = read_report(report)
    mine = completed.definitions(completed.load(workspace))
    theirs = {text for lesson in course.lessons() for text in course.definitions(lesson)}
    share = measure(workspace.root, trace, mine, theirs)
    stream = console.errors if as_json else console.out
    for line in ["", *share_lines(share)] if trace else []:
        stream.print(line, markup=False, highlight=False, soft_wrap=True)
    if as_json and code in (0, 1):
        printed, result = last_json(text)
        console.errors.print(printed, markup=False, highlight=False, soft_wrap=True, end="")
        console.print_json({**result, "yours": share.as_json()})
    return 1 if all_mine and share.missing and code == 0 else code


def last_json(text: str) -> tuple[str, dict[str, Any]]:
    """What a script printed before its JSON object, as a student's code may, and the object.

    Raises:
        WorkspaceError: there is none at the end.
    """
    start = text.rfind("\n{") + 1
    try:
        result = json.loads(text[start:])
    except ValueError:
        raise WorkspaceError(f"the script has not printed its result, but: {text}") from None
    return text[:start], result


def share_lines(share: Share) -> list[str]:
    """What is said of a share."""
    lines = [
        f"of the {share.functions} functions of tinytorch that ran, {share.own_functions} were "
        f"yours: {share.own_lines:,} of {share.lines:,} lines of code "
        f"({share.own_lines / max(share.lines, 1):.1%})"
    ]
    for place, calls in sorted(share.own.items(), key=lambda item: -item[1]):
        lines.append(f"  yours: {place}, called {times(calls)}")
    if share.missing:
        lines.append("ran as ours, and can be yours:")
        lines += [f"  {place}" for place in share.missing]
    elif share.own:
        lines.append("every part that the course lets you write and that ran was yours")
    return lines
