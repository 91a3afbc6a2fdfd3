"""What `tito module complete` runs on a student's package holds for the reference."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

import tinytorch
from tito.scripts import ROOT

FILES = sorted(ROOT.glob("modules/*/integration.py"))


def functions_of(path: Path) -> dict[str, Callable[[], None]]:
    return {k: v for k, v in runpy.run_path(str(path)).items() if k.startswith("test_")}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=pytest.mark.slow) if p.parent.name == "13_kernels" else p
        for p in FILES
    ],
    ids=lambda path: path.parent.name,
)
def test_integration_holds_on_the_reference(path: Path) -> None:
    found = functions_of(path)
    assert len(found) >= 2
    for test in found.values():
        assert test.__doc__ and "\n" not in test.__doc__, "the docstring is what a student is told"
        with tinytorch.using_backend("naive"):
            test()
