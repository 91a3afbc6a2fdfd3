"""The benchmark of layers: every one gives what PyTorch's does, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_every_layer_agrees_with_pytorch_before_it_is_timed() -> None:
    import layers

    with tinytorch.using_backend("optimized"):
        names = [case.name for case in layers.cases(list(layers.LAYERS))]
    assert names == [f"{n}, {what}" for n in layers.LAYERS for what in ("forward", "training")]


@pytest.mark.slow
def test_layers_are_compared_with_pytorch() -> None:
    command = [sys.executable, "layers.py", "--rounds=2", "--only=LSTMCell,GELU"]
    done = subprocess.run(
        [*command, "--json"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = {r["name"]: r["seconds"] for r in json.loads(done.stdout)["results"]}
    assert results.keys() == {
        f"{name}, {what}" for name in ("LSTMCell", "GELU") for what in ("forward", "training")
    }
    assert all(seconds.keys() == {"ours", "torch"} for seconds in results.values())
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert "GELU" in done.stdout and "training, torch" in done.stdout
    wrong = subprocess.run([*command[:2], "--only=Nothing"], cwd=BENCHMARKS, check=False)
    assert wrong.returncode == 2
