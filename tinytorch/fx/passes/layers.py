"""Convolution and linear layers with what follows them, and passes that replace them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.autotune import AutotunedPass, is_faster
from tinytorch.fx.passes.nodes import (
    arguments,
    aten,
    has_static_shape,
    insert,
    is_call,
    on_cpu,
    only_user,
    replace,
    value,
)
from tinytorch.fx.passes.packed import IMAGE_LAYERS, Epilogue, PackedLayer, Window
from tinytorch.fx.passes.strides import refresh_values, result_values
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.semantics import Semantics

#: Functions of a layer's result, by oneDNN's name for them.
UNARY: dict[Any, str] = {
    aten.relu.default: "relu", aten.relu_.default: "relu", aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh", aten.silu.default: "swish", aten.silu_.default: "swish",
    aten.gelu.default: "gelu",
}  # fmt: skip
LEAST_BYTES = 32 << 20  # of weights: two times as much, a layer's and its rival's, is in no cache
ADDITIONS = (aten.add.Tensor, aten.add_.Tensor)


@dataclass
class Layer:
    """A layer with constant weights, and what follows it.

    Attributes:
        nodes: the layer, perhaps an addition, perhaps a unary function, in order.
        position: of the input among the arguments of the first.
        weight: (O, I) or (O, I / groups, H, W).
        bias: (O,) or None.
        window: of a convolution; None for a linear layer.
        epilogue: what the nodes behind the first do.
        added_is_dead: nothing reads what is added afterwards, so the result may take its place.
    """

    nodes: list[Node]
    position: int
    weight: Tensor
    bias: Tensor | None
    window: Window | None
    epilogue: Epilogue = Epilogue()  # noqa: RUF009  (a tuple does not change)
    added_is_dead: bool = False

    @property
    def inputs(self) -> list[Node]:
        """The layer's inputs, and what is added to its result, if anything."""
        first: Any = self.nodes[0].args[self.position]
        if not self.epilogue.adds:
            return [first]
        terms: tuple[Any, ...] = self.nodes[1].args
        return [first, terms[1] if terms[0] is self.nodes[0] else terms[0]]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the inputs; of an open size that in the example."""
        return _sizes(self.inputs[0])

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for layers that take equally long."""
        kinds = tuple(str(n.target) for n in self.nodes)
        sizes = tuple(map(tuple, map(_sizes, self.inputs)))
        rest = (self.window, self.epilogue, self.in_place)
        return kinds, sizes, tuple(self.weight.shape), *rest

    @property
    def in_place(self) -> bool:
        """The result is to take the place of what is added, which has the layout for it."""
        return self.added_is_dead and isinstance(self.inputs[1].target, IMAGE_LAYERS)


class LayerPass(AutotunedPass):
    """Puts a packed layer in the place of nodes, for each kind of layer where that is faster.

    For layers with constant weights in float32, on the CPU. Results of the graph have the memory
    layout they had.

    Args:
        only_if_faster: time it; otherwise change all layers that can be.

    Attributes:
        unary: the functions that can be applied on the way.
    """

    unary: ClassVar[frozenset[str]]
    exact = False

    def __init__(self, semantics: Semantics, only_if_faster: bool = True) -> None:
        super().__init__(semantics)
        self.must_be_faster = only_if_faster

    @abstractmethod
    def accepts(self, layer: Layer) -> bool:
        """Whether there may be a packed form of this layer."""

    @abstractmethod
    def packed(self, layer: Layer) -> PackedLayer:
        """The function that computes all of it."""

    def rivals(self, layer: Layer) -> list[PackedLayer | None]:
        """What the packed layer must beat: other packed layers, None for the nodes themselves."""
        return [None]

    def analyze(self, graph: torch.fx.Graph) -> list[Layer]:
        """The layers that can be changed, each with what can be done on the way."""
        if not (torch._C._has_mkldnn and on_cpu(graph)):
            return []
        memory = Aliasing(graph, self.semantics)
        taken: set[Node] = set()
        layers = []
        for node in graph.nodes:
            layer = self._match(node)
            if layer is None or not self.accepts(layer):
                continue
            _extend(layer, taken, memory, self.unary)
            taken.update(layer.nodes)
            layers.append(layer)
        ends = {n: layer.nodes[-1] for layer in layers for n in layer.nodes}
        for layer in layers:
            if layer.epilogue.adds and layer.window is not None:
                layer.added_is_dead = self._is_dead_after(layer, ends, memory)
        return layers

    def transform(self, graph: torch.fx.Graph, found: list[Layer]) -> bool:
        verdicts: dict[Any, bool] = {}
        ready: dict[int, PackedLayer] = {}  # by the position of the layer
        results = result_values(graph)
        changed: list[Layer] = []
        for i, layer in enumerate(found):
            key = layer.key
            if self.must_be_faster and key not in verdicts:
                alike = [j for j in range(i, len(found)) if found[j].key == key][: _enough(layer)]
                packed = [self.packed(found[j]) for j in alike]
                verdicts[key] = self._win([found[j] for j in alike], packed)
                ready.update(zip(alike, packed, strict=True))
            if verdicts.get(key, True):
                _rewrite(graph, layer, ready.pop(i) if i in ready else self.packed(layer))
                changed.append(layer)
        if any(layer.window is not None for layer in changed):
            refresh_values(graph, results)
        return bool(changed)

    def _is_dead_after(self, layer: Layer, ends: dict[Node, Node], memory: Aliasing) -> bool:
        """What is added has memory of its own, and this layer is the last to read it.

        Args:
            ends: for each node of a layer the node that its layer will follow.
        """
        x, other = layer.inputs
        return (
            other is not x
            and other.op == "call_function"
            and other not in memory.returned
            and not self.semantics.aliases(other)
            and not any(other in self.semantics.aliases(user) for user in other.users)
            and all(ends.get(user, user) <= layer.nodes[-1] for user in other.users)
        )

    def _match(self, node: Node) -> Layer | None:
        """The layer that a node is, without what follows it."""
        if is_call(node, aten.conv2d.default, aten.convolution.default):
            return self._convolution(node)
        if is_call(node, aten.linear.default):
            given = arguments(node)
            return self._linear(node, 0, given["weight"], given["bias"])
        if is_call(node, aten.addmm.default) and not node.kwargs:
            return self._linear(node, 1, node.args[2], node.args[0], transposed=True)
        return None

    def _convolution(self, node: Node) -> Layer | None:
        given = arguments(node)
        x, bias_node = value(node.args[0]), given["bias"]
        weight, bias = self._constant(given["weight"]), self._constant(bias_node)
        if weight is None or (bias is None) != (bias_node is None) or given.get("transposed"):
            return None
        if x is None or x.dtype != torch.float32 or x.ndim != 4 or weight.ndim != 4:
            return None
        if not has_static_shape(node):
            return None
        figures = [tuple(given[name]) for name in ("stride", "padding", "dilation")]
        stride, padding, dilation = (f * 2 if len(f) == 1 else f for f in figures)
        window = Window(stride, padding, dilation, given["groups"])
        return Layer([node], 0, weight, bias, window)

    def _linear(
        self, node: Node, position: int, w: Any, b: Any, transposed: bool = False
    ) -> Layer | None:
        x, weight, bias = value(node.args[position]), self._constant(w), self._constant(b)
        if x is None or x.dtype != torch.float32 or weight is None or weight.ndim != 2:
            return None
        if (bias is None) != (b is None) or (bias is not None and bias.ndim != 1):
            return None
        return Layer([node], position, weight.t() if transposed else weight, bias, None)

    def _constant(self, node: Any) -> Tensor | None:
        is_attribute = isinstance(node, Node) and node.op == "get_attr"
        found = self.semantics.constant_value(node) if is_attribute else None
        return None if found is None else found.detach()

    def _win(self, layers: list[Layer], packed: list[PackedLayer]) -> bool:
        """The packed layers are faster than their rivals, on random numbers of these shapes.

        Args:
            layers: of one kind; one after the other, so that each finds its weight where the model
                does: in memory, if the weights are larger than the caches.
        """
        generator = torch.Generator().manual_seed(0)
        xs = [torch.randn(_sizes(n), generator=generator) for n in layers[0].inputs]
        if layers[0].window is not None:  # packed convolutions hand each other channels-last
            xs = [x.contiguous(memory_format=torch.channels_last) for x in xs]

        def run(functions: Sequence[Callable[..., object]]) -> None:
            for function in functions:
                function(*xs)

        return all(
            is_faster(partial(run, packed), partial(run, each))
            for each in zip(*map(self._rival_functions, layers), strict=True)
        )

    def _rival_functions(self, layer: Layer) -> list[Callable[..., object]]:
        def as_nodes(*xs: Tensor) -> None:
            values: dict[Node, Any] = dict(zip(layer.inputs, xs, strict=True))
            for node in layer.nodes:
                args, kwargs = torch.fx.node.map_arg(
                    (node.args, dict(node.kwargs)),
                    lambda n: values[n] if n in values else self._constant(n),
                )
                values[node] = self.semantics.evaluate(node, args, kwargs)

        return [as_nodes if each is None else each for each in self.rivals(layer)]


def _enough(layer: Layer) -> int:
    """How many layers like this one have weights that no cache holds; of convolutions one, as a
    weight is read again for each row of an image."""
    if layer.window is not None:
        return 1
    return -(-LEAST_BYTES // max(layer.weight.nbytes, 1))


def _extend(layer: Layer, taken: set[Node], memory: Aliasing, unary: frozenset[str]) -> None:
    """Take in what follows a layer, as far as the kernel can do it.

    What the kernel reads, it then reads later than it was: it must not be written in between.
    """
    if layer.inputs[0] in memory.written:
        return
    last = layer.nodes[0]
    user = only_user(last)
    if user is not None and user not in taken and is_call(user, *ADDITIONS):
        other = _added(last, user)
        # the linear kernel writes in the order of its own result, a sum in that of its first term
        fits = layer.window is not None or _has_strides_of(last, other)
        if other is not None and other not in memory.written and fits:
            layer.nodes.append(user)
            layer.epilogue = Epilogue(adds=True)
            user = only_user(user)
            if layer.window is None:
                return  # the linear kernel adds or applies, not both
        unary = unary & {"relu"}  # the only function that oneDNN's kernel applies to a sum
    if user is not None and user not in taken and UNARY.get(user.target) in unary:
        algorithm = arguments(user).get("approximate", "")
        layer.nodes.append(user)
        layer.epilogue = Epilogue(layer.epilogue.adds, UNARY[user.target], algorithm)


def _added(node: Node, addition: Node) -> Node | None:
    """The other term of an addition, if it is another tensor of the same shape."""
    first, second = addition.args
    if addition.kwargs or (addition.target is aten.add_.Tensor and first is not node):
        return None
    other = second if first is node else first
    own, its = value(node), value(other)
    if own is None or its is None or other is node:
        return None
    alike = (str(own.shape), own.dtype) == (str(its.shape), its.dtype)
    return other if alike else None  # type: ignore[return-value]


def _has_strides_of(node: Node, other: Node | None) -> bool:
    """The values of both are stored alike."""
    own, its = value(node), None if other is None else value(other)
    return own is not None and its is not None and str(own.stride()) == str(its.stride())


def _sizes(node: Node) -> list[int]:
    """Sizes of the value of a node; of an open size that in the example."""
    found = value(node)
    assert found is not None  # OneDnn._match
    return [n if isinstance(n, int) else n.node.hint for n in found.shape]


def _rewrite(graph: torch.fx.Graph, layer: Layer, packed: PackedLayer) -> None:
    last = layer.nodes[-1]
    with graph.inserting_before(last):
        new = insert(graph, packed, tuple(layer.inputs), like=last)
    found = value(last)
    if layer.window is not None and found is not None:
        new.meta["val"] = found.contiguous(memory_format=torch.channels_last)
    replace(graph, layer.nodes, new)
