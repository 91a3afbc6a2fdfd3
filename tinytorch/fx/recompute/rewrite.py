"""Rewriting a graph so that its backward computes again what a plan does not keep."""

from __future__ import annotations

import operator
from typing import Any, cast

from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx import Node

from tinytorch.fx.recompute.problem import Op, Plan, Problem
from tinytorch.graph.recompute import is_forward


def rewrite(problem: Problem, plan: Plan) -> list[Node]:
    """Put what is computed again right before its first use in the backward, in place.

    A random op is replayed from the state that the generator had in the forward. Of batch norm
    only the normalized values are computed again: its new statistics are results of the forward.

    Args:
        problem: its graph is changed, and the problem no longer describes it.

    Returns:
        The new nodes. They carry meta["recomputed"], so that no pass merges them with the first.
    """
    rewriting = _Rewriting(problem, plan)
    for op in problem.backward:
        rewriting.provide(op)
    rewriting.replay_random_ops()
    rewriting.drop_unused()
    return rewriting.made


class _Rewriting:
    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.kept = problem, plan.kept
        self.graph = problem.graph
        self.again: dict[Node, Node] = {}
        self.computed: set[int] = set()
        self.made: list[Node] = []

    def provide(self, op: Op) -> None:
        """Compute again what an op of the backward reads, and let it read that."""
        for s in op.reads:
            if self.problem.is_missing(s, self.kept, self.computed):
                for source in self.problem.chain(s, self.kept, self.computed):
                    self._copy(source.node, op.node)
                    # take a tuple apart at once: whole, it would hold what nobody needs
                    for part in source.node.users:
                        if part.target is operator.getitem and not self._is_there(part):
                            self._copy(part, op.node)
        for a in op.node.all_input_nodes:
            op.node.replace_input_with(a, self._value(a, op.node))

    def _value(self, node: Node, before: Node) -> Node:
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

    def _is_there(self, node: Node) -> bool:
        if node in self.again or node.op != "call_function":
            return True
        return (
            not any(
                s in self.problem.made_by and s not in self.kept
                for s in self.problem.found.held[node]
            )
            or node.meta.get("phase") != "forward"
        )

    def _copy(self, node: Node, before: Node) -> None:
        inputs = {a: self._value(a, before) for a in node.all_input_nodes}
        with self.graph.inserting_before(before):
            new = self.graph.node_copy(node, inputs.__getitem__)
        new.meta = {**node.meta, "phase": "backward", "recomputed": True}
        self.again[node] = new
        self.made.append(new)

    def replay_random_ops(self) -> None:
        """Let the first run of each random op save the generator's state, and the second use it."""
        for node, copy in list(self.again.items()):
            if not self.problem.semantics.is_random(node):
                continue
            target, copied = cast(Any, node.target), cast(Any, copy.target)
            with self.graph.inserting_before(node):
                saved = self.graph.call_function(
                    run_and_save_rng_state, (target, *node.args), dict(node.kwargs)
                )
                state = self.graph.call_function(operator.getitem, (saved, 0))
                value = self.graph.call_function(operator.getitem, (saved, 1))
            with self.graph.inserting_before(copy):
                replayed = self.graph.call_function(
                    run_with_rng_state, (state, copied, *copy.args), dict(copy.kwargs)
                )
            for new in (saved, state, value):
                new.meta = {k: v for k, v in node.meta.items() if k != "val"}
            value.meta, replayed.meta = dict(node.meta), dict(copy.meta)
            self.made[self.made.index(copy)] = replayed
            for old, new in ((node, value), (copy, replayed)):
                old.replace_all_uses_with(new)
                self.graph.erase_node(old)

    def drop_unused(self) -> None:
        """Erase views: those of the forward that the backward no longer reads, and parts of tuples
        that were computed again."""
        for node in reversed(list(self.graph.nodes)):
            if node.op == "call_function" and not node.users and self._is_ours(node):
                self.graph.erase_node(node)
                if node.meta.get("recomputed"):
                    self.made.remove(node)

    def _is_ours(self, node: Node) -> bool:
        is_view = bool(self.problem.semantics.aliases(node))
        return is_view and (is_forward(node) or bool(node.meta.get("recomputed")))
