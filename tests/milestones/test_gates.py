from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import tinytorch
from tests.milestones.conftest import ROOT
from tinytorch import nn


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module milestones/gates.py, with a command line that asks for JSON."""
    spec = importlib.util.spec_from_file_location("gates", ROOT / "milestones" / "gates.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gates", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["main.py", "--json"])
    monkeypatch.setattr(tinytorch.backends, "current", tinytorch.backends.current)
    return module


def ended(milestone, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:  # type: ignore[no-untyped-def,type-arg]
    with pytest.raises(SystemExit) as end:
        milestone.finish(answer=42)
    return end.value.code, json.loads(capsys.readouterr().out)  # type: ignore[return-value]


def test_one_failed_gate_fails_the_milestone(
    gates: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    milestone = gates.Milestone("a test", usual_seconds=5, backend="numpy")
    milestone.at_least("good", 0.5, 0.5)
    code, report = ended(milestone, capsys)
    assert (code, report["passed"], report["results"]) == (0, True, {"answer": 42})
    milestone.at_least("bad", 0.49, 0.5)
    code, report = ended(milestone, capsys)
    assert (code, report["passed"]) == (1, False)
    assert [gate["passed"] for gate in report["gates"]] == [True, False]


@pytest.mark.parametrize(
    ("change", "holds"),
    [(0.0, False), (1e-5, False), (0.1, True), (np.nan, False), (np.inf, False)],
)
def test_a_layer_must_have_moved_and_be_finite(
    gates: ModuleType, change: float, holds: bool
) -> None:
    milestone = gates.Milestone("a test", usual_seconds=5, backend="numpy")
    model = nn.Linear(3, 2)
    before = gates.values(model)
    with tinytorch.no_grad():
        model.weight[1, 2] += change
    milestone.moved(before, model)
    assert [(gate.name, gate.passed) for gate in milestone.gates] == [
        ("weight moved", holds),
        ("bias moved", False),
    ]


@pytest.mark.parametrize(("ours", "holds"), [(1.0, True), (1.0009, True), (1.0011, False)])
def test_numbers_must_agree(gates: ModuleType, ours: float, holds: bool) -> None:
    milestone = gates.Milestone("a test", usual_seconds=5, backend="numpy")
    milestone.agree("number", ours, 1.0, 1e-3)
    milestone.agree("nothing", float("nan"), 1.0, 1e-3)
    assert [gate.passed for gate in milestone.gates] == [holds, False]


def test_the_loss_in_numpy_is_pytorchs(gates: ModuleType, rng: np.random.Generator) -> None:
    scores, labels = rng.standard_normal((7, 4)) * 50, rng.integers(0, 4, 7)
    expected = torch.nn.functional.cross_entropy(torch.tensor(scores), torch.tensor(labels)).item()
    assert gates.log_likelihood_loss(scores, labels) == pytest.approx(expected, rel=1e-12)


def test_accuracy_counts_the_highest_score_and_leaves_training_on(gates: ModuleType) -> None:
    model = nn.Identity()
    scores = tinytorch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    labels = tinytorch.tensor([1, 0, 0, 0])
    assert gates.accuracy(model, scores, labels) == 0.75
    assert model.training
