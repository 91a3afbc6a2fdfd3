"""Which loops are generated: dimensions taken together, loops joined, stores left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import broadcastable_shapes

from tinytorch.dtypes import float32, float64, tensor_meta
from tinytorch.graph.compiler.native.loops import (
    Loop,
    aligned_strides,
    collapse,
    disjoint_extents,
    extent,
)
from tinytorch.graph.ir import Graph
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view
from tinytorch.op import OPS

ARENA = Buffer(Memory.ARENA)


def at(offset: int, *shape: int, memory: Buffer = ARENA) -> StridedView:
    return contiguous_view(memory, offset, tensor_meta(shape, float32))


def relu(source: StridedView, target: StridedView) -> Loop:
    loop = Loop(target.shape)
    loop.store(loop.op("relu", OPS["relu"].scalar, [source], float32), target)
    return loop


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


def copy(source: StridedView, target: StridedView) -> Loop:
    loop = Loop(target.shape)
    loop.store(source, target)
    return loop


def test_a_stored_value_is_forwarded_to_a_later_load():
    first, second = relu(at(0, 8), at(64, 8)), relu(at(64, 8), at(128, 8))
    assert first.can_fuse(second)
    first.fuse(second)
    assert [i.operands[0] for i in first.instructions] == [at(0, 8), first.instructions[0].result]
    assert first.written() == [at(64, 8), at(128, 8)] and first.read() == [at(0, 8)]


def test_a_loop_cannot_fuse_what_reads_or_writes_other_elements():
    first = relu(at(0, 2, 4), at(64, 2, 4))
    assert not first.can_fuse(relu(at(0, 3, 4), at(128, 3, 4)))  # another shape
    turned = StridedView(ARENA, 64, (2, 4), (4, 8), float32)
    assert not first.can_fuse(relu(turned, at(128, 2, 4)))  # the same memory in another order
    assert not first.can_fuse(relu(at(256, 2, 4), at(4, 2, 4)))  # over elements that come later


def test_a_value_overwritten_in_the_same_loop_is_not_stored():
    first, second = relu(at(0, 8), at(64, 8)), relu(at(64, 8), at(64, 8))
    first.fuse(second)
    assert len(first.stores) == 1 and first.stores[0][0] == first.instructions[1].result


def test_a_copy_is_forwarded_as_its_source_was_before_the_round():
    a, b, t = (at(0, 4, memory=Buffer(Memory.INPUT, i)) for i in range(3))
    swap = copy(a, t)
    swap.fuse(copy(b, a))  # t has the old a although a is overwritten here
    swap.fuse(copy(t, b))
    assert swap.stores == [(a, t), (b, a), (a, b)]


def test_stores_of_inputs_are_never_dead_and_those_of_the_arena_are_if_nothing_reads_them():
    graph = Graph()
    node = graph.placeholder("x")
    for memory, read, kept in (
        (Memory.INPUT, False, True), (Memory.OWN, False, True),
        (Memory.ARENA, True, True), (Memory.ARENA, False, False),
    ):  # fmt: skip
        loop = relu(at(0, 4), target := at(64, 4, memory=Buffer(memory)))
        loop.nodes = [(node, target)]
        loop.eliminate_dead_stores(lambda node, inside, read=read: read)
        assert bool(loop.stores) is kept, memory


def test_a_store_of_a_place_to_itself_is_dead():
    view = at(0, 4, memory=Buffer(Memory.INPUT))
    loop = copy(view, view)
    loop.eliminate_dead_stores(lambda node, inside: True)
    assert not loop.stores


def test_a_store_does_not_convert():
    with pytest.raises(ValueError, match="a store of float32 to a view of float64"):
        copy(at(0, 4), contiguous_view(ARENA, 64, tensor_meta((4,), float64)))
