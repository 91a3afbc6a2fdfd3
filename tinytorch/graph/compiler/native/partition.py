"""Division of steps among threads: which parts of a result can be computed without the others.

A result is cut along one of its dimensions. Each part is a step of its own: the same op on slices
of the operands, into a slice of the result. So whatever writes a step writes its parts, and a part
has the numbers that the whole would have.

    linear(x, w, bias), along its last dimension:   linear(x, w[i:j], bias[i:j])
    softmax(x, dim=-1), along its first:            softmax(x[i:j], dim=-1)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tinytorch.graph.compiler.native.groups import HEADS, add_to_loop, body_of, head_of
from tinytorch.graph.compiler.native.loops import Loop, Value
from tinytorch.graph.compiler.native.strides import disjoint_extents
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import Memory, StridedView
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.op import OPS

LANES = 16  # columns of a product are cut at multiples of this
MIN_PARALLEL_WORK = 2000.0  # nanoseconds of work from which it pays that two threads meet
FLOPS, BYTES, LOOP_OPS = 80.0, 60.0, 30.0  # per nanosecond, roughly; ops on elements, of loops

Axes = tuple[int | None, ...]  # for each operand the dimension to cut; None: it is needed whole


def narrow(view: StridedView, axis: int, start: int, stop: int) -> StridedView:
    """The part of a view from start to stop along a dimension."""
    shape = (*view.shape[:axis], stop - start, *view.shape[axis + 1 :])
    return replace(view, shape=shape, offset=view.offset + start * view.strides[axis])


def bounds(extent: int, count: int, unit: int = 1) -> list[tuple[int, int]] | None:
    """`count` ranges of multiples of `unit`, as equal as can be; None if one would be empty."""
    units = -(-extent // unit)
    if units < count:
        return None
    ends = [min(extent, units * i // count * unit) for i in range(count + 1)]
    return list(itertools.pairwise(ends))


def disjoint(a: StridedView, b: StridedView) -> bool:
    """Two views share no element; also where they lie side by side in the rows of one matrix."""
    if disjoint_extents(a, b):
        return True
    if a.strides != b.strides or a.dtype is not b.dtype:
        return False
    first, second = (a, b) if a.offset <= b.offset else (b, a)
    distance = second.offset - first.offset
    steps = list(zip(first.shape, second.shape, first.strides, strict=True))
    for axis, (n, m, stride) in enumerate(steps):
        wider = [
            s for k, (x, y, s) in enumerate(steps) if k != axis and max(x, y) > 1 and s > stride
        ]
        room = min(wider, default=math.inf)
        beside = stride > 0 and distance % stride == 0 and distance // stride >= n
        if beside and distance + m * stride <= room and _is_nested(steps, axis):
            return True
    return False


def _is_nested(steps: Sequence[tuple[int, int, int]], axis: int) -> bool:
    """Inside of one step along the dimension lie all that are narrower."""
    stride = steps[axis][2]
    inside = [(max(n, m) - 1) * s for k, (n, m, s) in enumerate(steps) if k != axis and s <= stride]
    return all(s >= 0 for _, _, s in steps) and sum(inside) < stride


# -- loops -----------------------------------------------------------------------------------------


def divide_loop(loop: Loop, count: int) -> list[Loop] | None:
    """Loops over parts of the first dimension that is long enough."""
    for axis, n in enumerate(loop.shape):
        ranges = bounds(n, count)
        if ranges is not None:
            return [_part_of_loop(loop, axis, *each) for each in ranges]
        if n != 1:
            break  # behind it elements are not adjacent
    return None


def _part_of_loop(loop: Loop, axis: int, start: int, stop: int) -> Loop:
    def part(operand: Any) -> Any:
        if not isinstance(operand, StridedView):
            return operand
        own = axis - (len(loop.shape) - len(operand.shape))
        if own < 0 or operand.shape[own] != loop.shape[axis]:
            return operand
        return narrow(operand, own, start, stop)

    found = Loop((*loop.shape[:axis], stop - start, *loop.shape[axis + 1 :]))
    for i in loop.instructions:
        found.instructions.append(replace(i, operands=tuple([part(o) for o in i.operands])))
    found.stores = [(value if isinstance(value, Value) else part(value), part(view))
                    for value, view in loop.stores]  # fmt: skip
    found.comments, found.nodes = loop.comments, loop.nodes
    return found


def loop_work(loop: Loop) -> float:
    """About how many nanoseconds it takes."""
    size = math.prod(loop.shape)
    moved = sum(p.size * p.dtype.itemsize for p in (*loop.read(), *loop.written()))
    return max(size * len(loop.instructions) / LOOP_OPS, moved / BYTES)


# -- other steps -----------------------------------------------------------------------------------


def divide(step: Step, count: int) -> list[Step] | None:
    """Steps that together do this one, in any order or at once; None if there are no such."""
    if any(not isinstance(value, StridedView) for value in step.inputs):
        return None
    for axis, operands in _ways(step):
        is_last = axis == len(step.output.shape) - 1
        ranges = bounds(step.output.shape[axis], count, LANES if is_last and axis else 1)
        if ranges is None:
            continue
        parts = [_part_of_step(step, axis, operands, *each) for each in ranges]
        if _independent(parts):
            return parts
    return None


def _part_of_step(step: Step, axis: int, operands: Axes, start: int, stop: int) -> Step:
    inputs = [
        view if own is None or not isinstance(view, StridedView) else narrow(view, own, start, stop)
        for view, own in zip(step.inputs, operands, strict=True)
    ]
    return replace(step, inputs=tuple(inputs), output=narrow(step.output, axis, start, stop))


def _independent(parts: Sequence[Step]) -> bool:
    """No part writes what another reads or writes."""
    return all(
        disjoint(a.output, view)
        for a in parts
        for b in parts
        if a is not b
        for view in (b.output, *b.inputs)
        if isinstance(view, StridedView)
    )


def divide_sum(step: Step, count: int) -> list[Step] | None:
    """Steps whose results, all of the shape of the whole, add up to it; None if it is no sum.

    The first writes to the whole output, and so do the others, unless they are told better. Of a
    group that begins with such a sum, the parts are parts of that sum alone; what the group does to
    it is to be done with the total.
    """
    out, body = step.output, body_of(step.op)
    head = None if body is None else head_of(body)
    if body is not None and (head is None or head.target.name != "conv2d_weight"):
        return None
    cut = [i for i, view in enumerate(step.inputs) if isinstance(view, StridedView)]
    if body is None:
        name, shapes = step.op.name, [step.inputs[i].shape for i in cut]  # type: ignore[union-attr]
        is_sum = (
            name in ("conv2d_weight", "group_norm_weight")
            or (name == "layer_norm_weight" and len(shapes[0]) > 1)
            or (name == "sum" and 0 in step.params["dims"])
        )
    else:
        assert head is not None
        placeholders = body.find_nodes(op="placeholder")
        cut = [i for i in cut if head in placeholders[i].users]
        is_sum = all(set(placeholders[i].users) == {head} for i in cut)
    views = [view for i in cut if isinstance(view := step.inputs[i], StridedView)]
    if not is_sum or not all(disjoint(out, view) for view in views):
        return None
    ranges = bounds(views[0].shape[0], count)
    if ranges is None:
        return None
    return [
        replace(
            step,
            inputs=tuple([
                narrow(view, 0, *each) if i in cut and isinstance(view, StridedView) else view
                for i, view in enumerate(step.inputs)
            ]),
        )
        for each in ranges
    ]  # fmt: skip


def loop_of_sums(step: Step, sums: Sequence[StridedView]) -> Loop:
    """Add up what the parts of a sum gave, and do what its group does to it."""
    body = body_of(step.op)
    loop, add = Loop(step.output.shape), OPS["add"]
    assert add.scalar is not None
    total: Any = sums[0]
    for other in sums[1:]:
        total = loop.op("add", add.scalar, [total, other], sums[0].dtype)
    if body is not None:
        placeholders = body.find_nodes(op="placeholder")
        values: dict[Node, Any] = dict(zip(placeholders, step.inputs, strict=True))
        head = head_of(body)
        assert head is not None
        values[head] = total
        add_to_loop(loop, [n for n in body.find_nodes(op="call_function") if n is not head], values)
        total = values[body.output_node().args[0]]
    loop.store(total, step.output)
    return loop


def step_work(step: Step) -> float:
    """About how many nanoseconds it takes."""
    cost = TINYTORCH.cost(step.node)
    return cost.flops / FLOPS + cost.bytes / BYTES


def _ways(step: Step) -> Iterator[tuple[int, Axes]]:
    """Dimensions of the result along which it can be cut, the best first."""
    body = body_of(step.op)
    if body is None:
        shapes = [view.shape for view in step.inputs if isinstance(view, StridedView)]
        yield from _ways_of(step.op.name, step, shapes)
        return
    head = head_of(body)
    if head is None or head.meta["tensor_meta"].shape != step.output.shape:
        return
    placeholders = body.find_nodes(op="placeholder")
    shapes = [a.meta["tensor_meta"].shape for a in head.args]
    for axis, operands in _ways_of(head.target.name, step, shapes):
        by_head: dict[Node, set[int | None]] = {}
        for node, own in zip(head.args, operands, strict=True):  # one node may be both operands
            by_head.setdefault(node, set()).add(own)
        found = [_axis_in_group(p, head, axis, by_head) for p in placeholders]
        if all(len(axes) == 1 for axes in found):
            yield axis, tuple([axes.pop() for axes in found])


def _axis_in_group(
    placeholder: Node, head: Node, axis: int, by_head: dict[Node, set[int | None]]
) -> set[int | None]:
    """The dimensions to cut that the users of an operand want; more than one is a contradiction."""
    found = set(by_head.get(placeholder, ()))
    if any(user is not head for user in placeholder.users):
        shape, whole = placeholder.meta["tensor_meta"].shape, head.meta["tensor_meta"].shape
        own = axis - (len(whole) - len(shape))
        found.add(None if own < 0 or shape[own] != whole[axis] else own)
    return found


# -- rules -----------------------------------------------------------------------------------------

_Rule = Callable[[Step, list[Any]], Iterator[tuple[int, Axes]]]


def _ways_of(name: str, step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """The same for an op that is not fused; `shapes` are those of its operands."""
    if step.output.shape and name in _RULES:
        yield from _RULES[name](step, shapes)


def _first_of(*numbers: int | None) -> _Rule:
    """Along the first dimension, which is the one of these of each operand."""

    def rule(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
        yield 0, numbers[: len(shapes)]

    return rule


def _rows(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """Functions of rows: all operands are cut alike."""
    if step.params["dim"] != 0:
        yield 0, (0,) * len(shapes)


def _linear(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """Of weights and of inputs, those of which there are more are divided."""
    x, w, *_ = shapes
    last = len(step.output.shape) - 1
    by_column = last, (None, 0, 0)[: len(shapes)]
    by_row = 0, (0, None, None)[: len(shapes)]
    ways = [by_column, by_row] if w[0] >= math.prod(x[:-1]) else [by_row, by_column]
    yield from ways if last else [by_column]


def _quantized_linear(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """Rows of codes; x, and the range that it is rounded by, are needed whole."""
    yield len(step.output.shape) - 1, (None, 0, 0, 0, None)[: len(shapes)]


def _linear_weight(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """Rows first: they are the rows that the thread reads in the forward."""
    g, x = shapes
    yield 0, (len(g) - 1, None)
    yield 1, (None, len(x) - 1)


def _matmul(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    a, b = shapes
    out = step.output.shape
    if len(a) < 2 or len(b) < 2:
        return
    d = len(out)
    for axis in range(d - 2):
        own = [axis - (d - len(shape)) for shape in shapes]
        yield axis, tuple([
            k if k >= 0 and shape[k] == out[axis] else None
            for k, shape in zip(own, shapes, strict=True)
        ])  # fmt: skip
        if out[axis] != 1:
            return
    by_row, by_column = (d - 2, (len(a) - 2, None)), (d - 1, (None, len(b) - 1))
    yield from [by_column, by_row] if out[-1] > out[-2] else [by_row, by_column]


def _layer_norm(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    d = len(step.output.shape)
    if d > 1:
        yield 0, tuple([0 if len(shape) == d else None for shape in shapes])


def _take(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    """An index that is an input has been checked before any part begins."""
    index = step.inputs[1]
    assert isinstance(index, StridedView)
    if index.shape and index.buffer.memory is Memory.INPUT:
        yield 0, (None, 0)


def _reduction(step: Step, shapes: list[Any]) -> Iterator[tuple[int, Axes]]:
    if 0 not in step.params["dims"]:
        yield 0, (0,)


# What divides by the number of rows (cross entropy's mean) is not here: a part has fewer of them.
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"), _rows),
    **dict.fromkeys(("sum", "amax", "amin"), _reduction),
    **dict.fromkeys(("layer_norm", "layer_norm_backward"), _layer_norm),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "max_pool2d_select"), _first_of(0, 0)),
    **dict.fromkeys(("max_pool2d_backward", "avg_pool2d_backward"), _first_of(0, 0)),
    "conv2d": _first_of(0, None, None),
    "group_norm": _first_of(0, None, None),
    "group_norm_backward": _first_of(0, 0, None),
    "conv2d_input": _first_of(0, None),
    "linear": _linear,
    "quantized_linear": _quantized_linear,
    "linear_weight": _linear_weight,
    "matmul": _matmul,
    "take": _take,
}
assert set(_RULES) >= HEADS - {"conv2d_weight"}
