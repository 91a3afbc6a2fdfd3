"""Fusion: one kernel for a chain of elementwise ops, and for what ends a contraction."""

from __future__ import annotations

from dataclasses import dataclass

from tinytorch.graph.passes.algebra import INHERITED
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics


@dataclass
class Group:
    """Nodes that become one.

    Attributes:
        nodes: in the graph's order; the last is the only one used outside.
        inputs: nodes outside that they use.
        saved: bytes that need not be written and read again.
    """

    nodes: list[AnyNode]
    inputs: list[AnyNode]
    saved: int


@register_pass
class Fusion(OptimizationPass):
    """Makes groups of nodes into single nodes whose meaning is the group's graph.

    A group grows from its last node, elementwise, to nodes that only the group uses: elementwise
    ones of the same shape, and one contraction, whose epilogue the group then is. So nothing is
    computed twice, and what was between the nodes never reaches memory.

    Cost rule: a group is worth it if it saves at least `min_saved` bytes of memory traffic (each
    inner value is written and read once less) and has no more than `max_inputs` inputs, which a
    kernel must walk through side by side.
    """

    name = "fusion"

    def __init__(
        self, semantics: Semantics = TINYTORCH, min_saved: int = 1, max_inputs: int = 12
    ) -> None:
        super().__init__(semantics)
        self.min_saved = min_saved
        self.max_inputs = max_inputs

    def analyze(self, graph: AnyGraph) -> list[Group]:
        """The groups that are worth it, the last in the graph first."""
        rank = {node: i for i, node in enumerate(graph.nodes)}
        taken: set[AnyNode] = set()
        groups = []
        for node in reversed(graph.nodes):
            if node in taken or not self._is_elementwise(node):
                continue
            group = self._grow(node, rank, taken)
            if len(group.nodes) > 1 and group.saved >= self.min_saved:
                groups.append(group)
                taken.update(group.nodes)
        return groups

    def transform(self, graph: AnyGraph, found: list[Group]) -> bool:
        targets: dict[str, object] = {}  # groups that are alike share one op
        for group in found:
            last = group.nodes[-1]
            body = self._body(graph, group)
            target = targets.setdefault(str(body), self.semantics.fused(body))
            with graph.inserting_before(last):
                new = graph.call_function(target, tuple(group.inputs), {})
            kept = ("tensor_meta", "val", *INHERITED)
            new.meta.update({k: v for k, v in last.meta.items() if k in kept})
            last.replace_all_uses_with(new)
            for node in reversed(group.nodes):
                graph.erase_node(node)
        return bool(found)

    def _is_elementwise(self, node: AnyNode) -> bool:
        return node.op == "call_function" and self.semantics.kind(node) == "elementwise"

    def _is_contraction(self, node: AnyNode) -> bool:
        return node.op == "call_function" and self.semantics.kind(node) == "contraction"

    def _grow(self, last: AnyNode, rank: dict[AnyNode, int], taken: set[AnyNode]) -> Group:
        shape = self.semantics.meta(last).shape
        group, heads, saved = {last}, 0, 0
        pending = list(last.all_input_nodes)
        while pending:
            # the latest first: all its users have been decided by then
            node = max(pending, key=rank.__getitem__)
            pending = [n for n in pending if n is not node]
            is_head = self._is_contraction(node)
            if node in taken or not (self._is_elementwise(node) or (is_head and not heads)):
                continue
            meta = self.semantics.meta(node)
            if meta.shape != shape or any(user not in group for user in node.users):
                continue
            if any(self._is_contraction(user) for user in node.users):
                continue  # an epilogue follows its contraction: what that reads stays outside
            if len(self._inputs(group | {node})) > self.max_inputs:
                continue
            group.add(node)
            saved += 2 * meta.nbytes
            heads += is_head
            # what a contraction reads, it reads in its own order
            pending += [] if is_head else [n for n in node.all_input_nodes if n not in group]
        nodes = sorted(group, key=rank.__getitem__)
        return Group(nodes, self._inputs(nodes), saved)

    @staticmethod
    def _inputs(nodes: set[AnyNode] | list[AnyNode]) -> list[AnyNode]:
        inside = set(nodes)
        outside = (a for node in nodes for a in node.all_input_nodes if a not in inside)
        return list(dict.fromkeys(outside))

    def _body(self, graph: AnyGraph, group: Group) -> AnyGraph:
        """The group as a graph of its own."""
        body = type(graph)()
        copies: dict[AnyNode, AnyNode] = {}
        for i, node in enumerate(group.inputs):
            copies[node] = body.placeholder(f"in{i}")
            copies[node].meta["tensor_meta"] = self.semantics.meta(node)
        for node in group.nodes:  # under new names, so that groups that are alike print alike
            args = self.semantics.map_arg(tuple(node.args), copies.__getitem__)
            copies[node] = body.call_function(node.target, args, dict(node.kwargs))
            copies[node].meta.update(node.meta)
        body.output(copies[group.nodes[-1]])
        return body
