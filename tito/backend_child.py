"""What `tito backend` runs in a process of its own: it imports the user's file.

The one argument is a JSON object: the backend, by name or as FILE.py:CLASS, and options.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import track

from tinytorch.backends.load import load_backend
from tinytorch.errors import BackendError
from tinytorch.op import OPS
from tinytorch.testing import OpReport, check_backend
from tito.child import Answer, serve


def check(request: dict[str, Any]) -> Answer:
    """A report on each op."""
    backend = load_backend(request["backend"])
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
