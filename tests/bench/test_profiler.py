from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import tinytorch
from tinytorch.bench import Profiler


def profiled_step(**options: bool) -> Profiler:
    model = tinytorch.nn.Linear(8, 4)
    optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1)
    with Profiler(**options) as profile:
        model(tinytorch.ones(2, 8)).sum().backward()
        optimizer.step()
    return profile


def test_events_are_in_order_within_the_block_and_do_not_overlap() -> None:
    profile = profiled_step()
    assert len(profile.events) == profile.total.calls
    clock = 0.0
    for event in profile.events:
        assert event.start >= clock
        clock = event.start + event.seconds
    assert clock <= profile.seconds


def test_ops_and_the_time_between_them_are_the_whole_block() -> None:
    with Profiler() as profile:
        tinytorch.ones(10).exp()
        time.sleep(0.05)
    assert profile.between_ops >= 0.05
    assert profile.between_ops + profile.total.seconds == pytest.approx(profile.seconds)


def test_two_blocks_of_one_profiler_add_up() -> None:
    profile = Profiler()
    for _ in range(2):
        with profile:
            tinytorch.ones(10).exp()
            time.sleep(0.02)
    assert profile.ops["exp"].calls == 2
    assert profile.seconds >= 0.04
    assert profile.between_ops + profile.total.seconds == pytest.approx(profile.seconds)
    starts = [event.start for event in profile.events]
    assert starts == sorted(starts) and starts[-1] - starts[0] >= 0.02


def test_the_table_has_a_row_per_op_and_phase_then_the_sums() -> None:
    profile = profiled_step()
    lines = profile.table().splitlines()
    assert lines[0].split()[:5] == ["op", "phase", "calls", "time", "share"]
    assert any(line.split()[:2] == ["matmul", "forward"] for line in lines)
    assert any(line.split()[:2] == ["matmul", "backward"] for line in lines)
    assert [line.split()[0] for line in lines[-4:]] == ["forward", "backward", "optimizer", "all"]
    assert any(line.startswith("between ops") for line in lines)


def test_a_shortened_table_sums_up_the_others() -> None:
    profile = profiled_step()
    lines = profile.table(limit=1).splitlines()
    assert len(lines) == 1 + 1 + 2 + 4
    assert lines[2].startswith(f"{len(profile.stats) - 1} others")


def test_the_chrome_trace_has_complete_events_in_microseconds(tmp_path: Path) -> None:
    profile = profiled_step()
    profile.save_chrome_trace(tmp_path / "step.json")
    trace = json.loads((tmp_path / "step.json").read_text())
    events = trace["traceEvents"]
    assert len(events) == len(profile.events)
    assert {event["ph"] for event in events} == {"X"}
    assert {event["cat"] for event in events} == {"forward", "backward", "optimizer"}
    first, kept = events[0], profile.events[0]
    assert first["ts"] == pytest.approx(kept.start * 1e6)
    assert first["dur"] == pytest.approx(kept.seconds * 1e6)


def test_without_a_trace_there_are_no_events_and_an_error_says_so(tmp_path: Path) -> None:
    profile = profiled_step(trace=False)
    assert profile.events == [] and profile.total.calls > 0
    with pytest.raises(ValueError, match=r"kept no events; make it with trace=True"):
        profile.save_chrome_trace(tmp_path / "step.json")
    assert list(tmp_path.iterdir()) == []


def test_to_dict_is_json_ready_and_sorted_by_time() -> None:
    report = json.loads(json.dumps(profiled_step().to_dict()))
    times = [row["seconds"] for row in report["ops"]]
    assert times == sorted(times, reverse=True)
    assert set(report["phases"]) == {"forward", "backward", "optimizer"}
