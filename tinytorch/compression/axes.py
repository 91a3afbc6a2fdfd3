"""Which dimensions of a model's tensors are the same channels, found in its graph.

Each dimension of each value has an `Axis`. An op joins those that must shrink together: a linear
layer joins the columns of its weight with the features of its input, an addition the channels of
both sides (so a residual connection is one axis), a flattening says that one channel is so many
columns. An op that needs all channels at once (a softmax, a norm over features, a result of the
model) fixes them, and the reason is kept.

Source: G. Fang and others, "DepGraph: towards any structural pruning", CVPR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tinytorch.dtypes import Shape
from tinytorch.graph.ir import Graph, Node


class Axis:
    """A dimension; those that were joined have the same `root`.

    Attributes:
        size: how many indices it has.
        parent, repeat: the axis it was joined to, of which each index is `repeat` of this one's.
        fixed: why nothing can be removed from it; None if something can. Only a root's counts.
    """

    def __init__(self, size: int, fixed: str | None = None) -> None:
        self.size = size
        self.parent: Axis | None = None
        self.repeat = 1
        self.fixed = fixed

    def root(self) -> tuple[Axis, int]:
        """The axis that stands for all that were joined, and how often it is repeated here."""
        axis, repeat = self, 1
        while axis.parent is not None:
            axis, repeat = axis.parent, repeat * axis.repeat
        return axis, repeat


Label = tuple[Axis, int]  # index i of the dimension is index i // repeat of the axis
Labels = tuple[Label | None, ...]  # None for a dimension of size 1


def fix(label: Label | None, why: str) -> None:
    """Forbid removing anything along the axis with this label; the first reason is kept."""
    if label is not None:
        axis, _ = label[0].root()
        axis.fixed = axis.fixed or why


def join(a: Label | None, b: Label | None, why: str) -> None:
    """Two dimensions of the same size are the same channels.

    Args:
        why: the reason if they cannot be, as neither has a multiple of the other's repetitions.
    """
    if a is None or b is None:
        return
    (root_a, inner_a), (root_b, inner_b) = a[0].root(), b[0].root()
    repeat_a, repeat_b = inner_a * a[1], inner_b * b[1]
    if root_a is root_b:
        if repeat_a != repeat_b:
            fix(a, why)
        return
    if repeat_a < repeat_b:
        root_a, root_b, repeat_a, repeat_b = root_b, root_a, repeat_b, repeat_a
    if repeat_a % repeat_b:
        fix(a, why)
        fix(b, why)
        return
    root_b.parent, root_b.repeat = root_a, repeat_a // repeat_b
    root_a.fixed = root_a.fixed or root_b.fixed


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
    return tuple(None if n == 1 else (Axis(n, why), 1) for n in shape)


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


def _last_fixed(
    node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape
) -> Labels:
    """softmax and layer_norm: the last dimension is used at once, the others are apart."""
    for labels in inputs:
        _fix(labels[-1:], _because(node, "uses all of it at once"))
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
    result: list[Label | None] = []
    for label, before, after in zip(inputs[0], sizes[0], shape, strict=True):
        if before != after:
            why = _because(node, "takes a part of it")
            fix(label, why)
            label = None if after == 1 else (Axis(after, why), 1)
        result.append(label)
    return tuple(result)


def _reshaped(node: Node, inputs: Sequence[Labels], sizes: Sequence[Shape], shape: Shape) -> Labels:
    """Dimensions that stay keep their label. Of several that become one the first is repeated, and
    the others fixed; one that becomes several is fixed."""
    why = _because(node, "mixes it with other dimensions")
    old = [(n, label) for n, label in zip(sizes[0], inputs[0], strict=True) if n != 1]
    result: list[Label | None] = []
    for n in shape:
        if n == 1:
            result.append(None)
            continue
        parts: list[tuple[int, Label | None]] = []
        while old and math.prod(m for m, _ in parts) < n:
            parts.append(old.pop(0))
        if math.prod(m for m, _ in parts) != n:  # it begins in the middle of a dimension
            _fix([label for _, label in (*parts, *old)], why)
            return (*result, *_fresh(shape[len(result) :], why))
        _, first = parts[0]
        _fix([label for _, label in parts[1:]], why)
        inner = n // parts[0][0]
        result.append(first and (first[0], first[1] * inner))
    return tuple(result)


def _rule_of_kind(kind: str) -> Rule:
    return {"elementwise": _broadcast, "pooling": _pooled}.get(kind, _all_at_once)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("gelu", "cast", "copy", "detach", "expand"), _broadcast),
    **dict.fromkeys(("sum", "amax", "amin"), _reduced),
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm"), _last_fixed),
    "linear": _linear,
    "matmul": _matmul,
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    "permute": _permuted,
    "slice": _sliced,
    "reshape": _reshaped,
}
