"""Checks, places in memory, tables: what needs no second process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends import find_backend
from tinytorch.bench import difference
from tito.compete.entry import parse_entry
from tito.compete.event import EventError, list_events, load_event
from tito.compete.match import Launch
from tito.compete.memory import ALIGNMENT, Arena, place
from tito.compete.process import _failure_of
from tito.compete.result import Peak, summarize


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("name", list_events())
def test_a_reference_is_within_its_own_bound_and_precise(name: str) -> None:
    """NumPy in float32 is right; the same a little off is not."""
    event = load_event(name)
    draw = np.random.default_rng(3)
    backend: Any = find_backend("numpy")
    for case in event.cases:
        problem = event.task.make(draw, case)
        expected = event.task.reference(problem.inputs, problem.parameters)
        found = event.task.call(backend, problem.inputs, problem.parameters)
        assert [(f.shape, f.dtype) for f in found] == [(s, np.dtype(d)) for s, d in problem.outputs]
        assert difference([np.asarray(f) for f in found], expected) is None
        coarse = [np.asarray(f) * np.float32(1 + 2**-9) for f in found]  # bfloat16's precision
        assert difference(coarse, expected) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", list_events())
def test_a_starter_is_right(name: str) -> None:
    event = load_event(name)
    scope: dict[str, Any] = {}
    exec(event.starter, scope)
    entry = scope[parse_entry(event.starter.encode(), name).class_name]()
    draw = np.random.default_rng(4)
    for case in event.cases:
        problem = event.task.make(draw, case)
        found = event.task.call(entry, problem.inputs, problem.parameters)
        assert difference(found, event.task.reference(problem.inputs, problem.parameters)) is None


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), min_size=2, max_size=3), st.booleans())))
def test_arrays_in_shared_memory_do_not_overlap(kinds: list[tuple[list[int], bool]]) -> None:
    size = 1 << 16
    descriptor = os.memfd_create("test")
    try:
        os.ftruncate(descriptor, size)
        arena = Arena(descriptor, size)
        placed = place([(tuple(s), np.dtype("f4"), t) for s, t in kinds], size)
        views = [arena.view(p) for p in placed]
        for i, view in enumerate(views):
            view[...] = i
        for i, ((shape, _), view) in enumerate(zip(kinds, views, strict=True)):
            assert view.shape == tuple(shape) and (view == i).all()
        assert all(p["offset"] % ALIGNMENT == 0 for p in placed)
    finally:
        os.close(descriptor)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError, match=r"need 4,000,000 bytes, and the shared memory has 1,000"):
        place([((1000, 1000), np.dtype("f4"), False)], 1000)


def launch(baseline: list[float], mine: list[float]) -> Launch:
    return Launch(
        {"numpy": {"a": baseline}, "mine": {"a": mine}},
        {"a": [1.0] * len(mine)},
        {"a": [10**9] * len(mine)},
        {"numpy": 0.1, "mine": 2.0},
    )


def test_ratios_are_of_pairs_and_verdicts_of_intervals() -> None:
    steady = [launch([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]) for _ in range(6)]
    result = summarize(steady, "numpy")
    mine = result.scores[1]
    assert (mine.ratio, mine.low, mine.high) == (2.0, 2.0, 2.0)
    assert result.verdicts == {"numpy": "ok", "mine": "ok"}
    shaky = [launch([1.0], [1.0 + 0.1 * i]) for i in range(6)]
    assert summarize(shaky, "numpy").verdicts["mine"] == "noisy"


@pytest.mark.parametrize(
    ("peak", "verdict"),
    [
        (Peak(flops=0.6e9, bytes=0.6e9), "ok"),
        (Peak(flops=0.4e9, bytes=9e9), "impossible"),  # its operations take 2.5 s at least
        (Peak(flops=9e9, bytes=0.4e9), "impossible"),  # its bytes do
    ],
)
def test_nothing_is_faster_than_its_operations_and_its_bytes(peak: Peak, verdict: str) -> None:
    steady = [launch([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]) for _ in range(6)]
    assert summarize(steady, "numpy", peak=peak).verdicts == {"numpy": "ok", "mine": verdict}


def test_what_a_worker_says_is_text() -> None:
    """Its kind of error too may be forged: half of a surrogate pair would end a runner."""
    told = _failure_of(b'{"error": "\\ud800' + b"x" * 9_000 + b'", "text": "a\\u001b[2J"}')
    assert told.verdict == "error" and len(str(told)) < 2_000
    assert str(told).encode().endswith(b": a[2J")
    assert _failure_of(b"[" * 100_000).verdict == "rule"


def test_an_event_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EventError, match=r"no event 'chess'.*matmul"):
        load_event("chess")
    folder = tmp_path / "own"
    folder.mkdir()
    good = "title='t'\ndivision='open'\nclock='cpu'\nrounds=2\n[[cases]]\nname='a'\n"
    limits = "[limits]\ncompile_seconds=1\ncall_seconds=1\nmemory_mib=1\n"
    for text, said in [
        ("x", "event.toml"),
        (good, "does not say 'limits'"),
        (good.replace("open", "wild") + limits, "it may be kernel or open"),
        (good.replace("=2", "=3") + limits, "rounds is 3; it must be even"),
        (good.replace("'a'", "5") + limits, "text of at most 70 letters"),
        (good.replace("'a'", f"'{71 * 'a'}'") + limits, "text of at most 70 letters"),
        (good + limits, "no task.py beside it"),
    ]:
        (folder / "event.toml").write_text(text)
        with pytest.raises(EventError, match=said):
            load_event(str(folder))
    (folder / "task.py").write_text("def make(draw, case): ...\n")
    with pytest.raises(EventError, match="no function call and no reference"):
        load_event(str(folder))


@pytest.mark.parametrize("case", load_event("attention").cases, ids=lambda case: case["name"])
def test_the_formulas_of_attention_are_those_of_autograd(case: dict[str, Any]) -> None:
    """In float64; and an entry that computes in half precision is wrong."""
    task = load_event("attention").task
    problem = task.make(np.random.default_rng(5), {**case, "batch": [1, 2], "heads": [1, 2]})
    expected = task.reference(problem.inputs, problem.parameters)
    exact = [a.astype(np.float64) for a in problem.inputs]
    found = task.call(find_backend("numpy"), exact, problem.parameters)
    for one, (two, bound) in zip(found, expected, strict=True):
        assert one.dtype == np.float64
        assert (np.abs(one - two) <= 1e-6 * bound).all()  # float64's eps is 2e-9 of float32's
    half = [a.astype(np.float16).astype(np.float32) for a in problem.inputs]
    coarse = task.call(find_backend("numpy"), half, problem.parameters)
    assert all(difference([c], [e]) is not None for c, e in zip(coarse, expected, strict=True))


def test_no_image_of_a_training_step_lies_where_the_last_bit_decides() -> None:
    """There two right gradients are further apart than the tolerance: a baseline was refused."""
    event = load_event("cnn_step")
    task: Any = event.task
    images, _, *weights = task.make(np.random.default_rng(0), event.cases[0]).inputs
    assert not task.near_a_turn(images, weights).any()
    images[1] = 0  # all four sums of a window are the same
    assert task.near_a_turn(images, weights).tolist() == [i == 1 for i in range(len(images))]


@pytest.mark.parametrize("name", ["attention", "cnn_step", "gpt_step"])
def test_what_an_entry_does_not_have_is_numpys(name: str) -> None:
    """And what it has is called."""
    event = load_event(name)
    called: list[str] = []

    class Entry:
        def matmul(self, a: Any, b: Any) -> Any:
            called.append("matmul")
            return np.matmul(a, b)

    problem = event.task.make(np.random.default_rng(1), event.cases[0])
    found = event.task.call(Entry(), problem.inputs, problem.parameters)
    assert difference(found, event.task.reference(problem.inputs, problem.parameters)) is None
    assert len(called) > 4
