from __future__ import annotations

import math

import numpy as np
import pytest

import tinytorch
from tito.predict import compare, look_at


def test_without_a_prediction_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    look_at(None, within=0.1)
    compare(None, 3.0, within=0.1)
    said = capsys.readouterr().out
    assert "No prediction yet" in said and "measured   3" in said and "predicted" not in said


@pytest.mark.parametrize(
    ("prediction", "measured", "verdict"),
    [
        (1, 1.05, "right: 4.8 % off, and 10 % were allowed"),
        (2.0, 1.0, "why?: 100.0 % off, and 10 % were allowed"),
        (1000.0, 1.0, "why?: 999 times off"),
        (0, np.float32(0.0), "right: 0.0 % off"),
        (math.inf, math.inf, "right"),
        (-1, 1, "why?: 200.0 % off"),
    ],
)
def test_numbers(
    prediction: float, measured: float, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    look_at(prediction, within=0.1)
    compare(prediction, measured, within=0.1)
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize("measured", [tinytorch.tensor(1.0), "1", None, True])
def test_what_an_author_measures_is_a_number(measured: object) -> None:
    with pytest.raises(ValueError, match="measured must be a number"):
        compare(None, measured, within=0.1)


def test_what_an_author_measures_is_one_of_the_choices() -> None:
    with pytest.raises(ValueError, match="measured must be one of 'a', 'b', not 'c'"):
        compare("a", "c", choices=["a", "b"])
