"""The model of the caches beside what is measured, with made-up measurements and with real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import blocking

    return blocking


def test_a_wrong_choice_is_a_loss_and_a_right_one_is_none(script: Any) -> None:
    long = script.Walk("A", 512, 4096)
    short = script.Walk("A", 16, 64)
    assert long.is_copied and not short.is_copied
    for walk, loss in ((long, 0.5), (short, 0.0)):  # the copy takes 3, the walk as it is 2
        assert script.Measurement(walk, direct=2.0, packed=2.0, copying=1.0).loss == loss
    assert script.Measurement(short, direct=4.0, packed=1.0, copying=1.0).loss == 1.0


@pytest.mark.slow
def test_it_runs() -> None:
    done = subprocess.run(
        [sys.executable, "blocking.py", "--rounds", "1", "--json"],
        cwd=BENCHMARKS, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert {walk["walk"]["operand"] for walk in found["walks"]} == {"A", "B"}
    for walk in found["walks"]:
        both = walk["direct"], walk["packed"] + walk["copying"]
        assert min(both) > 0
        assert walk["loss"] == pytest.approx(both[walk["copied"]] / min(both) - 1)
