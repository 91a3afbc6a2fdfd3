from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from tinytorch.bench import bootstrap_interval, false_alarms, measure_pairs, product_reference
from tinytorch.bench.accuracy import Array
from tinytorch.bench.fresh import fresh_call

LAUNCHES, TRIALS = 8, 100


def matrices(draw: np.random.Generator) -> tuple[Array, Array]:
    size = int(draw.integers(60, 90))
    a, b = draw.standard_normal((2, size, size)).astype(np.float32)
    return a, b.T


def product(a: Array, b: Array) -> Array:
    result: Array = a @ b
    return result


def test_pairs_take_turns_on_fresh_inputs() -> None:
    seen: list[tuple[str, float, bool]] = []
    ticks = itertools.cycle([0.0, 4.0] * 4)

    def named(name: str) -> object:
        def function(a: Array, b: Array) -> Array:
            seen.append((name, float(a[0, 0]), b.flags.f_contiguous))
            found = a @ b
            a[:], b[:] = 7, 7  # only copies
            return found

        return function

    ratios = measure_pairs(
        named("a"), named("b"), matrices, product_reference,  # type: ignore[arg-type]
        pairs=3, seed=1, now=lambda: next(ticks),
    )  # fmt: skip
    assert ratios == [1.0] * 3
    assert "".join(name for name, _, _ in seen) == "abbabaab" * 2
    assert len({first for _, first, _ in seen}) == 8, "both have the same, and no call its last"
    assert all(layout for _, _, layout in seen)


def test_outputs_that_are_wrong_or_late_are_refused() -> None:
    a, b = matrices(np.random.default_rng(0))
    expected = product_reference(a, b)

    class Later(np.ndarray):
        pass

    with pytest.raises(TypeError, match="is a Later"):
        fresh_call(lambda a, b: (a @ b).view(Later), (a, b), expected)
    with pytest.raises(ValueError, match=r"output 0 at \[\d+, \d+\]"):
        fresh_call(lambda a, b: (a.astype("f2") @ b.astype("f2")).astype("f4"), (a, b), expected)
    answers: list[Array] = []

    def keeps(a: Array, b: Array) -> Array:
        answers.append(a @ b)
        return answers[0]

    with pytest.raises(ValueError, match="output"):
        measure_pairs(product, keeps, matrices, product_reference, pairs=1, seed=3)


def test_a_ratio_is_that_of_four_calls() -> None:
    lengths = iter([9.0] * 4 + [8.0, 1.0, 1.0, 2.0] + [1.0, 2.0, 2.0, 1.0])  # BAAB, then ABBA
    clock = [0.0]

    def wait(x: Array) -> Array:
        clock[0] += next(lengths)
        return x

    def made(draw: np.random.Generator) -> tuple[Array]:
        return (np.ones(2),)

    ratios = measure_pairs(
        wait, wait, made, lambda x: (x, np.zeros(2)), pairs=2, now=lambda: clock[0]
    )
    assert ratios == [2.0 / 10.0, 2.0 / 4.0]


@pytest.mark.slow
def test_the_same_code_is_1_within_its_interval() -> None:
    """A hundred A/A trials on a clock that runs slower for a while, now and then, and on which the
    first call on new inputs takes a third longer. No real one: a busy machine has another noise
    than the interval is for."""
    draw = np.random.default_rng(3)
    clock, known, pace = [0.0], [0.0], [1.0]

    def work(x: Array) -> Array:
        first, known[0] = 1.0 + (x[0] != known[0]) / 3, float(x[0])
        pace[0] = 0.9 * pace[0] + 0.1 * draw.lognormal(0, 0.5)
        clock[0] += first * pace[0] * draw.lognormal(0, 0.03)
        return x

    def made(draw: np.random.Generator) -> tuple[Array]:
        return (draw.standard_normal(2),)

    def trial() -> list[float]:
        return [
            statistics.median(
                measure_pairs(
                    work, work, made, lambda x: (x, np.zeros(2)),
                    pairs=6, seed=launch, now=lambda: clock[0],
                )
            )
            for launch in range(LAUNCHES)
        ]  # fmt: skip

    trials = [trial() for _ in range(TRIALS)]
    wrong = [bootstrap_interval(t) for t in trials if false_alarms([t], resamples=1000)]
    assert false_alarms(trials, resamples=1000) <= 0.05, wrong
