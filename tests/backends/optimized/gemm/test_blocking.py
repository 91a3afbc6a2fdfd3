from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.optimized.gemm import blocking
from tinytorch.backends.optimized.gemm.blocking import DC_BYTES, KC_BYTES, MC
from tinytorch.jit.caches import L1_PAGES, PAGE_BYTES, core_caches
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel

L1, L2 = core_caches()


@kernel
def walks_badly(steps, stride):  # kernels alone call the other
    return blocking.walks_badly(steps, stride)


@kernel
def panels_walk_badly(steps, address, stride):
    return blocking.panels_walk_badly(steps, address, stride)


@kernel
def steps_in_pages(steps, stride, readers):
    return blocking.steps_in_pages(steps, stride, readers)


@kernel
def rows_collide(rows, size, stride):
    return blocking.rows_collide(rows, size, stride)


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


@given(st.integers(1, 600), st.integers(1, 2000).map(lambda elements: elements * 4))
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
    # a half and a third of a way, but for four bytes: a few rows after another in each set
    for stride in (L1.way_bytes // 2 + 4, L1.way_bytes // 2 - 4, -(-L1.way_bytes // 3 // 4) * 4):
        assert walks_badly(4 * L1.ways, stride * sign)
        assert not walks_badly(L1.ways // 2, stride * sign)
    assert not walks_badly(4 * L1.ways, (L1.way_bytes // 2 + 2 * L1.line) * sign)


@given(st.integers(1, 800), st.integers(-9000, 9000), st.integers(1, 2000))
def test_a_block_of_steps_is_in_pages_that_are_translated_or_is_copied(steps, stride, readers):
    block = steps_in_pages(steps, stride, readers)
    assert 1 <= block <= steps
    pages = block * min(abs(stride), PAGE_BYTES) / PAGE_BYTES
    assert pages <= L1_PAGES or (block == steps and readers * blocking.BLOCK_STEPS > L1_PAGES)
    if steps * min(abs(stride), PAGE_BYTES) <= L1_PAGES * PAGE_BYTES:
        assert block == steps, "nothing is gained by blocks"


def test_many_readers_pay_for_a_copy():
    few = steps_in_pages(400, PAGE_BYTES, 1)
    assert few == L1_PAGES
    assert steps_in_pages(400, PAGE_BYTES, 100 * L1_PAGES) == 400


@given(st.integers(1, 700), st.integers(1, 64), st.integers(1, 600))
def test_rows_that_do_not_collide_stay_in_the_second_cache(rows, lines, apart):
    size, stride = lines * L2.line, max(lines, apart) * L2.line
    if rows * size <= L2.size // 2 and not rows_collide(rows, size, stride):
        sets = [0] * (L2.way_bytes // L2.line)
        for row in range(rows):
            for line in range(lines):
                sets[(row * stride // L2.line + line) % len(sets)] += 1
        # rows that overlap in part are spread unevenly, by a factor of two at most
        assert max(sets) <= 2 * L2.ways


def test_which_rows_collide():
    rows = 2 * L2.ways
    assert rows_collide(rows, 1024, L2.way_bytes) and rows_collide(rows, 1024, -L2.way_bytes)
    assert not rows_collide(rows, 1024, L2.way_bytes + L2.line)
    assert not rows_collide(2, 1024, L2.way_bytes)
    assert not rows_collide(rows, L2.way_bytes, L2.way_bytes)  # every set has its share


def test_which_panels_of_b_are_copied():
    unit = host_vector_unit()
    row = unit.tile_vectors[-1] * unit.register_bytes
    short, long = L1.size // 4 // row, L1.size // row
    assert panels_walk_badly(L1_PAGES + 1, 0, PAGE_BYTES)
    assert panels_walk_badly(long, 16 if unit.register_bytes > 16 else 8, 1024)
    assert not panels_walk_badly(long, 0, row)
    assert not panels_walk_badly(short, 16, row)  # it is in L1, where two lines cost little


def test_blocks_fit_where_they_should_stay():
    assert max(L2.size // 2, DC_BYTES * 16) >= MC * DC_BYTES
    assert MC % host_vector_unit().tile_rows(host_vector_unit().tile_vectors[-1]) == 0
    assert blocking.LEAST_STEPS <= KC_BYTES // 4 <= blocking.MOST_STEPS
    assert DC_BYTES >= KC_BYTES and DC_BYTES % 64 == 0


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_balanced_parts(size, most):
    part = balanced(size, most)
    assert part <= most and math.ceil(size / part) == math.ceil(size / most)
