"""The benchmark of small models: their losses are PyTorch's, eager and compiled, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import tinytorch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_losses_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    import models

    monkeypatch.setattr(models, "WARM", 0)
    monkeypatch.setattr(models, "COMPARED", 8)
    with tinytorch.using_backend("optimized"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's encoder says which way it takes
        assert [case.name for case in models.cases(list(models.MODELS))] == list(models.MODELS)


@pytest.mark.slow
def test_models_are_compared_with_pytorch() -> None:
    command = [sys.executable, "models.py", "--rounds=2", "--only=autoencoder"]
    done = subprocess.run(
        [*command, "--json"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["name"] == "autoencoder"
    assert result["seconds"].keys() == {"ours", "compiled", "torch"}
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert "autoencoder" in done.stdout and "PyTorch" in done.stdout
    wrong = subprocess.run([*command[:2], "--only=Nothing"], cwd=BENCHMARKS, check=False)
    assert wrong.returncode == 2
