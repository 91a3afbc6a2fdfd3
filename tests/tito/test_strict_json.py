from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tito import console, strict_json


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def test_what_is_no_finite_number_is_null() -> None:
    value = {
        "loss": math.nan,
        "bounds": [-math.inf, 0.5, {"most": np.float64("inf")}],
        "text": "NaN",
    }
    found = json.loads(strict_json.dumps(value), parse_constant=_refuse)
    assert found == {"loss": None, "bounds": [None, 0.5, {"most": None}], "text": "NaN"}


def test_numbers_and_texts_come_back_as_they_were() -> None:
    value = {
        "pi": math.pi,
        "least": 5e-324,
        "most": 1.7976931348623157e308,
        "count": 2**70,
        "é": None,
    }
    assert json.loads(strict_json.dumps(value)) == value


def test_commands_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"loss": math.nan})
    assert json.loads(capsys.readouterr().out, parse_constant=_refuse) == {"loss": None}
