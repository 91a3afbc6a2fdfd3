"""A frontier is searched once; then it comes from disk, unless problem or code have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.fx.small import joint_of, mlp, problem_of
from tinytorch.fx.recompute import known
from tinytorch.fx.recompute.known import known_frontier
from tinytorch.graph.recompute.frontier import Frontier


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the strategies, each time that one is asked."""
    asked = []
    for name in ("segments", "mutwo"):
        honest = known.STRATEGIES[name]

        def counted(problem, name=name, honest=honest):
            asked.append(name)
            return honest(problem)

        monkeypatch.setitem(known.STRATEGIES, name, counted)
    monkeypatch.delitem(known.STRATEGIES, "min-cut")
    return asked


def find(depth: int = 3, width: int = 16):
    joint = joint_of(mlp(depth, width), (torch.ones(8, width),))
    problem = problem_of(joint.module)
    return known_frontier(problem, ("segments", "mutwo"))


def test_the_second_search_comes_from_disk_and_says_the_same(searches: list[str]):
    first = find()
    assert searches == ["segments", "mutwo"]
    second = find()
    assert searches == ["segments", "mutwo"]
    assert second.plans == first.plans and second.proposed == first.proposed


@pytest.mark.slow
def test_another_problem_or_other_code_is_searched_again(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
):
    find()
    find(width=24)  # other bytes
    find(depth=4)
    assert len(searches) == 6
    monkeypatch.setattr(known, "_code", lambda: b"another version")
    find()
    assert len(searches) == 8


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("damage", ["", "{", '{"plans": [], "proposed": {}}', "peak"])
def test_a_damaged_file_is_searched_again(searches: list[str], tmp_path: Path, damage: str):
    first = find()
    (file,) = (tmp_path / "recompute").glob("*.json")
    whole = file.read_text()
    file.write_text(whole.replace(f", {first.plans[0].peak}, ", ", 7, ", 1)
                    if damage == "peak" else damage)  # fmt: skip
    assert file.read_text() != whole
    assert find().plans == first.plans
    assert len(searches) == 4


def test_the_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known, "KEPT", 3)
    for i in range(6):
        known.save(tmp_path / "recompute" / f"{i}.json", Frontier([], {}))
    assert len(list((tmp_path / "recompute").glob("*.json"))) == 3


def test_the_search_says_how_far_it_is():
    joint = joint_of(mlp(2, 16), (torch.ones(8, 16),))
    said: list[str] = []
    known_frontier(problem_of(joint.module), ("mutwo",), progress=said.append)
    assert any("mutwo" in line for line in said) and any("improving" in line for line in said)
