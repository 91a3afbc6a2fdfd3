"""Records of machines, and the page that is made of them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tinytorch.bench import CANNOT_RUN_HERE
from tinytorch.jit import cpu

ROOT = Path(__file__).parents[2]
CACHE = {"size": 32768, "ways": 8, "line": 64}


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "machines.py")))


def measured(unit: str, share: float, disturbed: bool = False) -> dict[str, Any]:
    return {
        "processor": {
            "model": "Made-up (TM) 9", "core": "madeup9", "vector_unit": unit,
            "caches": {"L1": CACHE, "L2": {**CACHE, "size": 1 << 20}}, "versions": {"numpy": "2.4"},
        },
        "peak_flops": 1e11, "bandwidth": 2e10,
        "results": [
            {"group": "GEMM", "name": "10x10x10 NN", "flops": 1e9,
             "seconds": {"ours": 0.01 / share}, "peak": 1e11, "share": share,
             "ratios": {"numpy": 1.23412, "torch": 2.0}, "disturbed": disturbed},
            {"group": "memory-bound", "name": "gelu", "seconds": {"ours": 1.0}, "flops": None,
             "ratios": {"torch": 1.5}, "disturbed": False},
        ],
    }  # fmt: skip


def test_a_record_has_a_part_for_each_vector_unit(machines: Any) -> None:
    record = machines.make_record([measured("avx512", 0.8), measured("avx2", 0.5)], "2026-01-02")
    assert record["model"] == "Made-up (TM) 9" and record["date"] == "2026-01-02"
    assert "vector_unit" not in record and list(record["units"]) == ["avx512", "avx2"]
    rows = record["units"]["avx512"]["results"]["GEMM"]
    assert rows == {"10x10x10 NN": {"numpy": 1.234, "torch": 2.0, "share": 0.8}}
    assert machines.file_name(record) == "made-up-tm-9-madeup9.json"


def test_faster_than_the_peak_is_an_error(machines: Any) -> None:
    with pytest.raises(ValueError, match=r"10x10x10 NN takes 111% of a peak of 100 Gflop/s"):
        machines.make_record([measured("avx2", 1.11)], "2026-01-02")


def test_a_page_has_all_machines_side_by_side(machines: Any) -> None:
    first = machines.make_record([measured("avx512", 0.8), measured("avx2", 0.5)], "2026-01-02")
    second = machines.make_record([measured("neon", 0.5, disturbed=True)], "2026-01-03")
    page = machines.page([first, second])
    titles = "madeup9, AVX-512 | madeup9, AVX2 | madeup9, NEON |"
    assert f"| Share of the peak | {titles}" in page  # in short
    assert "| GEMM | 80% | 50% | 50% |" in page
    assert f"| GEMM | {titles}" in page  # each case
    assert "| 10x10x10 NN | 80% | 50% | 50% |" in page
    assert "| 10x10x10 NN | 1.23 | 1.23 | 1.23 |" in page
    assert "| gelu | 1.50 | 1.50 | 1.50 |" in page
    facts = "Made-up (TM) 9 | 100 | 20 | 32 KiB, 8 ways | 1 MiB, 8 ways"
    assert f"| madeup9, NEON | {facts} | 1 of 2 cases |" in page


def test_a_page_says_the_median_the_range_and_what_is_slower(machines: Any) -> None:
    found = measured("avx2", 0.5)
    (product, _) = found["results"]
    for i, ratio in enumerate((0.5, 0.8, 2.0)):
        ratios = {"numpy": ratio, "blas": 1.0, "torch": 1.5 - ratio}
        found["results"].append({**product, "name": f"case {i}", "ratios": ratios})
    found["results"].append({**product, "group": "training", "name": "MLP"})
    page = machines.page([machines.make_record([found], "2026-01-02")])
    assert "| GEMM | 1.02 (0.50 to 2.00) |" in page
    assert "**madeup9, AVX2**: 3 of 6 cases" in page
    slower = page[page.index("## Where ours is slower") :]
    assert slower.index("- GEMM case 2: PyTorch -0.50") < slower.index("- GEMM case 0: NumPy 0.50")
    assert "- GEMM case 1: NumPy 0.80, PyTorch 0.70" in slower
    assert "OpenBLAS 1.00" not in slower
    assert "## eager training step" in page


MODELLED = {
    "llvm_mca": "19.1",
    "results": [
        {"cpu": "apple-m1", "model": "Cyclone", "unit": "neon", "rows": 6, "vectors": 4,
         "ports": 3.0, "busy": 0.96, "measured": None},
    ],
}  # fmt: skip


@pytest.mark.parametrize("has_llvm_mca", [True, False])
def test_all_is_measured_with_each_vector_unit(
    machines: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    has_llvm_mca: bool,
) -> None:
    asked = []

    def run(command: list[str], **options: Any) -> Any:
        asked.append(command[1:])
        hidden = any(part.endswith("without.py") for part in command)
        steps = [{**measured("", 0.02)["results"][0], "group": "compiled", "name": "MLP"}]
        answer: dict[str, Any] = {"results": steps}
        if any(part.endswith("kernels.py") for part in command):
            answer = measured("avx2" if hidden else "avx512", 0.02)
        if any(part.endswith("inner_loop.py") for part in command):
            if not has_llvm_mca:
                raise subprocess.CalledProcessError(CANNOT_RUN_HERE, command)
            answer = MODELLED
        return SimpleNamespace(stdout=json.dumps(answer))

    space = machines.main.__globals__
    monkeypatch.setitem(space, "RESULTS", tmp_path / "results")
    page = tmp_path / "machines.md"
    monkeypatch.setitem(space, "PAGE", page)
    monkeypatch.setitem(space, "read", lambda *folder: [])
    monkeypatch.setattr(space["subprocess"], "run", run)
    monkeypatch.setattr(sys, "argv", ["machines.py", "--record", "--json"])
    machines.main()
    (kept,) = (tmp_path / "results").glob("made-up*.json")
    units = json.loads(kept.read_text())["units"]
    assert list(units) == ["avx512", "avx2"]
    assert list(units["avx2"]["results"]) == ["GEMM", "memory-bound", "compiled step"]
    assert len(asked) == 7 and "--no-torch-compile" in asked[2]
    assert [Path(each[0]).name for each in asked[3:]] == [*["without.py"] * 3, "inner_loop.py"]
    assert (
        "| apple-m1 | Cyclone | NEON | 6 x 4 | 3 | 96% |  |" in page.read_text()
    ) is has_llvm_mca
    assert "kernels, without avx512 ..." in capsys.readouterr().err


def test_an_older_llvm_mca_does_not_replace_what_a_newer_one_said(
    machines: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    space, newer = machines.model_processors.__globals__, {**MODELLED, "unknown": []}
    older = {"llvm_mca": "14.0", "unknown": ["llvm-mca 14.0 has no model of znver4"], "results": []}
    answers = iter([newer, older, {**newer, "llvm_mca": "20.1"}])
    monkeypatch.setitem(space, "RESULTS", tmp_path)
    monkeypatch.setitem(space, "ask", lambda *asked: next(answers))
    for version in ("19.1", "19.1", "20.1"):
        machines.model_processors()
        assert machines.modelled()["llvm_mca"] == version
    assert capsys.readouterr().err == "llvm-mca 14.0 has no model of znver4\nkept: 19.1\n"


def test_the_page_in_the_docs_is_made_of_the_files(machines: Any) -> None:
    records = machines.read()
    assert records, "no machine is recorded: tito bench --record"
    assert machines.PAGE.read_text(encoding="utf-8") == machines.whole_page()
    for record in records:
        assert (machines.RESULTS / machines.file_name(record)).exists()
        assert json.dumps(record).count("/home/") == 0


def test_what_hides_a_unit() -> None:
    hide = runpy.run_path(str(ROOT / "tools" / "without.py"))["environment"]
    features = {"avx2": True, "avx512f": True, "amx-tile": False, "fma": True}
    found = hide("avx512", features, {"X86_V3": True, "X86_V4": True}, "znver4")
    assert found["NUMBA_CPU_FEATURES"] == "+avx2,-avx512f,-amx-tile,+fma"
    assert found["NPY_DISABLE_CPU_FEATURES"] == "X86_V4" and found["NUMBA_CPU_NAME"] == "znver3"
    assert hide("avx512", features, {}, "emeraldrapids")["OPENBLAS_CORETYPE"] == "Haswell"
    with pytest.raises(ValueError, match=r"the processor \(haswell\) has no avx512 to hide"):
        hide("avx512", {"avx2": True}, {}, "haswell")
    with pytest.raises(ValueError, match="'sse' cannot be hidden; what can is avx512"):
        hide("sse", features, {}, "znver4")


@pytest.mark.parametrize(
    ("features", "types"),
    [
        ({"avx2": True, "avx512f": True}, ("Haswell", "Zen", "SkylakeX")),
        ({"avx2": True, "avx512f": False}, ("Haswell", "Zen")),
        ({"sse2": True}, ()),
    ],
)
def test_openblas_is_asked_for_what_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, bool], types: tuple[str, ...]
) -> None:
    """SkylakeX's kernels are illegal instructions where there is no AVX-512."""
    monkeypatch.setattr(cpu, "host_features", lambda: features)
    found = runpy.run_path(str(ROOT / "benchmarks" / "openblas.py"))
    assert found["core_types"]() == types
