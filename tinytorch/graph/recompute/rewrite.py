"""Rewriting a graph so that its backward computes again what a plan does not keep."""

from __future__ import annotations

import operator

from tinytorch.graph.recompute.problem import Plan, Problem, is_forward
from tinytorch.graph.recompute.walk import Walk
from tinytorch.graph.semantics import AnyNode


def rewrite(problem: Problem, plan: Plan) -> list[AnyNode]:
    """Insert recomputed values right before their first use in the backward, in place.

    A random op is replayed; how, `Semantics.replay` knows. Of batch norm only the normalized values
    are computed again: its new statistics are results of the forward.

    Args:
        problem: its graph is changed, and the problem no longer describes it.

    Returns:
        The new nodes. They carry meta["recomputed"], so that no pass merges them with the first.
    """
    rewriting = _Rewriting(problem, plan)
    again: list[AnyNode] = []
    for instruction in problem.sequence(Walk(problem.each_event, plan.kept)):
        if is_forward(instruction.node):
            again.append(instruction.node)
            continue
        for node in again:
            rewriting.compute_again(node, instruction.node)
        again.clear()
        rewriting.redirect(instruction.node)
    rewriting.replay_random_ops()
    rewriting.drop_unused()
    return rewriting.made


class _Rewriting:
    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.graph = problem, problem.graph
        self.missing = problem.made_by.keys() - plan.kept
        self.again: dict[AnyNode, AnyNode] = {}
        self.made: list[AnyNode] = []
        self.unused_before = {node for node in self.graph.nodes if not node.users}

    def compute_again(self, node: AnyNode, before: AnyNode) -> None:
        """A second time, before a node of the backward."""
        self._copy(node, before)
        # take a tuple apart at once: whole, it would hold what nobody needs
        for part in node.users:
            if part.target is operator.getitem and not self._is_there(part):
                self._copy(part, before)

    def redirect(self, node: AnyNode) -> None:
        """Make a node of the backward read the values that exist there."""
        for a in node.all_input_nodes:
            node.replace_input_with(a, self._value(a, node))

    def _value(self, node: AnyNode, before: AnyNode) -> AnyNode:
        """The node that has this value in the backward; views are made again as needed."""
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [] if self._is_there(current) else [
                a for a in current.all_input_nodes if not self._is_there(a)
            ]  # fmt: skip
            if missing:
                pending += missing
                continue
            pending.pop()
            if not self._is_there(current):
                self._copy(current, before)
        return self.again.get(node, node)

    def _is_there(self, node: AnyNode) -> bool:
        if node in self.again or not is_forward(node):
            return True
        return self.missing.isdisjoint(self.problem.found.held[node])

    def _copy(self, node: AnyNode, before: AnyNode) -> None:
        inputs = {a: self._value(a, before) for a in node.all_input_nodes}
        with self.graph.inserting_before(before):
            new = self.graph.node_copy(node, inputs.__getitem__)
        new.meta = {**node.meta, "phase": "backward", "recomputed": True}
        self.again[node] = new
        self.made.append(new)

    def replay_random_ops(self) -> None:
        """Make each random op draw the second time what it drew the first time."""
        semantics = self.problem.semantics
        for node, copy in list(self.again.items()):
            if semantics.is_random(node):
                self.made[self.made.index(copy)] = semantics.replay(node, copy)

    def drop_unused(self) -> None:
        """Erase views: those of the forward that the backward no longer reads, and parts of tuples
        that were computed again. What nobody read before stays: the plan counts its memory."""
        for node in reversed(list(self.graph.nodes)):
            if node.op == "call_function" and not node.users and self._is_ours(node):
                self.graph.erase_node(node)
                if node.meta.get("recomputed"):
                    self.made.remove(node)

    def _is_ours(self, node: AnyNode) -> bool:
        if node in self.unused_before:
            return False
        is_view = bool(self.problem.semantics.aliases(node))
        return is_view and (is_forward(node) or bool(node.meta.get("recomputed")))
