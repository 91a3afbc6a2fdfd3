"""When results are the reference's, and what is kept and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tito.ladder import drawing, history
from tito.ladder.measure import Measured, difference, ratio
from tito.ladder.report import rows
from tito.ladder.tiers import TIERS, beside
from tito.workspace.folder import Workspace, WorkspaceError

START = {"state/w": np.zeros(4), "batch/0": np.ones(2)}
EXPECTED = {"losses": np.array([2.0, 1.5]), "state/w": np.full(4, 0.1)}


def changed(**values: Any) -> dict[str, Any]:
    return {**EXPECTED, **{key.replace("__", "/"): value for key, value in values.items()}}


def test_rounding_is_no_difference() -> None:
    got = changed(losses=np.array([2.0, 1.50001]), state__w=np.full(4, 0.1001))
    assert difference(got, EXPECTED, START) == ""


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (changed(losses=np.array([2.0, 1.51])), "the loss of step 2 is 1.51, and the reference's"),
        (changed(losses=np.array([2.0, np.nan])), "the loss of step 2 is nan"),
        (changed(losses=np.array([2.0])), "1 losses instead of 2"),
        (changed(state__w=np.full(4, 0.11)), "after 3 steps w is 0.02 from the reference's"),
        (changed(state__w=np.full(4, np.nan)), "w is nan from"),
        (changed(state__w=np.zeros(3)), "w has the shape (3,) instead of (4,)"),
        (changed(state__v=np.zeros(3)), "other parameters than the reference's: state/v"),
    ],
)
def test_a_difference_is_named(got: dict[str, Any], says: str) -> None:
    assert says in difference(got, EXPECTED, START)


def test_a_ratio_is_the_median_over_the_rounds() -> None:
    slow = Measured(TIERS[0], cpu=[2.0, 4.0, 90.0], wall=[1.0] * 3)
    fast = Measured(TIERS[1], cpu=[1.0, 2.0, 3.0], wall=[1.0] * 3)
    assert ratio(slow, fast) == 2
    columns, table = rows([slow, fast])
    assert columns == ["tier", "step", "x loops", "x below", "what runs"]
    assert table == [
        ["loops", "4 s", "1", "", "plain Python loops (02 tensor)"],
        ["numpy", "2 s", "2", "2", "NumPy for every op (11 backends)"],
    ]


def test_several_threads_are_timed_by_the_wall_clock() -> None:
    found = Measured(TIERS[0], wall=[2.0, 4.0], cpu=[5.0, 7.0], clock="wall")
    assert found.seconds == 3 and found.as_json()["clock"] == "wall"


def test_a_registered_backend_races_once() -> None:
    assert [tier.name for tier in beside("optimized")] == ["loops", "numpy", "optimized"]


def result(step: str, **fast: float) -> dict[str, Any]:
    found = [
        {"tier": name, "seconds": 1 / x, "times_as_fast": x, "wall": [1 / x]}
        for name, x in fast.items()
    ]
    return {"step": step, "tiers": found}


def test_the_history_survives_a_line_that_was_not_finished(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    history.path_of(workspace).parent.mkdir()
    assert history.load(workspace, "cnn") == []
    history.add(workspace, result("cnn", loops=1.0))
    with history.path_of(workspace).open("a") as stream:
        stream.write('{"step": "cnn", "tiers\n')
    history.add(workspace, result("mlp", loops=1.0))
    history.add(workspace, result("cnn", loops=1.0, mine=9.0))
    first, second = history.load(workspace, "cnn")
    assert [len(first["tiers"]), len(second["tiers"])] == [1, 2]
    assert "wall" not in second["tiers"][0]


@pytest.mark.slow
def test_the_picture_has_a_bar_for_each_tier_that_was_timed(tmp_path: Path) -> None:
    now = result("cnn", loops=1.0, mine=20.0)
    now["tiers"][1]["share"] = {"flops": 10, "own_flops": 5}
    now["tiers"].append({"tier": "torch", "status": "absent"})
    written = drawing.draw([result("cnn", mine=30.0), now], "a step", tmp_path / "ladder")
    assert [path.name for path in written] == ["ladder.svg", "ladder.png"]
    svg = written[0].read_text()
    assert svg.count(f"fill: {drawing.OURS}") == 2
    assert svg.count(f"fill: {drawing.YOURS}") == 2
    assert drawing.BEFORE in svg
    assert svg.count("<!-- measurement -->") == 1
    drawing.draw([now], "a step", tmp_path / "ladder")
    assert "<!-- measurement -->" not in written[0].read_text()


def test_there_must_be_something_to_draw(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no tier was timed"):
        drawing.draw([{"tiers": [{"tier": "mine"}]}], "a step", tmp_path / "ladder")
