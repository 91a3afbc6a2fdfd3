from __future__ import annotations

import gc
import time

import pytest

from tinytorch.bench import Timing, ratio, time_callable, time_callables, timer


class Clock:
    """A clock that goes on by what is worked, and by nothing else."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setitem(timer.CLOCKS, "cpu", clock)
    monkeypatch.setattr(timer._calls_lasting, "__defaults__", (clock,))
    return clock


def test_the_ratio_of_known_times(clock: Clock) -> None:
    times = time_callables(
        {"slow": lambda: clock.work(2e-3), "fast": lambda: clock.work(5e-4)}, rounds=5
    )
    assert times["fast"].median == pytest.approx(5e-4)
    assert ratio(times["slow"], times["fast"]) == pytest.approx(4)


def test_samples_are_interleaved() -> None:
    order: list[str] = []
    time_callables(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        rounds=3,
        sample_seconds=0,
        warmup=1,
    )
    # warm-up and finding the number of calls, then in each round twice a, twice b
    assert order == ["a", "b", "a", "b"] + ["a", "a", "b", "b"] * 3


def test_cpu_time_stands_still_while_sleeping_and_the_wall_clock_goes_on() -> None:
    def nap() -> None:
        time.sleep(0.01)

    assert time_callable(nap, rounds=2, clock="cpu", warmup=0).median < 0.005
    assert time_callable(nap, rounds=2, clock="wall", warmup=0).median >= 0.01


def test_a_sample_lasts_as_long_as_asked(clock: Clock) -> None:
    timing = time_callable(lambda: clock.work(1e-4), rounds=2, sample_seconds=0.005)
    assert 50 <= timing.calls <= 51


def test_statistics() -> None:
    timing = Timing((4.0, 1.0, 2.0, 3.0, 5.0), calls=1, clock="cpu")
    assert (timing.median, timing.fastest, timing.iqr) == (3.0, 1.0, 2.0)
    assert timing.spread == pytest.approx(2 / 3)
    assert Timing((2.0,), 1, "cpu").iqr == 0.0
    assert timing.to_dict()["rounds"] == 5


def test_the_collector_is_on_again_afterwards_even_after_an_error() -> None:
    calls = iter(range(3))
    with pytest.raises(StopIteration):
        time_callable(lambda: next(calls), sample_seconds=0, warmup=0)
    assert gc.isenabled()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="rounds must be at least 1, not 0"):
        time_callable(lambda: None, rounds=0)
    with pytest.raises(ValueError, match="there is no clock 'sun'; there are cpu, wall"):
        time_callable(lambda: None, clock="sun")
    with pytest.raises(ValueError, match="a ratio needs timings of one run: 1 samples"):
        ratio(Timing((1.0,), 1, "cpu"), Timing((1.0, 2.0), 1, "cpu"))
