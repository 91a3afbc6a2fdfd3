"""The benchmark of layers: every one gives what PyTorch's does, and it runs."""

from __future__ import annotations

import pytest

import tinytorch
from tests.benchmarks.beside_torch import run, seconds_of
from tinytorch.replay.function import HOT


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
    options = "--only=LSTMCell,GELU", "--sizes=small"
    found = seconds_of("layers.py", *options)
    assert found.keys() == {
        f"{name}, small, {what}"
        for name in ("LSTMCell", "GELU")
        for what in ("forward", "training")
    }
    assert all(seconds.keys() == {"ours", "torch"} for seconds in found.values())
    shown = run("layers.py", *options).stdout
    assert "GELU" in shown and "training, torch" in shown
    for wrong in ("--only=Nothing", "--sizes=huge"):
        assert run("layers.py", wrong).returncode == 2
