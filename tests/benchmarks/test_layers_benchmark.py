"""The benchmark of layers: every one gives what PyTorch's does, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch
from tinytorch.replay.function import HOT

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_every_layer_agrees_with_pytorch_before_it_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import layers

    monkeypatch.setattr(layers, "WARM", HOT + 2)  # the last calls run programs
    with tinytorch.using_backend("optimized"):
        known = list(layers.LAYERS["small"])
        names = [case.name for case in layers.cases(known)]
    assert names == [f"{n}, small, {what}" for n in known for what in ("forward", "training")]
    assert {*layers.LAYERS["large"]} == {*known}


@pytest.mark.slow
def test_layers_are_compared_with_pytorch() -> None:
    command = [sys.executable, "layers.py", "--rounds=2", "--only=LSTMCell,GELU", "--sizes=small"]
    done = subprocess.run(
        [*command, "--json"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = {r["name"]: r["seconds"] for r in json.loads(done.stdout)["results"]}
    assert results.keys() == {
        f"{name}, small, {what}"
        for name in ("LSTMCell", "GELU")
        for what in ("forward", "training")
    }
    assert all(seconds.keys() == {"ours", "torch"} for seconds in results.values())
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert "GELU" in done.stdout and "training, torch" in done.stdout
    for wrong in ("--only=Nothing", "--sizes=huge"):
        assert subprocess.run([*command[:2], wrong], cwd=BENCHMARKS, check=False).returncode == 2
