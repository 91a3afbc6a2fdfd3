"""The script `tito`, and `python -m tito`: Ctrl-C is answered from the first moment on."""

import sys

from tito import INTERRUPTED, leave_out_workspaces


def main() -> None:
    """Run the command line; an interrupt ends it with one line, also while modules are loading."""
    try:
        leave_out_workspaces()
        from tito.cli import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as end:
        if getattr(end, "code", INTERRUPTED) != INTERRUPTED:
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
