"""Run a script on the student's package, and say how much of the work was done by their code.

Whose code runs is found out first, in a run of its own that stops after one epoch: tracing costs
time, and the run that is shown and timed has none of it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinytorch.bench.units import format_count
from tito import INTERRUPTED, console, scripts
from tito.workspace import completed, course, module
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.share import Share, measure, read_report, times

TRACE = Path(__file__).with_name("trace.py")
FIRST_EPOCH = "--first-epoch"  # an option of every milestone: train for one epoch, judge nothing
SHOWN = 20  # definitions of theirs that are listed


def run_script(
    workspace: Workspace,
    script: Path,
    arguments: Sequence[str],
    *,
    files: Sequence[Path] = (),
    as_json: bool,
    all_mine: bool,
) -> int:
    """Run a script in a fresh process on the workspace's package.

    Args:
        files: Python files of the student's outside of the package that the script runs.
        as_json: the script prints one JSON object, to which the share is added as "yours".
        all_mine: fail, before the script runs, if it needs a definition that a lesson has as an
            exercise and that is ours.

    Returns:
        The script's exit code, or 1.
    """
    stream = console.errors if as_json else console.out

    def say(*lines: str) -> None:
        for line in lines:
            stream.print(line, markup=False, highlight=False, soft_wrap=True)

    module.refresh(workspace)
    if all_mine:
        say("required: every part that runs and that the course lets you write is yours")
    say("whose code it is: one epoch is traced; the run after it is not\n")
    code, share = trace(workspace, script, arguments, files)
    if code == INTERRUPTED:
        return code
    refused = all_mine and bool(share.missing or not share.functions)
    if refused and code == 0:
        say(*share_lines(share), *missing_lines(share), "", f"{_verdict(share)}; not trained")
        if as_json:
            console.print_json({"passed": False, "yours": share.as_json()})
        return 1
    code, text = scripts.run_script(script, arguments, capture=as_json, package=workspace.root)
    if share.functions:
        say("", *share_lines(share), *missing_lines(share))
    if all_mine:
        say("", _verdict(share))
    if as_json and code in (0, 1):
        printed, result = last_json(text)
        console.errors.print(printed, markup=False, highlight=False, soft_wrap=True, end="")
        passed = code == 0 and not refused
        console.print_json({**result, "passed": passed, "yours": share.as_json()})
    return 1 if refused and code == 0 else code


def trace(
    workspace: Workspace, script: Path, arguments: Sequence[str], files: Sequence[Path]
) -> tuple[int, Share]:
    """Run the first epoch of a script with every call counted; its exit code, and the share."""
    plain = [argument for argument in arguments if argument != "--json"]
    folders = os.pathsep.join(map(str, [workspace.package, *files]))
    with tempfile.TemporaryDirectory(prefix="tito-") as folder:
        report = Path(folder, "trace.json")
        code, _ = scripts.run_script(
            TRACE,
            [str(report), folders, str(script), *plain, FIRST_EPOCH],
            capture=True,
            package=workspace.root,
        )
        found = read_report(report)
    mine = completed.definitions(completed.load(workspace))
    wanted = {text for lesson in course.lessons() for text in course.definitions(lesson)}
    return code, measure(workspace.root, found, mine, wanted)


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
    calls, flops = max(share.calls, 1), max(share.flops, 1)
    lines = [
        f"of the work of one epoch yours were {share.own_calls:,} of {share.calls:,} calls of "
        f"functions ({share.own_calls / calls:.0%}) and {format_count(share.own_flops)} of "
        f"{format_count(share.flops)} FLOPs ({share.own_flops / flops:.0%})"
    ]
    listed = sorted(share.own.items(), key=lambda item: -item[1])
    for place, count in listed[:SHOWN]:
        ran = f"called {times(count)}" if count else "compiled"
        lines.append(f"  yours: {place}, {ran}")
    if len(listed) > SHOWN:
        lines.append(f"  and {len(listed) - SHOWN} more of yours")
    return lines


def missing_lines(share: Share) -> list[str]:
    """What ran and is yet to be written, by module."""
    if not share.missing:
        whole = "every part that the course lets you write and that ran was yours"
        return [whole] if share.own else []
    lines = ["ran as ours, and can be yours:"]
    left = set(share.missing)
    for lesson in course.lessons():
        if here := [text for text in course.definitions(lesson) if text in left]:
            lines.append(f"  {lesson.number:02} {lesson.slug}")
            lines += [f"    {text}" for text in dict.fromkeys(here)]
            left -= set(here)
    return lines


def _verdict(share: Share) -> str:
    if not share.functions:
        return "not all yours: nothing is known of what ran, as the traced epoch was ended"
    if share.missing:
        return f"not all yours: {len(share.missing)} parts that it needs are ours"
    return "all yours"
