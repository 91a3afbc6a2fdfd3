"""What a simulation says to people and machines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.fx.small import mlp
from tinytorch.fx import checkpoint, simulate_swapping
from tinytorch.fx.models import ModelError
from tinytorch.fx.recompute.swap_report import BOTH, EVERYTHING, RECOMPUTED, SwapReport
from tinytorch.graph.recompute.problem import RecomputeError

BATCH = (torch.ones(64, 32),)


@pytest.fixture(scope="module")
def report() -> SwapReport:
    return simulate_swapping(mlp(4), BATCH, 0.6, 1e12)


def test_the_plans_are_within_the_budget(report: SwapReport) -> None:
    whole = report.plans[EVERYTHING]
    assert report.limit == int(0.6 * whole.peak)
    assert list(report.plans) == [EVERYTHING, RECOMPUTED, BOTH]
    assert report.lowest <= report.plans[BOTH].peak <= report.limit
    assert report.plans[RECOMPUTED].peak <= report.limit
    assert whole.seconds <= report.plans[BOTH].seconds <= report.plans[RECOMPUTED].seconds
    assert report.plans[BOTH].transfers  # a bus this fast hides every copy


def test_the_simulation_and_checkpoint_see_the_same_graph(report: SwapReport) -> None:
    compiled = checkpoint(mlp(4), BATCH, 0.6).compiled(BATCH)
    assert compiled.frontier.everything.peak == report.plans[EVERYTHING].peak
    assert compiled.plan.peak <= report.limit


def test_the_text_and_the_figures(report: SwapReport) -> None:
    text = str(report)
    assert "1000 GB/s to the host and back (simulated)" in text
    for name in (EVERYTHING, RECOMPUTED, BOTH, "goes out", "is back"):
        assert name in text
    facts = report.to_dict()
    transfers = facts["plans"][BOTH]["transfers"]
    assert sum(t["nbytes"] for t in transfers) > 0
    assert all(t["out"][1] <= t["back"][0] for t in transfers)


def test_the_plot_has_the_limit(report: SwapReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.plot(tmp_path / "own.svg", 1 << 20)
    report.plot(tmp_path / "budget.svg")
    own, budget = ((tmp_path / f"{name}.svg").read_text() for name in ("own", "budget"))
    assert "<!-- limit, 1 MiB -->" in own
    assert "<!-- limit, 1 MiB -->" not in budget
    assert "<!-- limit, " in budget


def test_bad_input_is_refused_before_the_work() -> None:
    with pytest.raises(RecomputeError, match=r"a budget of 7 is a fraction"):
        simulate_swapping(nn.Identity(), BATCH, 7.0, 1e9)
    with pytest.raises(RecomputeError, match="bandwidth of -1 bytes/s"):
        simulate_swapping(nn.Identity(), BATCH, 0.5, -1)
    with pytest.raises(ModelError):
        simulate_swapping(nn.Identity(), BATCH, 0.5, 1e9)
