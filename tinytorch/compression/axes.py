"""Which dimensions of a model's tensors are the same channels, found in its graph.

Each dimension of each value has an `Axis`. An op joins those that must shrink together: a linear
layer joins the columns of its weight with the features of its input, an addition the channels of
both sides (so a residual connection is one axis), a flattening says that one channel is so many
columns. Where dimensions are concatenated or sliced, an axis is a stretch of a dimension; where one
is reshaped into heads, a channel is a whole head. An op that needs all channels at once (a softmax,
a norm over features, a result of the model) fixes them, and the reason is kept.

Source: G. Fang and others, "DepGraph: towards any structural pruning", CVPR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from tinytorch.dtypes import Shape
from tinytorch.graph.ir import Graph, Node


class Axis:
    """A dimension, or a stretch of one; those that were joined have the same roots.

    Attributes:
        size: how many indices it has.
        parts: what it is made of, once it was joined to others or divided; else None.
        fixed: why nothing can be removed from it; None if something can. Only a root's counts.
    """

    def __init__(self, size: int, fixed: str | None = None) -> None:
        self.size = size
        self.parts: Label | None = None
        self.fixed = fixed


Label = tuple[tuple[Axis, int], ...]  # stretches in order; i of one is i // repeat of its axis
Labels = tuple[Label | None, ...]  # None for a dimension of size 1


def roots(label: Label) -> Label:
    """The stretches that a dimension has by now, with the axes that stand for all joined ones."""
    found: list[tuple[Axis, int]] = []
    for axis, repeat in label:
        if axis.parts is None:
            found.append((axis, repeat))
        else:
            found += [(root, inner * repeat) for root, inner in roots(axis.parts)]
    return tuple(found)


def fix(label: Label | None, why: str) -> None:
    """Forbid removing anything along the axes of this label; the first reason is kept."""
    for axis, _ in roots(label or ()):
        axis.fixed = axis.fixed or why


def join(a: Label | None, b: Label | None, why: str) -> None:
    """Two dimensions of the same size are the same channels.

    Args:
        why: the reason if they cannot be, as neither has a multiple of the other's repetitions.
    """
    if a is None or b is None:
        return
    while (ends := (_ends(a), _ends(b)))[0] != ends[1]:
        if not all(_cut(x, at) for x in (a, b) for at in set(ends[0]) ^ set(ends[1])):
            fix(a, why)
            fix(b, why)
            return
    for stretch, other in zip(roots(a), roots(b), strict=True):
        _unite(stretch, other, why)


def _unite(a: tuple[Axis, int], b: tuple[Axis, int], why: str) -> None:
    """Two stretches of the same length are the same channels."""
    ((root_a, repeat_a),), ((root_b, repeat_b),) = roots((a,)), roots((b,))
    if repeat_a < repeat_b:
        root_a, root_b, repeat_a, repeat_b = root_b, root_a, repeat_b, repeat_a
    if repeat_a % repeat_b or (root_a is root_b and repeat_a != repeat_b):
        fix((a, b), why)
    elif root_a is not root_b:
        root_b.parts = ((root_a, repeat_a // repeat_b),)
        root_a.fixed = root_a.fixed or root_b.fixed


def _ends(label: Label) -> list[int]:
    return list(accumulate(axis.size * repeat for axis, repeat in roots(label)))


def _cut(label: Label, at: int) -> bool:
    """Let a stretch end before index `at`; False if that is in the middle of a channel."""
    for axis, repeat in roots(label):
        if at < axis.size * repeat:
            if at % repeat == 0 and at:
                sizes = at // repeat, axis.size - at // repeat
                axis.parts = tuple((Axis(n, axis.fixed), 1) for n in sizes)
            return at % repeat == 0
        at -= axis.size * repeat
    return at == 0


def _between(label: Label, start: int, stop: int) -> Label | None:
    """The stretches from start to stop; None if one would begin in the middle of a channel."""
    if not (_cut(label, start) and _cut(label, stop)):
        return None
    found = roots(label)
    return tuple(x for x, end in zip(found, _ends(label), strict=True) if start < end <= stop)


def label_values(
    graph: Graph, shapes: Callable[[Node], Shape], removable: Callable[[Node], bool]
) -> dict[Node, Labels]:
    """Labels for each value of a graph, after all ops have joined and fixed theirs.

    Args:
        graph: a forward.
        shapes: of a node's value.
        removable: whether an input is state of the model, which can shrink.
    """
    labels: dict[Node, Labels] = {}
    for node in graph.nodes:
        if node.op == "output":
            for each in node.all_input_nodes:
                _fix(labels[each], "it is a result of the model")
        elif node.op == "call_function":
            inputs = [labels[a] if isinstance(a, Node) else () for a in node.args]
            sizes = [shapes(a) if isinstance(a, Node) else () for a in node.args]
            rule = RULES.get(node.target.name, _rule_of_kind(node.target.kind))
            labels[node] = rule(node, inputs, sizes, shapes(node))
        else:
            given = node.op == "placeholder" and removable(node)
            why = None if given else "it is given from outside the model"
            labels[node] = _fresh(shapes(node), why)
    return labels


def _fresh(shape: Shape, why: str | None = None) -> Labels:
    return tuple(None if n == 1 else ((Axis(n, why), 1),) for n in shape)


def _fix(labels: Iterable[Label | None], why: str) -> None:
    for label in labels:
        fix(label, why)


def _because(node: Node, what: str) -> str:
    """What a node does, and where in the user's code."""
    return f"{node.target.name} {what}" + (f" at {node.stack_trace}" if node.stack_trace else "")


Rule = Callable[[Node, Sequence[Labels], Sequence[Shape], Shape], Labels]


def _all_at_once(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    """An op of which no more is known: it needs every index of every dimension."""
    why = _because(node, "uses all of it at once")
    for labels in inputs:
        _fix(labels, why)
    return _fresh(shape, why)


def _broadcast(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    """Dimensions that lie above each other, counted from the last, are the same."""
    why = _because(node, "meets channels that are counted otherwise")
    result: list[Label | None] = [None] * len(shape)
    for labels in inputs:
        for i, label in enumerate(reversed(labels), 1):
            join(result[-i], label, why)
            result[-i] = result[-i] or label
    return tuple(result)


def _linear(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    x, w, *b = inputs
    why = _because(node, "meets channels that are counted otherwise")
    join(x[-1], w[1], why)
    for bias in b:
        join(w[0], bias[0], why)
    return (*x[:-1], w[0])


def _matmul(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    a, b = inputs
    if len(a) < 2 or len(b) < 2:
        return _all_at_once(node, inputs, sizes, shape)
    join(a[-1], b[-2], _because(node, "meets channels that are counted otherwise"))
    batch = _broadcast(node, [a[:-2], b[:-2]], [], shape[:-2])
    return (*batch, a[-2], b[-1])


def _conv2d(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    x, w, *b = inputs
    why = _because(node, "meets channels that are counted otherwise")
    groups, channels = node.kwargs["groups"], sizes[0][1]
    if groups == 1:
        join(x[1], w[1], why)
    elif groups == channels == sizes[1][0]:  # depthwise: a filter for each channel
        join(x[1], w[0], why)
    else:
        for label in (x[1], w[0], w[1]):
            fix(label, _because(node, f"has {groups} groups of channels"))
    for bias in b:
        join(w[0], bias[0], why)
    _fix((*x[2:], *w[2:]), _because(node, "slides over it"))
    return (x[0], w[0], *_fresh(shape[2:], why))


def _pooled(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    why = _because(node, "slides over it")
    _fix(inputs[0][2:], why)
    return (*inputs[0][:2], *_fresh(shape[2:], why))


def _reduced(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    dims, (labels,) = node.kwargs["dims"], inputs
    for d in dims:
        fix(labels[d], _because(node, "uses all of it at once"))
    if node.kwargs["keepdim"]:
        return tuple(None if d in dims else label for d, label in enumerate(labels))
    return tuple(label for d, label in enumerate(labels) if d not in dims)


def _normalized(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    """softmax and layer_norm: one dimension is used at once, the others are apart."""
    for labels in inputs:
        fix(labels[node.kwargs.get("dim", -1)], _because(node, "uses all of it at once"))
    return inputs[0]


def _batch_norm(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    why = _because(node, "meets channels that are counted otherwise")
    for labels in inputs[1:]:
        join(inputs[0][1], labels[0], why)
    return inputs[0]


def _permuted(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    return tuple(inputs[0][d] for d in node.kwargs["dims"])


def _sliced(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    why = _because(node, "takes a part of it")
    result: list[Label | None] = []
    for label, size, (start, stop, step) in zip(
        inputs[0], sizes[0], node.kwargs["bounds"], strict=True
    ):
        if label is not None and (start, stop, step) != (0, size, 1):
            part = _between(label, start, stop) if step == 1 else None
            if part is None:
                fix(label, why)
                (part,) = _fresh((len(range(start, stop, step)),), why)
            label = part
        result.append(label)
    return tuple(result)


def _cat(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    """One behind the other along a dimension; the others are the same in all."""
    dim = node.kwargs["dim"] % len(shape)
    result = list(_broadcast(node, [(*x[:dim], None, *x[dim + 1 :]) for x in inputs], [], shape))
    stretches = [x[dim] or ((Axis(n[dim]), 1),) for x, n in zip(inputs, sizes, strict=True)]
    result[dim] = tuple(stretch for label in stretches for stretch in label)
    return tuple(result)


def _attention(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    """Heads (the third dimension from the last) can go; each of the values serves some queries."""
    if len(shape) < 3:
        return _all_at_once(node, inputs, sizes, shape)
    why = _because(node, "uses all of it at once")
    q, *others = (x[-3:] if len(x) > 2 else (None, *x) for x in inputs)
    heads = q[0]
    for i, label in enumerate(x[0] for x in others):
        shared = sizes[0][-3] // sizes[i + 1][-3] if label else 1
        join(heads, label and tuple((axis, n * shared) for axis, n in label), why)
    for x in (q, *others):
        _fix(x[1:], why)
    batch = _broadcast(node, [x[:-3] for x in inputs], [], shape[:-3])
    return (*batch, heads, *_fresh(shape[-2:], why))


def _reshaped(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    """Dimensions that stay keep their label. Of several that become one the first is repeated, and
    the others fixed; of one that becomes several a channel is an index of the first."""
    if 0 in shape:
        return _all_at_once(node, inputs, sizes, shape)
    why = _because(node, "mixes it with other dimensions")
    old = [(n, label) for n, label in zip(sizes[0], inputs[0], strict=True) if n != 1]
    new = [n for n in shape if n != 1]
    found: list[Label | None] = []
    while old:
        before, after = [old.pop(0)], [new.pop(0)]
        while (left := math.prod(n for n, _ in before)) != (right := math.prod(after)):
            if left < right:
                before.append(old.pop(0))
            else:
                after.append(new.pop(0))
        found += _regrouped(before, after, why)
    rest = iter(found)
    return tuple(None if n == 1 else next(rest) for n in shape)


def _regrouped(
    before: list[tuple[int, Label | None]], after: list[int], why: str
) -> list[Label | None]:
    """Labels of dimensions that hold together what those before held."""
    (size, first), *others = before
    _fix([label for _, label in others], why)
    if len(after) == 1:
        inner = after[0] // size
        return [first and tuple((axis, repeat * inner) for axis, repeat in first)]
    if others:  # they are divided in another way
        fix(first, why)
        return [*_fresh(tuple(after), why)]
    outer = Axis(after[0])
    join(first, ((outer, size // after[0]),), why)
    return [((outer, 1),), *_fresh(tuple(after[1:]), why)]


def _rule_of_kind(kind: str) -> Rule:
    return {"elementwise": _broadcast, "pooling": _pooled}.get(kind, _all_at_once)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("gelu", "cast", "copy", "detach", "expand"), _broadcast),
    **dict.fromkeys(("sum", "amax", "amin"), _reduced),
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm"), _normalized),
    "linear": _linear,
    "matmul": _matmul,
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    "permute": _permuted,
    "slice": _sliced,
    "reshape": _reshaped,
    "cat": _cat,
    "scaled_dot_product_attention": _attention,
}
