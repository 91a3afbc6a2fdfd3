"""The benchmarks of real models run and write what they say, on small models."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tinytorch.bench import CANNOT_RUN_HERE

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert load("gpu").main(["--out", str(tmp_path / "results")]) == CANNOT_RUN_HERE
    assert "there is no CUDA device here" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_gpu_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cpu", "--small", "--no-compile", "--out", str(tmp_path)]
    sections = ["inference", "step", "profiler", "checkpoint"]
    assert load("gpu").main([*sections, "--model", "hf:gpt2", *arguments]) == 0
    (table,), (data,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    assert table.stem == data.stem and table.stem.startswith("cpu-")
    rows = json.loads(data.read_text())["rows"]
    assert {row["section"] for row in rows} == set(sections)
    assert all(row["seconds"] > 0 and row["peak_bytes"] > 0 for row in rows)
    assert capsys.readouterr().out.strip() == table.read_text().strip()
    assert all(row["contestant"] in table.read_text() for row in rows)
    peaks = {r["contestant"]: r["peak_bytes"] for r in rows if r["section"] == "step"}
    assert peaks["optimized"] < peaks["captured"]


def test_gpu_names_its_sections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load("gpu").main(["steps"])
    assert "there is no section 'steps'; there are inference, step" in capsys.readouterr().err


@pytest.mark.slow
def test_inference_finds_missed_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    inference = load("inference")
    example = inference.load("hf:gpt2", batch=1, sequence=8, image=32, small=True)
    row = inference.measure(example, rounds=2, with_compile=False)
    accuracy = row.reports["ours"].accuracy
    assert accuracy is not None and accuracy.optimized < 1e-5
    assert row.gflop > 0 and row.peak > 0 and row.bound * row.share("eager") == pytest.approx(1)
    assert json.dumps(row.to_dict())
    monkeypatch.setitem(inference.LIMITS, "hf:gpt2", 0.0)
    monkeypatch.setattr(inference, "MOST_PASS_SECONDS", 1e3)
    assert row.failures() == []
    monkeypatch.setitem(inference.LIMITS, "hf:gpt2", 1e3)
    monkeypatch.setattr(inference, "MOST_PASS_SECONDS", 0.0)
    speed, passes = row.failures()
    assert "< 1000.0 times eager" in speed and "passes of ours take" in passes
    assert "gpt2" in inference.table([row])
