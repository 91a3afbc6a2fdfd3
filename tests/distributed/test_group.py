"""Every check of `programs`, on groups of 2 and 4 processes."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.distributed import programs
from tinytorch.distributed import launch


@lru_cache
def _results(ranks: int) -> list[dict[str, str]]:
    return launch(programs.all_checks, ranks, timeout=600.0)


@pytest.mark.parametrize("name", programs.CHECKS)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_on_a_group(name: str, ranks: int) -> None:
    for rank, found in enumerate(_results(ranks)):
        assert not found[name], f"rank {rank}: {found[name]}"


@pytest.mark.slow
def test_three_ranks_train_as_one_process() -> None:
    """A third is not exact, as a half and a quarter are."""
    launch(programs.averaging.ranks_train_as_one_process, 3)
