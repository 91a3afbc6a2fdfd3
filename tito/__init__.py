"""`tito`, the command line of TinyTorch. `tito --help` lists the commands."""

import os
import sys

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended, as shells have it: 128 + SIGINT


def leave_out_workspaces() -> None:
    """Take students' workspaces from the path of this process: tito runs no code of theirs.

    `python -m tito` puts the current folder first, and PYTHONPATH may name one.
    """
    sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p or ".", ".tito"))]
