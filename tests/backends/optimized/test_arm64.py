"""Kernels on 64-bit ARM, by emulation: a call of each class, and a compiled step."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest

from tinytorch.jit.cpu import host_vector_unit

ROOT = Path(__file__).resolve().parents[3]
CHECK = Path(__file__).with_name("arm64_check.py")
#: A compiled step has products, sums, losses and an optimizer in it. While no kernel is kept yet, a
#: class takes minutes of a core.
CHECKED_EACH_TIME = ["elementwise", "compiled step"]


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(CHECKED_EACH_TIME, marks=pytest.mark.slow(seconds=130), id="some"),
        pytest.param([], marks=pytest.mark.exhaustive, id="all"),
    ],
)
def test_kernels_on_arm64_give_what_numpy_gives(chosen: list[str]) -> None:
    """Skipped, with the reason, where the emulated Python cannot be made: it comes from Debian.

    Emulated compiling takes minutes, so kernels are kept beside that Python: only new ones take so
    long.
    """
    made = subprocess.run([ROOT / "scripts" / "arm64-environment"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"scripts/arm64-environment: {made.stderr.strip().splitlines()[-1]}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TINYTORCH_CACHE_DIR", None)
    command = [made.stdout.strip(), str(CHECK), *chosen]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    where, *classes = map(json.loads, ran.stdout.splitlines())
    assert where == {"machine": "aarch64", "unit": "neon"}
    expected = chosen or list(runpy.run_path(str(CHECK))["CLASSES"])
    assert [c["class"] for c in classes] == expected
    for found in classes:
        assert found["problem"] is None, found
        assert found["kernels"] > 0, found


def test_the_check_finds_a_wrong_kernel_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs by emulation runs on this processor, too, and sees what is wrong."""
    check = runpy.run_path(str(CHECK))
    problem_of, classes = check["problem_of"], check["CLASSES"]
    assert host_vector_unit().name and problem_of(classes["scans"]) is None
    calls = iter([classes["scans"]() * 1.01, classes["scans"]()])
    assert "not [" in problem_of(lambda: next(calls))
    shapes = iter([classes["scans"](), classes["sums"]()])
    assert problem_of(lambda: next(shapes)) == "float32(33,), not float32(5, 300)"
