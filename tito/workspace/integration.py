"""Integration tests: does the framework work with the student's code in it?

Those of a module are in modules/NN_slug/integration.py: functions `test_*()` whose docstrings say
what holds if they pass. They run in a fresh process on a package that is complete but not yet the
student's, together with tests of the framework as a whole.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tito import scripts
from tito.cells import LIMITS, Cell, Failure, run_cells
from tito.workspace.folder import WorkspaceError
from tito.workspace.package import NAME
from tito.workspace.share import read_report

TEST_SECONDS = 90.0  # kernels are compiled in a test, and the machine may have other things to do
ALL = replace(LIMITS, seconds=600)
SMOKE = Path(__file__).with_name("smoke.py")
IMPORT = (
    "import tinytorch\n"
    "from tinytorch import autograd, bench, data, graph, nn, optim, training\n"
    "from tito.workspace.trace import Trace\n"
    "trace = Trace({folder!r})\n"
    "trace.start()"
)
REPORT = "trace.stop()\ntrace.write({path!r})"


@dataclass(frozen=True)
class Held:
    """An integration test that passed, or did not.

    Attributes:
        says: the first line of its docstring.
        failure: None if it passed.
    """

    slug: str
    says: str
    failure: Failure | None


@dataclass(frozen=True)
class Integration:
    """What the tests of a package came to; `trace` is the report of what ran in it."""

    tests: tuple[Held, ...]
    trace: dict[str, Any]

    @property
    def failed(self) -> list[Held]:
        return [test for test in self.tests if test.failure is not None]


def run(root: Path, files: Sequence[tuple[str, Path]], cwd: Path) -> Integration:
    """Run integration tests on the package below `root`.

    Args:
        files: the slug of a module and its tests; the framework's own come in addition.

    Raises:
        WorkspaceError: the package cannot be imported.
    """
    cells = [Cell("import tinytorch", IMPORT.format(folder=str(root / NAME)), 60)]
    tests: list[tuple[str, str]] = []
    places = []
    for slug, path in [*files, ("", SMOKE)]:
        source = path.read_text(encoding="utf-8")
        cells.append(Cell(f"integration tests {slug}", source))
        for node in ast.parse(source, str(path)).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                says = (ast.get_docstring(node) or node.name).partition("\n")[0].rstrip(".")
                tests.append((slug, says))
                places.append(len(cells))
                cells.append(Cell(node.name, f"{node.name}()", TEST_SECONDS))
    with tempfile.TemporaryDirectory(prefix="tito-") as folder:
        report = Path(folder, "trace.json")
        cells.append(Cell("report", REPORT.format(path=str(report))))
        outcomes = run_cells(cells, cwd=cwd, path=[root, scripts.ROOT], limits=ALL)
        trace = read_report(report)
    if (failure := outcomes[0].failure) is not None:
        raise WorkspaceError(
            f"with your code `import tinytorch` fails: {failure.type}: {failure.message}"
        )
    held = tuple(
        Held(slug, says, outcomes[i].failure or (None if outcomes[i].ran else _not_run()))
        for (slug, says), i in zip(tests, places, strict=True)
    )
    return Integration(held, trace)


def _not_run() -> Failure:
    return Failure("ProcessEnded", "it was not reached: an earlier test ended the process")
