"""Run a PyTorch program on TinyTorch: `python -m tinytorch program.py arguments`."""

from __future__ import annotations

import os
import sys

_USAGE = """usage: python -m tinytorch [--backend NAME] program.py [arguments]

Runs a program that says `import torch` on TinyTorch.

  --backend NAME  naive, numpy, blocked, optimized, or one that you registered
                  (default: optimized where numba is installed, numpy otherwise)"""


def main(arguments: list[str]) -> int:
    """Run the program that the arguments name; returns the exit status."""
    import tinytorch
    from tinytorch.compat.program import install, run_program

    backend = None
    while arguments and arguments[0].startswith("-"):
        option, arguments = arguments[0], arguments[1:]
        if option in ("-h", "--help"):
            print(_USAGE)
            return 0
        if option == "--backend" and arguments:
            backend, arguments = arguments[0], arguments[1:]
        elif option.startswith("--backend="):
            backend = option.partition("=")[2]
        else:
            print(f"{_USAGE}\n\nunknown option {option!r}", file=sys.stderr)
            return 2
    if not arguments:
        print(_USAGE, file=sys.stderr)
        return 2
    if not os.path.exists(arguments[0]):
        print(f"python -m tinytorch: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    tinytorch.set_backend(backend or _fastest())
    install()
    run_program(arguments[0], arguments[1:])
    return 0


def _fastest() -> str:
    """The optimized backend if it can load, else numpy."""
    from importlib.util import find_spec

    return "optimized" if find_spec("numba") else "numpy"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
