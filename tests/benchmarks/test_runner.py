"""The runner of the kernel benchmark, and the benchmark itself on one small case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import runner

    return runner


def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def fake_clock(runner, monkeypatch):
    """A function that lets so many seconds pass on the clock "cpu"."""
    now = [0.0]

    def work(seconds):
        now[0] += seconds

    monkeypatch.setitem(runner.CLOCKS, "cpu", lambda: now[0])
    monkeypatch.setattr(runner, "SAMPLE_SECONDS", 0.0)
    return work


def test_a_ratio_says_how_many_times_longer_the_other_takes(runner, monkeypatch):
    work = fake_clock(runner, monkeypatch)
    monkeypatch.setattr(runner, "_multiply_adds", lambda: (lambda: work(0.001), 1000))
    case = runner.Case(
        "group",
        "name",
        {"ours": lambda: work(0.001), "other": lambda: work(0.003)},
        {"blas:A": lambda calls, clock: 0.004, "blas:B": lambda calls, clock: 0.002},
        flops=1e6,
    )
    result = runner.measure(case, clock="cpu", rounds=3)
    assert result.ratios["other"] == pytest.approx(3)
    assert result.seconds["blas"] == 0.002  # the fastest of a family
    assert set(result.ratios) == {"other", "blas"}


def test_work_of_other_processes_is_noticed_and_ours_is_not(runner):
    before = runner.accounts()
    if before == (0.0, 0.0, 0.0):
        pytest.skip("no /proc here")
    busy(0.1)
    wall, everybody, own = (b - a for a, b in zip(before, runner.accounts(), strict=True))
    assert own >= 0.1 and wall >= 0.1 and everybody >= 0.05
    # seconds of the wall, of all processes, of ours
    assert runner.foreign_cores((0.0, 0.0, 0.0), (2.0, 3.0, 2.0)) == 0.5
    assert runner.foreign_cores((0.0, 0.0, 0.0), (2.0, 1.9, 2.0)) == 0


def test_a_disturbed_measurement_is_repeated_then_marked(runner, monkeypatch):
    taken = []
    case = runner.Case("group", "name", {"ours": lambda: taken.append(1)})
    monkeypatch.setattr(runner, "foreign_cores", lambda before, after: 1.0)
    monkeypatch.setattr(runner, "SAMPLE_SECONDS", 0.0)
    assert runner.measure(case, clock="cpu", rounds=2).disturbed
    once = len(taken)
    monkeypatch.setattr(runner, "foreign_cores", lambda before, after: 0.0)
    taken.clear()
    assert not runner.measure(case, clock="cpu", rounds=2).disturbed
    assert once == runner.ATTEMPTS * len(taken)


def test_report_is_plain_where_there_is_no_terminal(runner, capsys):
    result = runner.Result(
        "GEMM",
        "64x64",
        {"ours": 1e-6, "numpy": 2e-6},
        {},
        {"numpy": 2.0},
        5e4,
        1e3,
        True,
        1e11,
    )
    runner.report([result], bandwidth=1e10)
    out = capsys.readouterr().out
    assert "64x64 !" in out and "50.0" in out and "2.00" in out and "other processes" in out
    assert "up to 100 Gflop/s" in out
    assert "\x1b" not in out


def kernels(*arguments: str) -> dict[str, Any]:
    """What the benchmark of kernels says as JSON."""
    done = subprocess.run(
        [sys.executable, *arguments, "--rounds", "2", "--json"],
        cwd=BENCHMARKS.parent,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["peak_flops"] > 1e9 and answer["bandwidth"] > 1e8 and answer["threads"] == 1
    products = [r for r in answer["results"] if r["group"] == "GEMM"]
    assert all({"numpy", "torch"} <= set(r["ratios"]) for r in products)
    assert all(("blas" in r["ratios"]) == bool(answer["openblas"]) for r in products)
    return answer


@pytest.mark.slow
def test_benchmark_of_kernels_as_json_and_picture(tmp_path):
    answer = kernels(
        *("benchmarks/kernels.py", "--only", "gemm,memory", "--match", "x128"),
        *("--plot", str(tmp_path / "roofline.png")),
    )
    assert {"softmax 32x128", "10x128x32 NN"} <= {r["name"] for r in answer["results"]}
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
def test_benchmark_of_kernels_without_avx512():
    from tinytorch.jit.cpu import AVX512, host_vector_unit

    if host_vector_unit() != AVX512:
        pytest.skip("this processor has no AVX-512 to hide")
    answer = kernels(
        *("tools/without.py", "avx512", "benchmarks/kernels.py"),
        *("--only", "gemm", "--match", "10x128x32 NN"),
    )
    assert answer["processor"]["vector_unit"] == "avx2"
    assert "SkylakeX" not in answer["openblas"]


def test_one_round_is_enough_to_report(runner):
    case = runner.Case("group", "name", {"ours": lambda: busy(0.001), "other": lambda: busy(0.001)})
    result = runner.measure(case, clock="cpu", rounds=1, attempts=1)
    assert result.quartile["ours"] == result.seconds["ours"] > 0
    assert runner.lower_quartile([4.0, 1.0, 3.0, 2.0]) == 1.25


def test_a_ratio_is_the_median_of_the_rounds(runner):
    """The fastest samples, of which ours is of another round, would say 4."""
    samples = {"ours": [1.0, 2.0, 4.0], "other": [4.0, 6.0, 8.0], "blas:A": [5.0, 5.0, 5.0],
               "blas:B": [4.0, 8.0, 16.0]}  # fmt: skip
    result = runner._evaluate(runner.Case("group", "name", {}), samples, disturbed=False)
    assert result.ratios == {"other": 3.0, "blas": 4.0}
    assert result.seconds == {"ours": 1.0, "other": 4.0, "blas": 4.0}


def test_the_peak_is_measured_beside_what_has_flops(runner, monkeypatch):
    """It was measured once before all cases, at another clock."""
    work = fake_clock(runner, monkeypatch)
    monkeypatch.setattr(runner, "_multiply_adds", lambda: (lambda: work(0.002), 4000))
    case = runner.Case("group", "name", {"ours": lambda: work(0.004)}, flops=2000)
    result = runner.measure(case, clock="cpu", rounds=2)
    assert result.peak == pytest.approx(2e6) and result.share == pytest.approx(0.25)
    assert set(result.seconds) == {"ours"} and result.ratios == {}
    assert runner.highest_peak([result]) == result.peak
    without = runner.Case("group", "name", {"ours": lambda: work(0.001)})
    assert runner.measure(without, clock="cpu", rounds=1).share is None


def test_a_peer_that_is_not_installed_is_named(runner):
    """With tiktoken absent, all goals were said to be met."""
    goals = {"encode": {"tiktoken": 5.0, "tokenizers": 20.0}}

    def verdict(**ratios):
        result = runner.Result("encode", "encode, 400 tokens", {}, {}, ratios, None, None, False)
        return runner.verdict([result], goals)

    assert verdict(tiktoken=6.0, tokenizers=30.0) == ([], [])
    missed, absent = verdict(tokenizers=2.0)
    assert missed == ["encode, 400 tokens: tokenizers takes 2.00 times as long, the goal is 20.0"]
    assert absent == ["encode, 400 tokens: tiktoken is not installed, so its goal 5.0 is open"]
