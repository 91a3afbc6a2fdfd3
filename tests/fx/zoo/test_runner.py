"""A run over many architectures: what is chosen, goes on, is tried again, and in which process."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo import child, runner
from tinytorch.fx.zoo.catalogue import SMALL, ZooError, catalogue, chosen
from tinytorch.fx.zoo.child import Limits
from tinytorch.fx.zoo.command import Zoo
from tinytorch.fx.zoo.runner import Record, ResultsError, in_child, read, run, versions

LIMITS = Limits(stage_seconds=60.0, model_seconds=120.0)


def test_after_a_stage_that_ends_its_process_another_takes_up_the_rest(
    monkeypatch: pytest.MonkeyPatch,
):
    asked = []
    sent = {"verdict": "bit-equal", "seconds": 4.0}
    late = {"verdict": "timeout", "seconds": 5.0}

    def one(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        asked.append((list(wanted), limits.model_seconds))
        built: list[tuple[str, object]] = [("model", {"class": "A"})]
        if "compile" in wanted:
            return [*built, ("forward", sent), ("compile", late)]
        return [*built, *((s, sent) for s in wanted)]

    monkeypatch.setattr(runner, "_in_one_child", one)
    stages = ["forward", "compile", "export", "joint"]
    found = list(in_child("a", stages, Limits(model_seconds=30.0)))
    assert asked == [(stages, 30.0), (["export", "joint"], 21.0)]
    assert [key for key, _ in found] == ["model", *stages]
    found = dict(in_child("a", stages, Limits(model_seconds=9.0)))
    assert len(asked) == 3 and found["joint"]["verdict"] == "timeout"  # nothing is left for it


def test_several_models_at_a_time_are_all_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def soon(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        time.sleep(0.02 * (name == "a"))
        return [("forward", {"verdict": "bit-equal", "seconds": 1.0})]

    monkeypatch.setattr(runner, "in_child", soon)
    names, told = ["a", "b", "c", "d"], []
    path = tmp_path / "zoo.jsonl"
    found = run(names, ["forward"], path, LIMITS, lambda *x: told.append(x[0]), jobs=3)
    assert list(found) == names and told == [1, 2, 3, 4]
    assert set(read(path)) == set(names)


def test_names_are_chosen_by_pattern_and_by_seed():
    names = catalogue()
    assert set(SMALL) <= set(names) and len(names) > 100
    assert chosen(names, ["bert"]) == ["transformers/bert"]
    assert chosen(names, sample=5, seed=1) == chosen(names, sample=5, seed=1)
    assert chosen(names, sample=5, seed=1) != chosen(names, sample=5, seed=2)
    assert chosen(names, sample=2, seed=1) == chosen(names, sample=5, seed=1)[:2]
    with pytest.raises(ZooError, match="no architecture fits nothing"):
        chosen(names, ["nothing"])


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Models are examined here, which takes no start of a process; what was asked for."""
    asked = []

    def directly(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        asked.append((name, list(wanted)))
        found: list[tuple[str, object]] = []
        child.examine(name, wanted, limits, lambda key, value: found.append((key, value)))
        return found

    monkeypatch.setattr(runner, "in_child", directly)
    return asked


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(
    tmp_path: Path, in_this_process: list[tuple[str, list[str]]]
):
    out = tmp_path / "zoo.jsonl"
    only = ["transformers/resnet", "transformers/layoutlmv2"]
    asked = Zoo(only, stages=["forward"], out=out)
    asked.run()
    assert asked.results().bad == []
    lines = out.read_text().splitlines()
    assert len(lines) == 3 and "versions" in lines[0]
    asked = replace(asked, stages=["forward", "export"])
    asked.run()
    assert in_this_process[2:] == [("transformers/resnet", ["export"])]  # what was missing
    found = asked.results().to_dict()
    assert found["architectures"] == 2 and found["ran"] == 1
    assert found["stages"] == {"forward": {"bit-equal": 1}, "export": {"bit-equal": 1}}
    with out.open("a") as file:
        file.write('{"name": "half a li')  # its writer was killed
    assert set(read(out)) == {"transformers/resnet", "transformers/layoutlmv2"}


def test_what_did_not_work_is_tried_again_and_what_did_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "zoo.jsonl"
    right, late = ({"verdict": v, "seconds": 1.0} for v in ("bit-equal", "timeout"))
    none = {"verdict": "not applicable", "seconds": 0.0}
    records = [
        Record("a", model={"class": "A"}, stages={"forward": right, "joint": late, "sgd": none}),
        Record("b", skipped="has too many parameters"),
        Record("c", model={"class": "C"}, stages={"forward": late, "joint": right, "sgd": right}),
    ]
    lines = [{"versions": versions()}, *(record.to_dict() for record in records)]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = []

    def one(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        asked.append((name, list(wanted)))
        return [("model", {"class": name}), *((stage, right) for stage in wanted)]

    monkeypatch.setattr(runner, "in_child", one)
    stages = ["forward", "joint", "sgd"]
    run(["a", "b"], stages, out, LIMITS)
    assert asked == []
    run(["a", "b"], stages, out, LIMITS, retry=True)
    assert asked == [("a", ["joint"]), ("b", stages)]
    known = read(out)
    assert not known["b"].skipped and known["a"].stages["joint"] == right
    assert known["c"].stages["forward"] == late  # nobody asked for it


def test_a_run_stops_when_its_time_is_over_and_refuses_stages_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def one(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        return [("skipped", "not here")]

    monkeypatch.setattr(runner, "in_child", one)
    asked = Zoo(sample=3, out=tmp_path / "zoo.jsonl", stop_after=1e-9, note="By hand.")
    asked.run()
    assert len(read(asked.out)) == 1 and "the time is over" in capsys.readouterr().err
    found = asked.results()
    assert "a random sample of 3 (seed 0)" in found.how and "of which 1 were reached" in found.how
    assert "By hand." in found.page() and len(found.records) == 1
    with pytest.raises(TinyTorchError, match="there is no stage 'fly'; there are forward, joint"):
        Zoo(stages=["fly"])


@pytest.mark.slow
def test_a_model_is_examined_in_a_process_of_its_own():
    found = dict(in_child("transformers/resnet", ["forward", "export"], LIMITS))
    assert found["model"]["class"] == "ResNetModel"
    assert found["forward"]["verdict"] == found["export"]["verdict"] == "bit-equal"


def test_results_of_other_versions_are_not_mixed(tmp_path: Path):
    out = tmp_path / "zoo.jsonl"
    out.write_text(json.dumps({"versions": {**versions(), "torch": "1.0"}}) + "\n")
    with pytest.raises(ResultsError, match="give another file with --out"):
        read(out)


def test_a_library_that_comes_later_adds_its_models_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def one(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        asked.append(name)
        if name == "left out" and len(asked) == 1:
            return [("skipped", "requires the timm library")]
        return [("forward", {"verdict": "bit-equal", "seconds": 1.0})]

    monkeypatch.setattr(runner, "in_child", one)
    monkeypatch.setattr(runner, "versions", lambda: {"torch": "2", "timm": "absent"})
    out = tmp_path / "zoo.jsonl"
    run(["left out"], ["forward"], out, LIMITS)
    monkeypatch.setattr(runner, "versions", lambda: {"torch": "2", "timm": "1.0"})
    run(["left out", "b"], ["forward"], out, LIMITS)
    assert asked == ["left out", "b"]
    assert runner.recorded_versions(out) == {"torch": "2", "timm": "1.0"}
    found = run(["left out", "b"], ["forward"], out, LIMITS, retry=True)
    assert asked == ["left out", "b", "left out"] and not found["left out"].skipped
    monkeypatch.setattr(runner, "versions", lambda: {"torch": "2", "timm": "2.0"})
    with pytest.raises(ResultsError, match="give another file"):
        read(out)


@pytest.mark.slow
def test_a_process_that_dies_says_in_which_stage():
    small = Limits(stage_seconds=60.0, model_seconds=60.0, memory_bytes=1)  # nothing can be made
    found = dict(in_child("transformers/bert", ["forward", "joint"], small))
    assert "skipped" in found or found["forward"]["verdict"] in ("memory", "crash")


def test_results_of_other_sources_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def one(name: str, wanted: list[str], limits: Limits) -> list[tuple[str, object]]:
        asked.append((name, list(wanted)))
        return [("model", {}), *((s, {"verdict": "bit-equal", "seconds": 1.0}) for s in wanted)]

    monkeypatch.setattr(runner, "in_child", one)
    out = tmp_path / "zoo.jsonl"
    monkeypatch.setattr(runner, "code_version", lambda: "old")
    run(["a", "b"], ["forward"], out, LIMITS)
    monkeypatch.setattr(runner, "code_version", lambda: "new")
    found = run(["a"], ["forward", "joint"], out, LIMITS)
    assert found["a"].codes == ["new", "old"] and asked[2:] == [("a", ["joint"])]
    found = run(["a", "b"], ["forward"], out, LIMITS, renew=True)
    assert asked[3:] == [("a", ["forward"]), ("b", ["forward"])]
    assert {n: r.codes for n, r in read(out).items()} == {"a": ["new"], "b": ["new"]}
    run(["a", "b"], ["forward"], out, LIMITS, renew=True)
    assert len(asked) == 5
