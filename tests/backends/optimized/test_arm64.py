"""Kernels on 64-bit ARM, by emulation: products, elementwise ops, sums and a compiled step.

Emulated compiling takes most of the time, so a few ops stand for their kinds. All of them:

python=$(scripts/arm64-environment)
$python -c "from tinytorch.testing.conformance import check_backend as check
print(*[r for r in check('optimized') if r.problem])"
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OPS = ["matmul", "conv2d", "add", "relu", "maximum", "sum"]
CHECK = f"""
import json, platform
import numpy as np
import tinytorch
from tinytorch import nn, optim
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.nn import functional as F
from tinytorch.testing.conformance import check_backend

tinytorch.set_backend("optimized")
problems = {{r.op: r.problem for r in check_backend("optimized", ops={OPS}, examples=4)}}

def losses(compile):
    tinytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    step = compile(step)
    draw = np.random.default_rng(0)
    x = tinytorch.tensor(draw.standard_normal((32, 16)).astype(np.float32))
    y = tinytorch.tensor(draw.integers(0, 4, 32))
    return [step(x, y).item() for _ in range(4)]

print(json.dumps(dict(
    machine=platform.machine(), unit=host_vector_unit().name, problems=problems,
    eager=losses(lambda step: step), compiled=losses(tinytorch.compile),
)))
"""


@pytest.mark.slow(seconds=120)
def test_kernels_on_arm64_give_what_numpy_gives(tmp_path: Path) -> None:
    """Skipped, with the reason, where the emulated Python cannot be made: it comes from Debian."""
    made = subprocess.run([ROOT / "scripts" / "arm64-environment"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"scripts/arm64-environment: {made.stderr.strip().splitlines()[-1]}")
    environment = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [made.stdout.strip(), "-c", CHECK], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["machine"], found["unit"]) == ("aarch64", "neon")
    assert found["problems"] == dict.fromkeys(OPS)
    assert found["compiled"] == pytest.approx(found["eager"], rel=1e-5)
    assert found["compiled"][-1] < found["compiled"][0]
