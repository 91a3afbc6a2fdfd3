"""The benchmark of several processes runs, and says what it measured."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tinytorch.distributed import Link

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "distributed.py"


@pytest.fixture
def benchmark(monkeypatch):
    """The script as a module, which imports the one beside it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("distributed_benchmark", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SIZES = (4_000, 40_000, 400_000, 4_000_000, 16_000_000)


@pytest.mark.parametrize("alone", [0.0, 2e-3])
def test_a_link_is_fitted_to_measurements_and_predicts_the_others(benchmark, alone: float) -> None:
    link = Link(latency=1e-4, bandwidth=1e9)
    rows = [
        benchmark.Measured(n, size, link.ring_all_reduce(size, n, 2), alone)
        for n in (2, 4)
        for size in SIZES
    ]
    found = benchmark.fit(rows, processors=2)
    assert found["latency_s"] == pytest.approx(1e-4)
    assert found["bytes_per_s"] == pytest.approx(1e9)
    assert found["predicted / measured"] == pytest.approx(
        {f"{size} B, {n} ranks": 1 for n in (2, 4) for size in ("40,000", "4,000,000")}
    )
    assert found["seconds"]["4,000 B, 2 ranks"] == pytest.approx(alone + 2.04e-4)
    line = benchmark.describe("gloo", found)
    start = "gloo: 100 us a message, 1.00 GB/s; predicted / measured 40,000 B, 2 ranks: 1.00"
    assert line.startswith(start)


def test_what_a_prediction_misses_is_a_share_of_the_whole_step(benchmark) -> None:
    times = [1e-3, 4e-3, 3e-3]  # 2 ms, by the line through the first and the last
    rows = [benchmark.Measured(2, n, t, 4e-3) for n, t in zip((1e6, 2e6, 3e6), times, strict=True)]
    shares = benchmark.fit(rows, 2)["predicted / measured"]
    assert list(shares.values()) == pytest.approx([(4 + 2) / (4 + 4)])


def test_times_that_no_link_explains_are_said_to_be_that(benchmark) -> None:
    times = [1.0, 0.1, 0.01, 0.001, 0.0001]
    rows = [benchmark.Measured(2, size, t) for size, t in zip(SIZES, times, strict=True)]
    found = benchmark.fit(rows, 2)
    assert found["seconds"]["4,000 B, 2 ranks"] == 1.0 and "latency_s" not in found
    assert "gloo: no link explains these times" in benchmark.describe("gloo", found)


def test_the_least_is_taken_number_by_number(benchmark) -> None:
    assert benchmark.least([3.0, 1.0, 2.0]) == 1.0
    assert benchmark.least([[1.0, (9, 1)], [2.0, (7, 3)], [5.0, (8, 2)]]) == [1.0, [7, 1]]


@pytest.mark.exhaustive
def test_the_benchmark_says_overhead_and_links() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--rounds", "3", "--json"],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["cpu_seconds"]) == {"ours", "ours, data_parallel", "torch", "torch, DDP"}
    assert all(seconds > 0 for seconds in found["cpu_seconds"].values())
    assert set(found["links"]) == {"gloo", "our ring", "a step"}
    for link in found["links"].values():
        assert len(link["seconds"]) == 5 and min(link["seconds"].values()) > 0
