"""The benchmark of small models: their losses are PyTorch's, eager and compiled, and it runs."""

from __future__ import annotations

import warnings

import pytest

import tinytorch
from tests.benchmarks.beside_torch import run, seconds_of


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
    only = "--only=autoencoder"
    found = seconds_of("models.py", only)
    assert list(found) == ["autoencoder"]
    assert found["autoencoder"].keys() == {"ours", "compiled", "torch"}
    shown = run("models.py", only).stdout
    assert "autoencoder" in shown and "PyTorch" in shown
    assert run("models.py", "--only=Nothing").returncode == 2
