from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.optimized.gemm import blocking
from tinytorch.backends.optimized.gemm.blocking import KC_BYTES, MC
from tinytorch.jit.caches import L1_PAGES, PAGE_BYTES, core_caches
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel

L1, L2 = core_caches()


@kernel
def walks_badly(steps, stride):  # kernels alone call the other
    return blocking.walks_badly(steps, stride)


@kernel
def balanced(size, most):
    return blocking.balanced(size, most)


def lines_left(steps, stride):
    """How many lines of a walk are in L1 after it, and how many there were."""
    sets = {}
    for i in range(steps):
        line = i * stride // L1.line
        lines = sets.setdefault(line % (L1.way_bytes // L1.line), [])
        if line in lines:
            lines.remove(line)
        lines.append(line)
        del lines[: -L1.ways]
    return sum(map(len, sets.values())), len({i * stride // L1.line for i in range(steps)})


@given(st.integers(1, 600), st.integers(1, 300).map(lambda lines: lines * L1.line))
def test_a_walk_that_is_not_bad_stays_in_the_cache(steps, stride):
    if not walks_badly(steps, stride):
        held, walked = lines_left(steps, stride)
        assert held == walked
        assert steps * min(stride, PAGE_BYTES) <= L1_PAGES * PAGE_BYTES


@pytest.mark.parametrize("sign", [1, -1])
def test_which_walks_are_bad(sign):
    assert not walks_badly(400, 0)
    assert not walks_badly(400, 4 * sign)
    assert not walks_badly(L1.size // L1.line // 2, L1.line * sign)
    assert walks_badly(2 * L1.ways, L1.way_bytes * sign)
    assert walks_badly(400, PAGE_BYTES * sign + L1.line * sign)


def test_blocks_fit_where_they_should_stay():
    assert max(L2.size // 2, KC_BYTES * 16) >= MC * KC_BYTES
    assert MC % host_vector_unit().tile_rows(host_vector_unit().tile_vectors[-1]) == 0
    assert blocking.LEAST_STEPS <= KC_BYTES // 4 <= blocking.MOST_STEPS


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_balanced_parts(size, most):
    part = balanced(size, most)
    assert part <= most and math.ceil(size / part) == math.ceil(size / most)
