"""What `tito backend` runs in a process of its own: it imports the user's file.

The one argument is a JSON object: the file and the class in it, or a backend's name, and options.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from tinytorch.backends import BackendError, ComputeBackend, find_backend, register_backend
from tinytorch.op import OPS
from tinytorch.testing import OpReport, check_backend
from tito.child import RequestError, answer, attribute

CHECKED = "checked"  # the name under which the user's class is registered here


def backend_of(request: dict[str, Any]) -> ComputeBackend:
    """The backend that the user named."""
    if not request["file"]:
        return find_backend(request["name"])
    made, _ = attribute(request["file"], request["name"])
    if not (isinstance(made, type) and issubclass(made, ComputeBackend)):
        raise RequestError(
            f"{request['name']} of {Path(request['file']).name} is no class derived from "
            f"ComputeBackend; derive it from one, for example NumpyBackend"
        )
    register_backend(CHECKED, made)
    return find_backend(CHECKED)


def check(request: dict[str, Any]) -> list[OpReport]:
    """A report on each op."""
    backend = backend_of(request)
    reports = check_backend(
        backend, ops=request["ops"], examples=request["examples"], seed=request["seed"]
    )
    total = len(request["ops"] or OPS)
    console = Console(stderr=True)
    progress = track(reports, "checking", total, console=console, disable=not console.is_terminal)
    return list(progress)


def show(reports: list[OpReport], request: dict[str, Any]) -> int:
    """Print what was found; returns the exit code."""
    failed = [report for report in reports if report.problem is not None]
    if request["json"]:
        print(json.dumps({"passed": not failed, "ops": [asdict(r) for r in reports]}, indent=2))
        return int(bool(failed))
    for report in failed:
        first, _, rest = str(report.problem).partition("\n")
        print(f"{report.op}({report.call})\n    {first}")
        print("".join(f"    {line}\n" for line in rest.splitlines() if line.strip()))
    conforming = len(reports) - len(failed)
    print(f"{conforming} of {len(reports)} ops give what NumPy gives")
    if failed:
        names = ", ".join(report.op for report in failed)
        print(f"not these: {names}")
    return int(bool(failed))


def main() -> int:
    request = json.loads(sys.argv[1])
    found: list[OpReport] = []
    code = answer(lambda: found.extend(check(request)), BackendError, LookupError)
    return code or show(found, request)


if __name__ == "__main__":
    sys.exit(main())
