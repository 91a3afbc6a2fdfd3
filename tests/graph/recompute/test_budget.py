"""How a memory budget is written."""

from __future__ import annotations

import pytest

from tinytorch.graph.recompute.budget import bytes_of, parse_budget
from tinytorch.graph.recompute.problem import RecomputeError


@pytest.mark.parametrize(
    ("budget", "parsed"),
    [(0.5, 0.5), (1.0, 1.0), (4096, 4096), ("512MiB", 512 << 20), ("0.25", 0.25), ("2 kB", 2000),
     ("1.5gib", 3 << 29)],
)  # fmt: skip
def test_budgets(budget: object, parsed: object):
    assert parse_budget(budget) == parsed and type(parse_budget(budget)) is type(parsed)


@pytest.mark.parametrize(
    ("budget", "said"),
    [(7.0, "a budget of 7 is a fraction.*at most 1"), ("a lot", "'a lot' is no budget"),
     ("7 apples", "no budget"), (0.0, "above 0"), (-5, "must be above 0"), (0, "above 0"),
     (None, "None is no budget"), (True, "no budget"), ("1.5", "at most 1")],
)  # fmt: skip
def test_what_is_no_budget_is_refused(budget: object, said: str):
    with pytest.raises(RecomputeError, match=said):
        parse_budget(budget)


def test_a_budget_in_bytes():
    assert bytes_of("0.5", 100) == 50 and bytes_of("1KiB", 100) == 1024
