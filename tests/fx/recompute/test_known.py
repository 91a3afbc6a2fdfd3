"""A frontier is searched once; then it comes from disk, unless problem or code have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.fx.small import joint_of, mlp, problem_of
from tinytorch.fx.recompute import frontier, known
from tinytorch.fx.recompute.frontier import bytes_of, find_frontier, parse_budget
from tinytorch.fx.recompute.problem import RecomputeError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the strategies, each time that one is asked."""
    asked = []
    for name in ("segments", "mutwo"):
        honest = frontier.STRATEGIES[name]

        def counted(module, problem, name=name, honest=honest):
            asked.append(name)
            return honest(module, problem)

        monkeypatch.setitem(frontier.STRATEGIES, name, counted)
    monkeypatch.delitem(frontier.STRATEGIES, "min-cut")
    return asked


def find(depth: int = 3, width: int = 16):
    joint = joint_of(mlp(depth, width), (torch.ones(8, width),))
    problem = problem_of(joint.module)
    return find_frontier(joint.module, problem, ("segments", "mutwo"), remember=True)


def test_the_second_search_comes_from_disk_and_says_the_same(searches: list[str]):
    first = find()
    assert searches == ["segments", "mutwo"]
    second = find()
    assert searches == ["segments", "mutwo"]
    assert second.plans == first.plans and second.proposed == first.proposed


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
        known.save(tmp_path / "recompute" / f"{i}.json", [], {})
    assert len(list((tmp_path / "recompute").glob("*.json"))) == 3


def test_the_search_says_how_far_it_is():
    joint = joint_of(mlp(2, 16), (torch.ones(8, 16),))
    said: list[str] = []
    find_frontier(joint.module, problem_of(joint.module), ("mutwo",), progress=said.append)
    assert any("mutwo" in line for line in said) and any("improving" in line for line in said)


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
