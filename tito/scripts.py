"""The scripts of the repository, and how `tito` runs them: each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from tito import INTERRUPTED

ROOT = Path(__file__).resolve().parents[1]
CHILD = Path(__file__).with_name("script_child.py")
END_WITHIN_S = 10  # after Ctrl-C


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
        path: of the script.
        capture: return what it prints on stdout instead of passing it on.
        package: the folder whose `tinytorch/` the script imports.

    Returns:
        Its exit code (128 + n if signal n ended it, `INTERRUPTED` after Ctrl-C), and its output
        if captured.
    """
    places = dict.fromkeys([str(package), str(ROOT), os.environ.get("PYTHONPATH", "")])
    search = os.pathsep.join(filter(None, places))
    script = subprocess.Popen(
        [sys.executable, str(CHILD), str(path), *arguments],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE if capture else None,
        text=True,
    )
    with script:
        try:
            text, _ = script.communicate()
        except KeyboardInterrupt:  # which a terminal sends to the script, too
            _let_end(script)
            return INTERRUPTED, ""
        except BaseException:
            script.kill()
            raise
    code = script.returncode
    return code if code >= 0 else 128 - code, text or ""


def _let_end(script: subprocess.Popen[str]) -> None:
    """Wait for a script that Ctrl-C ends, so that it can clean up; at a second one, no longer."""
    try:
        script.communicate(timeout=END_WITHIN_S)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        script.kill()
