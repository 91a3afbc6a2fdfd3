"""Predict, then run: what a reader has said beside what is measured, in the cells of lessons.

look_at(prediction, within=0.1)
...
compare(prediction, measured, within=0.1)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NUMBERS = (int, float, np.integer, np.floating)


def look_at(
    prediction: object, *, within: float | None = None, choices: Sequence[str] = ()
) -> None:
    """Look at a prediction before its experiment is run.

    Args:
        prediction: None if there is none, which is said, and no error.
        within: how far a right number may be off; None with choices.
        choices: of which it must be one; () if it is to be a number.

    Raises:
        ValueError: it is not of the kind that is asked for.
    """
    if prediction is None:
        print("No prediction yet: what you say before you see the answer, you keep.")
    elif choices and _choice(prediction, choices) is None:
        raise ValueError(f"prediction must be one of {_listed(choices)}, not {prediction!r}")
    elif not choices and _number(prediction) is None:
        raise ValueError(f"prediction must be a number, such as 0.5, not {prediction!r}")


def compare(
    prediction: object,
    measured: object,
    *,
    within: float | None = None,
    choices: Sequence[str] = (),
) -> None:
    """Print a prediction beside what was measured.

    Args:
        within: a number is right if it is at most this much off, relative to what was measured.

    Raises:
        ValueError: what was measured is not of the kind that the lesson asks for.

    >>> compare(2.2, 2.302, within=0.1)
    predicted  2.2
    measured   2.302
    right: 4.4 % off, and 10 % were allowed
    """
    if choices:
        found = _choice(measured, choices)
        if found is None:
            raise ValueError(f"measured must be one of {_listed(choices)}, not {measured!r}")
        verdict = "right" if _choice(prediction, choices) == found else "not what you said: why?"
        _show(prediction, found, verdict)
        return
    number, said = _number(measured), _number(prediction)
    if number is None or within is None:
        raise ValueError(f"measured must be a number (of a tensor: .item()), not {measured!r}")
    verdict = ""
    if said is not None:
        off = 0.0 if said == number else abs(said - number) / abs(number or 1)
        right = off <= within
        far = f"{off:,.0f} times" if off >= 10 else f"{100 * off:.1f} %"
        verdict = f"{'right' if right else 'why?'}: {far} off, and {100 * within:g} % were allowed"
    _show(prediction, f"{number:.4g}", verdict)


def _show(prediction: object, measured: str, verdict: str) -> None:
    if prediction is not None:
        print(f"predicted  {prediction}")
    print(f"measured   {measured}")
    if prediction is not None:
        print(verdict)


def _number(value: object) -> float | None:
    is_number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _choice(value: object, choices: Sequence[str]) -> str | None:
    """The choice that is meant: capitals and spaces around it do not count."""
    if not isinstance(value, str):
        return None
    return next((c for c in choices if c.strip().lower() == value.strip().lower()), None)


def _listed(choices: Sequence[str]) -> str:
    return ", ".join(map(repr, choices))
