"""The scripts of the repository, and how `tito` runs them: each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """A folder of the repository that is not part of the installed package.

    Raises:
        typer.BadParameter: TinyTorch was installed without its repository.
    """
    path = ROOT / name
    if not path.is_dir():
        raise typer.BadParameter(
            f"the folder {name}/ comes with the repository and is not at {path}: clone TinyTorch, "
            f"then run `pip install -e '.[dev]'` in the clone"
        )
    return path


def run_script(
    path: Path | str, arguments: Sequence[str], *, capture: bool = False, package: Path = ROOT
) -> tuple[int, str]:
    """Run a Python script to its end with this interpreter and this TinyTorch.

    Args:
        path: of the script; or "-m", and the first argument is the name of a module.
        capture: return what it prints on stdout instead of passing it on.
        package: the folder whose `tinytorch/` the script imports.

    Returns:
        Its exit code (128 + n if signal n ended it), and its output if captured.
    """
    places = dict.fromkeys([str(package), str(ROOT), os.environ.get("PYTHONPATH", "")])
    search = os.pathsep.join(filter(None, places))
    try:
        finished = subprocess.run(
            [sys.executable, str(path), *arguments],
            env={**os.environ, "PYTHONPATH": search},
            stdout=subprocess.PIPE if capture else None,
            text=True,
        )
    except KeyboardInterrupt:
        return 130, ""
    code = finished.returncode
    return code if code >= 0 else 128 - code, finished.stdout or ""
