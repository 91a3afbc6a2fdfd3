"""Which loops become one, and which stores are left out."""

from __future__ import annotations

import pytest

from tinytorch.dtypes import float32, float64, tensor_meta
from tinytorch.graph.compiler.native.loops import Loop
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
