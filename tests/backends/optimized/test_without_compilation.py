"""Kernels that are not compiled, as a debugger steps through them, give the same results."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.backends.optimized.child import run_script

TRAINING = """
import numpy as np
import tinytorch
from tinytorch import nn


def trained(backend):
    with tinytorch.using_backend(backend):
        tinytorch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(12, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(8, 4),
        )
        optimizer = tinytorch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = tinytorch.randn(5, 1, 6, 6), tinytorch.randint(4, (5,))
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


np.testing.assert_allclose(trained("optimized"), trained("numpy"), 1e-4, 1e-5)
print("agree")
"""


def test_a_model_is_trained() -> None:
    assert run_script(TRAINING, NUMBA_DISABLE_JIT="1") == "agree"


@pytest.mark.slow
def test_every_op_conforms() -> None:
    suite = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow"]
    process = subprocess.run(
        [sys.executable, *suite, "tests/backends/test_conformance.py", "-k", "optimized"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
