"""Algebraic simplification: identities, double movements, cheaper ops for the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.passes.rules import Rule
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics

INHERITED = ("phase", "stack_trace")


def _power_of_two(b: float) -> bool:
    """Dividing by b and multiplying by 1 / b are the same to the last bit."""
    return 2.0**-60 <= abs(b) <= 2.0**60 and float(abs(b)).hex().startswith("0x1.0000000000000p")


def _is_float(x: Any) -> bool:
    return bool(x.dtype.is_floating_point)


def _is_negated_alike(x: Any, y: Any) -> bool:
    """-y is in the dtype of x and -x in that of y. The negative of a small integer is what fits
    into its dtype: as uint8 that of 1 is 255, and no longer -1 beside a larger dtype."""
    return bool(x.dtype == y.dtype) or (_is_float(x) and _is_float(y))


EXACT = [
    Rule("x * 1 -> x"),
    Rule("x / 1 -> x"),
    Rule("x - 0 -> x"),
    Rule("x + -0.0 -> x"),
    Rule("x + 0 -> x", when=lambda x: not x.dtype.is_floating_point),  # -0.0 + 0 is 0.0
    Rule("x * -1 -> -x", when=_is_float),
    Rule("-(-x) -> x"),
    Rule("x + (-y) -> x - y", when=_is_negated_alike),
    Rule("x - (-y) -> x + y", when=_is_negated_alike),
    Rule("(-x) * (-y) -> x * y", when=_is_negated_alike),
    Rule("x / b -> x * (1 / b)", when=_power_of_two),
    Rule("where(c, x, x) -> x"),
    Rule("relu(relu(x)) -> relu(x)"),
    Rule("abs(abs(x)) -> abs(x)"),
    Rule("abs(-x) -> abs(x)", when=_is_float),
    Rule("floor(floor(x)) -> floor(x)"),
    Rule("detach(detach(x)) -> detach(x)"),
    Rule("clone(x) -> x"),
    Rule("cast(x, dtype=d) -> x", when=lambda x, d: x.dtype is d),
    Rule("permute(x, dims=p) -> x", when=lambda p: list(p) == sorted(p)),
    Rule("permute(permute(x, dims=p), dims=q) -> permute(x, dims=tuple([p[i] for i in q]))"),
    Rule("reshape(x, shape=s) -> x", when=lambda x, s: x.shape == s),
    Rule("reshape(reshape(x, shape=r), shape=s) -> reshape(x, shape=s)"),
    Rule("expand(x, shape=s) -> x", when=lambda x, s: x.shape == s),
    Rule("expand(expand(x, shape=r), shape=s) -> expand(x, shape=s)"),
    Rule(
        "slice(x, bounds=s) -> x",
        when=lambda x, s: all(b == (0, n, 1) for b, n in zip(s, x.shape, strict=True)),
    ),
]
FAST = [
    Rule("x + 0 -> x"),
    Rule("x / b -> x * (1 / b)", when=lambda b: b != 0),
    Rule("(x * a) * b -> x * (a * b)", when=_is_float),
    Rule("(x + a) + b -> x + (a + b)", when=_is_float),
    Rule("(x - a) - b -> x - (a + b)", when=_is_float),
    Rule("x ** 2 -> x * x"),
    Rule("x ** 0.5 -> sqrt(x)"),
    Rule("x ** -1 -> 1.0 / x"),
    Rule("sqrt(x) * sqrt(x) -> x"),
    Rule("1 / (1 / x) -> x"),
    Rule("log(exp(x)) -> x"),
    Rule("exp(log(x)) -> x"),
]
CLOSED = [Rule("detach(x) -> x")]  # where nothing is differentiated any more


class Matches(list[tuple[AnyNode, Rule]]):
    """Some of the matches that there are; the nodes of the others stay as they are."""

    excluded: set[AnyNode]


@register_pass
class AlgebraicSimplification(OptimizationPass):
    """Applies rules wherever they match, until none does.

    Args:
        fast_math: also rules that change rounding, or NaN and infinities.
        rules: others than those of this file.
    """

    name = "algebra"

    def __init__(
        self,
        semantics: Semantics = TINYTORCH,
        fast_math: bool = False,
        rules: list[Rule] | None = None,
    ) -> None:
        super().__init__(semantics)
        self.rules = rules if rules is not None else EXACT + FAST if fast_math else EXACT
        self.exact = not fast_math  # type: ignore[misc]

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, Rule]]:
        """The nodes at which rules match now; what follows from a rewrite shows only after it."""
        rules = self._rules_for(graph)
        memory = Aliasing(graph, self.semantics)
        return [
            (node, rule)
            for node in graph.nodes
            if not memory.touches_written(node)
            for rule in rules
            if rule.match(node, self.semantics) is not None
        ]

    def _rules_for(self, graph: AnyGraph) -> list[Rule]:
        return self.rules + CLOSED if self.semantics.is_closed(graph) else self.rules

    def select(self, found: Any, numbers: Sequence[int]) -> Any:
        chosen = Matches(found[i] for i in numbers)
        chosen.excluded = {n for n, _ in found} - {n for n, _ in chosen}
        return chosen

    def transform(self, graph: AnyGraph, found: list[tuple[AnyNode, Rule]]) -> bool:
        changed = False
        excluded = found.excluded if isinstance(found, Matches) else set()
        rules, memory = self._rules_for(graph), Aliasing(graph, self.semantics)
        pending = list(dict.fromkeys(node for node, _ in found))
        while pending:
            node = pending.pop(0)
            if not node.users or node in excluded or memory.touches_written(node):
                continue
            new = self._rewrite(graph, node, rules, memory)
            if new is not None:
                changed = True
                pending += [new, *new.users]
        return changed

    def _rewrite(
        self, graph: AnyGraph, node: AnyNode, rules: list[Rule], memory: Aliasing
    ) -> AnyNode | None:
        """Apply the first rule that matches and fits; the node that took the place."""
        for rule in rules:
            bound = rule.match(node, self.semantics)
            # what an operand was computed from may be written before the node would read it
            if bound is None or not memory.written.isdisjoint(
                value for value in bound.values() if self.semantics.is_node(value)
            ):
                continue
            before, made = node.prev, []
            with graph.inserting_before(node):
                new = rule.build(graph, bound, self.semantics)
            while before.next is not node:
                before = before.next
                made.append(before)
            if self._fits(node, new, memory):
                for each in made:
                    each.meta.update({k: v for k, v in node.meta.items() if k in INHERITED})
                memory.replaced(node, new)
                node.replace_all_uses_with(new)
                graph.erase_node(node)
                return new
            for each in reversed(made):
                graph.erase_node(each)
        return None

    def _fits(self, node: AnyNode, new: Any, memory: Aliasing) -> bool:
        """Same shape and dtype; and no result comes to share memory with an input or a result."""
        s = self.semantics
        return s.is_node(new) and s.interchangeable(node, new) and memory.may_replace(new, node)
