"""Which memory of a graph is written, and which leaves it: what limits every rewrite."""

from __future__ import annotations

from tinytorch.graph.semantics import AnyGraph, AnyNode, Semantics


class Aliasing:
    """The aliasing of a graph's values, through whatever views.

    Attributes:
        written: nodes whose memory some node writes in place. What they are worth depends on when
            they are read.
        results: nodes that the output names.
        returned: nodes whose memory is part of a result of the graph.
    """

    def __init__(self, graph: AnyGraph, semantics: Semantics) -> None:
        self.semantics = semantics
        self.written: set[AnyNode] = set()
        self.results = {n for out in graph.find_nodes(op="output") for n in out.all_input_nodes}
        self.returned = set(self.results)
        for node in reversed(graph.nodes):
            self.written.update(semantics.mutates(node))
            for kind in (self.written, self.returned):
                if node in kind:
                    kind.update(semantics.aliases(node))
        for node in graph.nodes:  # and the other views of the same memory
            for kind in (self.written, self.returned):
                if any(a in kind for a in semantics.aliases(node)):
                    kind.add(node)

    def touches_written(self, node: AnyNode) -> bool:
        """Whether a node reads or makes memory that is written in place."""
        return any(n in self.written for n in (node, *node.all_input_nodes))

    def may_replace(self, new: AnyNode, old: AnyNode) -> bool:
        """Using `new` for `old` does not make a result share memory with an input or a result."""
        if old not in self.returned:
            return True
        roots = self._roots(new)
        if roots & self._roots(old):  # they share memory as it is; only not to be one tensor
            is_new = new.op == "call_function" and new not in self.results
            return old not in self.results or is_new
        return all(n.op == "call_function" and n not in self.returned for n in roots)

    def replaced(self, old: AnyNode, new: AnyNode) -> None:
        """Record that `new` has replaced `old`."""
        for kind, nodes in ((self.results, [new]), (self.returned, [new, *self._roots(new)])):
            if old in kind:
                kind.update(nodes)

    def _roots(self, node: AnyNode) -> set[AnyNode]:
        """The nodes that have made the memory of this one."""
        roots, pending = set(), [node]
        while pending:
            current = pending.pop()
            viewed = self.semantics.aliases(current)
            pending += viewed
            if not viewed:
                roots.add(current)
        return roots


def readers_of(tensor: AnyNode, semantics: Semantics) -> set[AnyNode]:
    """The nodes that read a tensor, also through views of it."""
    readers: set[AnyNode] = set()
    pending = [tensor]
    while pending:
        node = pending.pop()
        for user in node.users:
            if user not in readers:
                readers.add(user)
                if node in semantics.aliases(user):
                    pending.append(user)
    return readers
