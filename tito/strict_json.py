"""JSON that every reader takes: the standard has no NaN, and Python's `json` writes one."""

from __future__ import annotations

import json
from typing import Any


def dumps(value: Any, indent: int | None = 2) -> str:
    """The text of a value; null stands for a number that is not finite.

    >>> dumps({"loss": float("nan"), "best": 0.5}, indent=None)
    '{"loss": null, "best": 0.5}'
    """
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent, allow_nan=False)
