"""One page about a model."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.fx.small import mlp, squares
from tinytorch.fx.models import LoadedModel
from tinytorch.fx.profile import model_report
from tinytorch.fx.profile.model_report import EAGER, EXPORTED, OURS, REFUSED, ModelReport

pytestmark = pytest.mark.slow  # it tries every tracer


@pytest.fixture(scope="module")
def report() -> ModelReport:
    batch = (torch.ones(4, 8),)
    example = LoadedModel("mlp", mlp(1, 8), batch, loss=squares)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_report, "COMPILERS", ("eager", "<nowhere>"))
        return model_report.report_model(example, "a <small> net", "sgd")


def test_it_says_what_the_parts_say(report: ModelReport) -> None:
    sections = report.sections()
    assert report.optimization is not None and report.training is not None
    before, after = report.optimization.calls["eval"]
    assert sections["Size of the graph"][1] == [["eval", str(before), str(after)]]
    passes = [row[1] for row in sections["Passes"][1]]
    assert all(row[-1].endswith(".") for row in sections["Passes"][1])  # what it does
    assert passes == [r.name for r in report.optimization.results["eval"]]
    phases = [row[0] for row in sections["The training step"][1]]
    assert phases == list(report.training.phases) == ["forward", "backward", "optimizer"]
    assert all(len(row) == len(columns) for columns, rows in sections.values() for row in rows)


def test_the_contestants_are_measured_and_refusals_have_reasons(report: ModelReport) -> None:
    assert list(report.timings) == [EAGER, OURS, EXPORTED, "torch.compile(eager)"]
    assert set(report.peaks) == {EAGER, OURS, EXPORTED}
    assert report.peaks[EAGER] > 0
    assert list(report.refused) == ["torch.compile(<nowhere>)"]
    assert "nowhere" in report.refused["torch.compile(<nowhere>)"]
    tracers = {row[0] for row in report.sections()[REFUSED][1]}
    refusing = [v for v in report.diagnosis.verdicts.values() if v.status != "works"]
    assert {f"{v.tracer}: {v.status}" for v in refusing} <= tracers


def test_the_page_stands_alone(report: ModelReport, tmp_path: Path) -> None:
    report.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "a &lt;small&gt; net" in text and "torch.compile(&lt;nowhere&gt;)" in text
    assert "<small>" not in text and "<nowhere>" not in text
    assert "http" not in text and "<script" not in text
    assert all(f"<h2>{title}</h2>" in text for title in report.sections())
    assert "prefers-color-scheme: dark" in text
    assert '<th class="text">contestant</th><th>median</th>' in text  # numbers are on the right
    assert text.count('<td class="bar"') == len(report.timings)


def test_it_begins_with_who_is_how_fast(report: ModelReport) -> None:
    text = report.summary()
    assert f"with {EAGER} as 1: {OURS} " in text and "A training step takes" in text
    assert text in str(report) and html.escape(text) in report.render()


def test_reasons_name_files_without_the_folder_of_packages(report: ModelReport) -> None:
    refused = {"torch.compile(x)": "at /usr/lib/python3/site-packages/lib/model.py:3: if x:"}
    rows = replace(report, refused=refused).sections()[REFUSED][1]
    assert ["torch.compile(x)", "at lib/model.py:3: if x:"] in rows


def test_for_a_terminal_and_for_a_machine(report: ModelReport) -> None:
    text = str(report)
    assert "torch.compile(<nowhere>): " in text
    assert all(title in text for title in report.sections())
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["contestants"][EAGER]["speedup"] == 1
    assert report.training is not None
    assert facts["training"]["nodes"] == len(report.training.nodes)


class Branching(torch.nn.Module):
    """Chooses by a value, which no graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else x


def test_a_model_that_is_refused_gets_a_page_with_the_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_report, "COMPILERS", ("eager",))
    example = LoadedModel("branching", Branching(), (torch.ones(4, 8),), loss=squares)
    found = model_report.report_model(example, "branching", "sgd")
    assert found.training is None and found.optimization is None
    assert list(found.timings) == [EAGER, "torch.compile(eager)"]
    line = "return self.layer(x) if x.sum() > 0 else x"
    assert line in found.refused[OURS] and line in found.refused["the training step"]
    assert "Refused: GraphOptimizer, the training step" in found.summary()
    assert "Passes" not in found.sections() and line.replace(">", "&gt;") in found.render()
    assert json.loads(json.dumps(found.to_dict()))["training"] is None
