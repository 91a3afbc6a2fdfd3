"""What a worker runs for a contestant, in this process: no sandbox is needed to count calls."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tinytorch.collector import collector_paused
from tito.compete.event import Event, Problem, list_events, load_event
from tito.compete.study import COPY
from tito.compete.worker import load_contestant


def _called(event: Event, entry: Any, problem: Problem) -> Counter[str]:
    """How often each Python function runs in one call, kernels being chosen already."""
    event.task.call(entry, problem.inputs, problem.parameters)
    counts: Counter[str] = Counter()

    def count(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    with collector_paused():  # which would run what others left to be finalised
        sys.setprofile(count)
        try:
            event.task.call(entry, problem.inputs, problem.parameters)
        finally:
            sys.setprofile(None)
    return counts


@pytest.mark.parametrize("name", list_events())
def test_a_copy_of_a_baseline_runs_what_the_baseline_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more function for each op was 1 % of a short chain: copies lost in 15 launches of 16."""
    event = load_event(name)
    problem = event.task.make(np.random.default_rng(5), event.cases[0])
    (tmp_path / "copy.py").write_text(COPY)
    both = {
        "division": "open", "class": "Copy", "threads": 1, "entry": str(tmp_path / "copy.py"),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "entry", sys)  # put back what it was afterwards
    copy = load_contestant({**both, "baseline": None}, event.task)
    baseline = load_contestant({**both, "baseline": "numpy"}, event.task)
    assert _called(event, copy, problem) == _called(event, baseline, problem)


def test_the_optimized_baseline_is_our_kernels_and_no_library() -> None:
    """An event measures kernels: whose BLAS is faster on a machine is not the question."""
    task = load_event("matmul").task
    both = {"division": "open", "class": "", "threads": 1, "entry": ""}
    assert load_contestant({**both, "baseline": "optimized"}, task).own_kernels_only
