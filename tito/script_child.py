"""Runs a script as `python SCRIPT ARGUMENT ...` does, but ends at Ctrl-C without a traceback.

The script is the main module here, as there: a pool that starts its processes by "spawn" finds it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, TracebackType


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of the script without the frame of this file; of Ctrl-C, nothing."""
    if not issubclass(kind, KeyboardInterrupt):
        below = trace and trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(below), below)


sys.excepthook = show
del sys.argv[0]
if not sys.flags.safe_path:
    sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
main = ModuleType("__main__")
main.__file__ = sys.argv[0]
sys.modules["__main__"] = main
with open(sys.argv[0], "rb") as file:
    source = file.read()
exec(compile(source, sys.argv[0], "exec", dont_inherit=True), vars(main))
