"""Views that share memory, and dimensions that are taken together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import broadcastable_shapes

from tinytorch.backends.optimized.elementwise.nest import collapse
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.graph.compiler.native.strides import aligned_strides, disjoint_extents, extent
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view

ARENA = Buffer(Memory.ARENA)


def at(offset: int, *shape: int, memory: Buffer = ARENA) -> StridedView:
    return contiguous_view(memory, offset, tensor_meta(shape, float32))


def test_dimensions_walked_alike_are_one():
    assert collapse((2, 3, 4), [(48, 16, 4)]) == ((24,), [(4,)])
    assert collapse((2, 3, 4), [(48, 16, 4), (0, 16, 4)]) == ((2, 12), [(48, 4), (0, 4)])
    assert collapse((2, 1, 4), [(16, 0, 4)]) == ((8,), [(4,)])
    assert collapse((1, 1), [(0, 0)]) == ((1,), [(0,)])


@given(st.data())
def test_a_collapsed_walk_visits_the_same_elements(data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    shapes = [data.draw(broadcastable_shapes(shape, max_dims=len(shape), max_side=4))]
    shapes = [s for s in shapes if np.broadcast_shapes(s, shape) == shape]
    views = [at(0, *shape), *(at(0, *s) for s in shapes)]
    strides = [aligned_strides(p, shape) for p in views]
    sizes, steps = collapse(shape, strides)
    for before, after in zip(strides, steps, strict=True):
        first, second = (
            [int(np.dot(index, own)) for index in np.ndindex(*over)]
            for over, own in ((shape, before), (sizes, after))
        )
        assert first == second


def test_places_are_apart_if_they_share_no_byte():
    assert disjoint_extents(at(0, 4), at(16, 4)) and not disjoint_extents(at(0, 4), at(12, 4))
    assert disjoint_extents(at(0, 4), at(0, 4, memory=Buffer(Memory.INPUT, 1)))
    backwards = StridedView(ARENA, 12, (4,), (-4,), float32)
    assert extent(backwards) == (0, 16)
    assert not disjoint_extents(backwards, at(0, 1)) and disjoint_extents(backwards, at(16, 1))
