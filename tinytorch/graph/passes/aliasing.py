"""Which memory of a graph is written, and which leaves it: what limits every rewrite."""

from __future__ import annotations

from tinytorch.graph.semantics import AnyGraph, AnyNode, Semantics


class Aliasing:
    """What is known of the memory of a graph, through whatever views.

    Attributes:
        written: nodes whose memory some node writes in place. What they are worth depends on when
            they are read.
        returned: nodes whose memory is part of a result of the graph.
    """

    def __init__(self, graph: AnyGraph, semantics: Semantics) -> None:
        self.semantics = semantics
        self.written: set[AnyNode] = set()
        self.returned: set[AnyNode] = set()
        for node in reversed(graph.nodes):
            if node.op == "output":
                self.returned.update(node.all_input_nodes)
                continue
            self.written.update(semantics.mutates(node))
            for kind in (self.written, self.returned):
                if node in kind:
                    kind.update(semantics.aliases(node))
        for node in graph.nodes:  # and the other views of the same memory
            for kind in (self.written, self.returned):
                if any(a in kind for a in semantics.aliases(node)):
                    kind.add(node)

    def touches_written(self, node: AnyNode) -> bool:
        """It reads or makes what is written in place."""
        return any(n in self.written for n in (node, *node.all_input_nodes))

    def may_replace(self, new: AnyNode, old: AnyNode) -> bool:
        """Using `new` for `old` does not make a result share memory with an input or a result."""
        if old not in self.returned:
            return True
        roots, pending = [], [new]
        while pending:
            node = pending.pop()
            viewed = self.semantics.aliases(node)
            pending += viewed
            roots += [] if viewed else [node]
        return all(n.op == "call_function" and n not in self.returned for n in roots)
