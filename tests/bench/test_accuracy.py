from __future__ import annotations

import numpy as np
import pytest

from tinytorch.bench import difference, furthest_off, product_reference


def test_the_worst_element_is_named() -> None:
    reference, bound = np.zeros((2, 3)), np.full((2, 3), 0.1)
    found = np.array([[0.05, 0.2, 0], [0, 0, 0.11]], np.float32)
    worst = difference([found], [(reference, bound)])
    assert worst is not None and worst.index == (0, 1)
    assert "output 0 at [0, 1] is 0.2" in str(worst)
    for bad in (np.nan, np.inf):
        found[1, 0] = bad
        assert furthest_off(found, reference, bound) == (1, 0)


def test_an_output_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 1\), the reference \(2, 3\)"):
        furthest_off(np.zeros((1, 1)), np.zeros((2, 3)), np.ones((2, 3)))
    assert furthest_off(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3))) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_is_within_its_bound_and_a_coarser_one_is_not(dtype: str) -> None:
    draw = np.random.default_rng(1)
    a = (draw.standard_normal((40, 700)) * 10 ** draw.uniform(-2, 2, (40, 1))).astype(dtype)
    b = draw.standard_normal((700, 30)).astype(dtype)
    expected = product_reference(a, b)
    assert difference([a @ b], [expected]) is None
    coarse = (a @ b) * (1 + 2**13 * np.finfo(dtype).eps)
    assert difference([coarse], [expected]) is not None


def test_whole_numbers_have_to_come_out_exactly_while_they_can() -> None:
    a, b = np.full((1, 3), 5, np.float32), np.full((3, 1), 7, np.float32)
    exact, bound = product_reference(a, b)
    assert (exact.item(), bound.item()) == (105, 0)
    large = np.full((1, 3), 4001, np.float32)
    _, bound = product_reference(large, large.T)
    assert bound.item() > 0, "float32 has no room for these sums"
