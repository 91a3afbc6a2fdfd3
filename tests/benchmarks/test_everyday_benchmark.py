"""The benchmark of lines between layers: each gives what PyTorch's does, and it runs."""

from __future__ import annotations

import pytest

import tinytorch
from tests.benchmarks.beside_torch import run, seconds_of
from tinytorch.replay.function import HOT


@pytest.mark.slow
def test_every_line_agrees_with_pytorch_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import everyday

    monkeypatch.setattr(everyday, "WARM", HOT + 2)  # the last calls run programs
    with tinytorch.using_backend("optimized"):
        names = [case.name for case in everyday.cases([*everyday.LINES, *everyday.IN_PLACE])]
    assert {name.rpartition(", ")[0] for name in names} == {*everyday.LINES, *everyday.IN_PLACE}
    assert sum(name.endswith("training") for name in names) > len(everyday.LINES) // 2


@pytest.mark.slow
def test_lines_are_compared_with_pytorch() -> None:
    only = "--only=x[:, 1];x *= 1"
    names = list(seconds_of("everyday.py", only))
    assert names == ["x[:, 1], forward", "x[:, 1], training", "x *= 1, forward"]
    shown = run("everyday.py", only).stdout
    assert "x[:, 1], training" in shown and "above 1.3 in" in shown
    assert run("everyday.py", "--only=Nothing").returncode == 2
