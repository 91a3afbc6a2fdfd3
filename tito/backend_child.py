"""What `tito backend` runs in a process of its own: it imports the user's file.

The one argument is a JSON object: the file and the class in it, or a backend's name, and options.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from tinytorch.backends import BackendError, ComputeBackend, find_backend, register_backend
from tinytorch.op import OPS
from tinytorch.testing import OpReport, check_backend
from tito.child import Answer, RequestError, attribute, serve

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


def check(request: dict[str, Any]) -> Answer:
    """A report on each op."""
    backend = backend_of(request)
    reports = check_backend(
        backend, ops=request["ops"], examples=request["examples"], seed=request["seed"]
    )
    total = len(request["ops"] or OPS)
    console = Console(stderr=True)
    progress = track(reports, "checking", total, console=console, disable=not console.is_terminal)
    found = list(progress)
    passed = all(report.problem is None for report in found)
    return Answer(
        text=lambda: _text(found),
        value=lambda: {"passed": passed, "ops": [asdict(r) for r in found]},
        code=int(not passed),
    )


def _text(reports: list[OpReport]) -> str:
    failed = [report for report in reports if report.problem is not None]
    lines = []
    for report in failed:
        first, _, rest = str(report.problem).partition("\n")
        lines += [f"{report.op}({report.call})", f"    {first}"]
        lines += ["".join(f"    {line}\n" for line in rest.splitlines() if line.strip())]
    lines.append(f"{len(reports) - len(failed)} of {len(reports)} ops give what NumPy gives")
    if failed:
        lines.append(f"not these: {', '.join(report.op for report in failed)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(serve({"check": check}, BackendError, LookupError))
