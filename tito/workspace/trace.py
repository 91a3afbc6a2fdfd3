"""Which functions of a package ran: the child's side. Standard library only.

Run as a script, `python trace.py REPORT PACKAGE SCRIPT [ARGUMENT...]`, it runs a script as Python
would and writes a report at its end, however that comes. The interpreter calls the trace function
once for each call of a Python function, and not for lines, so a run takes up to twice as long.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from inspect import CO_NEWLOCALS
from types import CodeType, FrameType
from typing import Any


class Trace:
    """The code that ran in a block.

    Args:
        folder: of the package; code elsewhere is not counted.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(os.path.realpath(folder), "")
        self.calls: dict[CodeType, int] = {}

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """From here on, in this thread and in those that begin later."""
        calls = self.calls

        def count(frame: FrameType, event: str, argument: Any) -> None:
            code = frame.f_code
            calls[code] = calls.get(code, 0) + 1

        threading.settrace(count)
        sys.settrace(count)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def report(self) -> list[dict[str, Any]]:
        """The functions of the package that ran; code of modules and class bodies is left out,
        which runs at import."""
        found = []
        for code, calls in list(self.calls.items()):
            file = os.path.realpath(code.co_filename)
            is_function = bool(code.co_flags & CO_NEWLOCALS)
            if is_function and file.startswith(self.folder):
                lines = {line for _, _, line in code.co_lines() if line}
                found.append(
                    {
                        "file": os.path.relpath(file, os.path.dirname(self.folder.rstrip(os.sep))),
                        "name": code.co_qualname,
                        "first": code.co_firstlineno,
                        "lines": sorted(lines),
                        "calls": calls,
                    }
                )
        return found

    def write(self, path: str) -> None:
        """The report as JSON."""
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(self.report(), stream)


def main(report: str, package: str, script: str, *arguments: str) -> None:
    """Run a script as `python SCRIPT ARGUMENT...` does; it may end by SystemExit or an error."""
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    trace = Trace(package)
    try:
        with trace:
            runpy.run_path(script, run_name="__main__")
    finally:
        trace.write(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
