"""What the fourteenth module's parts do inside the package."""

import statistics

import numpy as np

from tinytorch import bench
from tinytorch.bench.accuracy import furthest_off
from tito.checks import check, close, equal, raises


def matrices(draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Two matrices of random sizes."""
    m, k, n = (int(size) for size in draw.integers(20, 40, 3))
    return draw.standard_normal((m, k)).astype(np.float32), draw.standard_normal((k, n))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In float64."""
    return a.astype(np.float64) @ b


def twice(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product, with a hundred times the work."""
    for _ in range(100):
        product(a, b)
    return product(a, b)


def test_a_slower_function_is_seen() -> None:
    """what takes a hundred times as long is slower beyond doubt, on fresh inputs and checked"""
    ratios = bench.measure_pairs(twice, product, matrices, bench.product_reference, pairs=9, seed=1)
    low, high = bench.bootstrap_interval(ratios, resamples=500)
    check(2 < low <= high < 1000, f"101 products take {low:.1f} to {high:.1f} times as long")
    equal(len(ratios), 9)
    check(bench.pairs_needed(ratios, 0.01) >= 2, "two pairs at least")
    equal(bench.false_alarms([ratios, [1.0, 1.0]]), 0.5)


def test_ratios_are_combined() -> None:
    """ratios of pairs and their geometric mean are the same from both sides"""
    slow, fast = [4.0, 9.0, 2.0], [2.0, 3.0, 4.0]
    close(bench.geometric_mean(bench.paired_ratios(slow, fast)), 3 ** (1 / 3))
    mean = bench.geometric_mean(bench.paired_ratios(fast, slow))
    close(mean * bench.geometric_mean(bench.paired_ratios(slow, fast)), 1.0)
    low, high = bench.bootstrap_interval([2.0, 3.0, 4.0], statistics.fmean)
    check(2.0 <= low < 3.0 < high <= 4.0, f"the mean is between {low} and {high}")


def test_what_is_wrong_is_refused() -> None:
    """an output with half of the bits is refused, and so is one that computes later"""
    a, b = np.float32([[1.5, -2.25]]), np.float32([[3.1], [0.7]])
    exact, bound = bench.product_reference(a, b)
    equal(furthest_off((a @ b), exact, bound), None)
    equal(furthest_off((a @ b) * np.float32(1.001), exact, bound), (0, 0))
    close(bound, bench.rounding_bound(2, np.abs(a) @ np.abs(b)))
    expected = bench.product_reference(a, b)
    raises(ValueError, bench.fresh_call, lambda a, b: (a @ b).round(1), (a, b), expected)
    raises(TypeError, bench.fresh_call, lambda a, b: (a @ b).tolist(), (a, b), expected)
    check(bench.fresh_call(np.matmul, (a, b), expected) >= 0, "time is not negative")
