"""Kernels on 64-bit ARM, by emulation; all of them, and the compiled step, are checked by

python=$(scripts/arm64-environment)
$python -c "from tinytorch.testing.conformance import check_backend as check
print(*[r for r in check('optimized') if r.problem])"
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECK = """
import platform
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.testing.conformance import check_backend
print(platform.machine(), host_vector_unit().name)
for report in check_backend("optimized", ops=["matmul", "add"], examples=6):
    print(report.op, report.problem)
"""


@pytest.mark.slow(seconds=120)
def test_products_on_arm64_are_those_of_numpy() -> None:
    """Skipped, with the reason, where the emulated Python cannot be made: it comes from Debian."""
    made = subprocess.run([ROOT / "scripts" / "arm64-environment"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    python = made.stdout.strip()
    found = subprocess.run([python, "-c", CHECK], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["aarch64 neon", "matmul None", "add None"]
