"""A forward and its gradients as one graph: traced from a graph, or from a function.

A graph of a forward is enough where every gradient follows from its ops. An `autograd.Function` has
a backward that they do not tell, so a function with one inside is traced once more, and the trace
goes on through `grad`, which calls it.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinytorch.autograd import grad
from tinytorch.graph.bindings import ArgumentBinding, Binding, SeedBinding, StateBinding
from tinytorch.graph.compiler.lower import example_of, result_nodes
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.pytree import tree_flatten, tree_unflatten
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.graph.symbols import TraceError
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TracedFunction
from tinytorch.tensor import Tensor


@dataclass
class JointGraph:
    """Results and gradients of a forward as one graph.

    Attributes:
        graph: its inputs are those of the forward's graph, and then gradients of results; its
            results are those of the forward's graph, and then gradients of wanted inputs.
        outputs: positions of the results that have a gradient.
        gradients: positions of the inputs that are the gradients of these.
        reached: for each wanted input whether it has a gradient.
    """

    graph: Graph
    outputs: list[int]
    gradients: list[int]
    reached: list[bool]


def joint_of_graph(graph: Graph, count: int, wanted: tuple[int, ...]) -> JointGraph:
    """Replay a graph and its gradients in a trace.

    Args:
        graph: of a forward; its first `count` results may have gradients.
        wanted: positions of the inputs that require gradients.
    """
    inputs, may_have = graph.find_nodes(op="placeholder"), _differentiable_results(graph, count)
    examples = [example_of(node) for node in inputs]
    for i in wanted:
        examples[i].requires_grad = True
    outputs: list[int] = []

    def joint(*tensors: Tensor) -> Any:
        given = tensors[: len(inputs)]
        values = list(_Replay(graph).run(*given))
        found = _gradients(
            values, dict(zip(may_have, tensors[len(inputs) :], strict=True)),
            [given[i] for i in wanted], outputs,
        )  # fmt: skip
        return values, found

    names = [*(n.name for n in inputs), *(f"grad_of_{i}" for i in may_have)]
    joint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in _unique(names)]
    )
    results = result_nodes(graph)
    traced = trace(joint, *examples, *[example_of(results[i]) for i in may_have], decompose=None)
    return JointGraph(
        _with_constants(traced),
        outputs,
        [len(inputs) + may_have.index(i) for i in outputs],
        [leaf is not None for leaf in traced.signature.out_leaves[len(results) :]],
    )


def joint_of_function(
    traced: TracedFunction, leaves: Sequence[Any], wanted: tuple[int, ...]
) -> JointGraph:
    """Trace a function once more, with the gradients of its results.

    Args:
        traced: the function's forward.
        leaves: of arguments that fit.
        wanted: positions of the inputs that require gradients.

    Raises:
        TraceError: the backward cannot be traced, or needs what the forward does not.
    """
    s = traced.signature
    results = result_nodes(traced.graph)
    may_have = _differentiable_results(traced.graph, len(results) - len(s.updates))
    outputs: list[int] = []

    def joint(
        function: Callable[..., Any],
        seeds: list[Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        given = tree_flatten((args, kwargs))[0]
        result = tree_flatten(function(*args, **kwargs))[0]
        values = [leaf for leaf in result if isinstance(leaf, Tensor)]
        sources = [s.inputs[i].read(given) for i in wanted]
        found = _gradients(values, dict(zip(may_have, seeds, strict=True)), sources, outputs)
        return values, found

    args, kwargs = tree_unflatten(list(leaves), s.in_spec)
    seeds = [example_of(results[i]) for i in may_have]
    # a partial function, in which a trace finds what the function can reach
    again = trace(partial(joint, traced.function), seeds, args, kwargs, decompose=None)
    graph = _Rearranged(again, traced, len(seeds)).graph
    return JointGraph(
        graph,
        outputs,
        [len(s.inputs) + may_have.index(i) for i in outputs],
        [leaf is not None for leaf in again.signature.out_leaves[-len(wanted) :]],
    )


def _differentiable_results(graph: Graph, count: int) -> list[int]:
    """The positions of those of the first `count` results that may have gradients."""
    return [
        i
        for i, node in enumerate(result_nodes(graph)[:count])
        if node.meta["tensor_meta"].dtype.is_floating_point and node.op != "placeholder"
    ]


def _gradients(
    values: list[Tensor], seeds: dict[int, Tensor], sources: list[Tensor], outputs: list[int]
) -> list[Tensor | None]:
    """Gradients for the sources of those values that have some; `outputs` becomes which.

    Args:
        seeds: the gradients of values, by their positions.
    """
    outputs[:] = [i for i in seeds if values[i].requires_grad]
    if not outputs:
        return [None] * len(sources)
    return list(
        grad([values[i] for i in outputs], sources, [seeds[i] for i in outputs], allow_unused=True)
    )


class _Replay(Interpreter):
    """Runs a graph in a trace; new nodes say the user's line that the old ones said."""

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and n.stack_trace is not None:
            value._data.node.meta["stack_trace"] = n.stack_trace
        return value


def _with_constants(traced: TracedFunction) -> Graph:
    """The graph; tensors that the trace met outside are the constants of the first graph."""
    graph = traced.graph
    nodes = graph.find_nodes(op="placeholder")
    for node, binding in zip(nodes, traced.signature.inputs, strict=True):
        if isinstance(binding, StateBinding):
            with graph.inserting_before(node):
                constant = TINYTORCH.constant(graph, binding.tensor)
            node.replace_all_uses_with(constant)
            graph.erase_node(node)
    return graph


def _unique(names: list[str]) -> list[str]:
    """Identifiers, each once."""
    taken: dict[str, None] = {}
    for name in names:
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken[name] = None
    return list(taken)


class _Rearranged:
    """A function with its gradients, as a graph with inputs and results in a `JointGraph`'s order.

    Args:
        again: the function with its gradients; its first `seeds` arguments are those of results.
        traced: the function alone.

    Raises:
        TraceError: they differ in more than gradients.
    """

    def __init__(self, again: TracedFunction, traced: TracedFunction, seeds: int) -> None:
        self._again, self._traced, self._seeds = again, traced, seeds
        new, old = again.signature, traced.signature
        if new.clears or len(new.value_guards) != len(old.value_guards):
            raise self._error("clears a gradient, or looks at values")
        self.graph = Graph()
        self.graph.constants = dict(again.graph.constants)
        copies = self._inputs()
        for node in again.graph.nodes:
            if node not in copies and node.op != "output":
                copies[node] = self.graph.node_copy(node, copies.__getitem__)
        nodes = result_nodes(again.graph)
        places = self._places(new.updates, old.updates, "writes into")
        if len(places) != len(old.updates):
            raise self._error("writes into less")
        count = len(nodes) - len(new.updates)
        own = len(result_nodes(traced.graph)) - len(old.updates)
        updates = [nodes[count + places.index(i)] for i in range(len(places))]
        order = [*nodes[:own], *updates, *nodes[own:count]]
        self.graph.output(tuple(copies[node] for node in order))
        self.graph.lint()

    def _inputs(self) -> dict[Node, Node]:
        """Inputs like those of the function alone, and then the gradients of results."""
        own = self._traced.graph.find_nodes(op="placeholder")
        nodes = self._again.graph.find_nodes(op="placeholder")
        given = self._again.signature.inputs
        is_seed = [isinstance(b, ArgumentBinding) and b.position < self._seeds for b in given]
        seeds = [node for node, yes in zip(nodes, is_seed, strict=True) if yes]
        others = [(node, b) for node, b, yes in zip(nodes, given, is_seed, strict=True) if not yes]
        places = self._places([b for _, b in others], self._traced.signature.inputs, "reads")
        found = {place: node for place, (node, _) in zip(places, others, strict=True)}
        copies: dict[Node, Node] = {}
        for i, node in enumerate([*own, *seeds]):
            new = self.graph.create_node("placeholder", node.target, name=node.name)
            new.meta.update(node.meta)
            copies[found.get(i, node) if i < len(own) else node] = new
        return copies

    def _places(self, new: Sequence[Binding], old: Sequence[Binding], does: str) -> list[int]:
        """For each binding where the function alone has it; numbers that it draws, in order."""
        left = dict(enumerate(old))
        places = []
        for binding in new:
            i = next((i for i, other in left.items() if self._is_same(binding, other)), None)
            if i is None:
                raise self._error(f"{does} what the forward does not")
            places.append(i)
            del left[i]
        return places

    def _is_same(self, new: Binding, old: Binding) -> bool:
        if isinstance(new, ArgumentBinding):
            return ArgumentBinding(new.position - self._seeds).same(old)
        if isinstance(new, SeedBinding):
            return isinstance(old, SeedBinding) and new.generator is old.generator
        return new.same(old)

    def _error(self, what: str) -> TraceError:
        return TraceError(f"the backward of {self._traced.signature.own_backward} {what}")
