"""The rewrites that break a graph are found by halving and named; the others are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tinytorch import ops
from tinytorch.graph import OptimizationPass, PassManager, parse_graph
from tinytorch.graph.passes.algebra import AlgebraicSimplification
from tinytorch.graph.passes.halving import find_bad
from tinytorch.graph.passes.rules import Rule

pytestmark = pytest.mark.usefixtures("numpy_backend")

TEXT = """
    %x : float32[3] = placeholder[x]
    %a : float32[3] = exp(%x)
    %b : float32[3] = exp(%a)
    %c : float32[3] = sub(%x, %b)
    %d : float32[3] = exp(%c)
    %e : float32[3] = sub(%d, %x)
    %f : float32[3] = exp(%e)
    return (%f)
"""


class Swaps(OptimizationPass):
    """Swaps the operands of differences, which is wrong, and copies those of exp, which is not."""

    name = "swaps"

    def analyze(self, graph):
        return [n for n in graph.nodes if n.target in (ops.sub, ops.exp)]

    def transform(self, graph, found):
        for node in found:
            if node.target is ops.sub:
                node.args = tuple(reversed(node.args))
            else:
                with graph.inserting_before(node):
                    copied = self.semantics.call(graph, "mul", (*node.args, 1.0), {})
                node.args = (copied,)
        return bool(found)


@pytest.mark.parametrize("each", [True, False])
def test_one_bad_rewrite_does_not_cost_the_others(each: bool):
    _, report = PassManager([Swaps()], each=each).run(parse_graph(TEXT))
    (result,) = report.results
    assert result.changed and result.error is None
    assert len(result.left_out) == 2
    assert result.left_out[0].startswith("c: ") and result.left_out[1].startswith("e: ")
    assert "not the same to the last bit" in result.left_out[0]
    assert result.after.count("mul(") == 4 and "sub(%x, %b)" in result.after
    assert "without c: " in str(report)


def test_where_all_are_bad_the_pass_is_rolled_back():
    graph = parse_graph(TEXT)

    class OnlySwaps(Swaps):
        def analyze(self, graph):
            return [n for n in graph.nodes if n.target is ops.sub]

    improved, report = PassManager([OnlySwaps()]).run(graph)
    (failure,) = report.failures
    assert not failure.left_out and str(improved) == str(graph)


class Negates(OptimizationPass):
    """What it finds is a dict; every second entry is wrong."""

    name = "negates"

    def analyze(self, graph):
        found = graph.find_nodes(op="call_function", target=ops.exp)
        return {n: i % 2 == 1 for i, n in enumerate(found)}

    def transform(self, graph, found: dict[Any, bool]):
        for node, is_wrong in found.items():
            with graph.inserting_before(node):
                factor = -1.0 if is_wrong else 1.0
                new = self.semantics.call(graph, "mul", (*node.args, factor), {})
            node.args = (new,)
        return bool(found)


def test_a_pass_that_finds_a_dict():
    _, report = PassManager([Negates()]).run(parse_graph(TEXT))
    assert [line.partition(",")[0] for line in report.results[0].left_out] == ["b", "f"]


def test_a_bad_rule_of_algebra_is_named():
    """Also where a right rewrite comes to a node whose own rewrite is left out."""
    text = """
        %x : float32[3] = placeholder[x]
        %a : float32[3] = mul(%x, 1)
        %b : float32[3] = add(%a, 2.0)
        %c : float32[3] = mul(%b, 1)
        return (%c)
    """
    rules = [Rule("x * 1 -> x"), Rule("x + 2.0 -> x * 1")]
    _, report = PassManager([AlgebraicSimplification(rules=rules)]).run(parse_graph(text))
    (result,) = report.results
    (line,) = result.left_out
    assert result.changed and line.startswith("b, x + 2.0 -> x * 1: ")
    assert "add(%x, 2.0)" in result.after and "mul" not in result.after


@pytest.mark.parametrize("bad", [{0}, {3}, {4, 5}, {0, 7, 15}, set(range(16))])
def test_find_bad(bad: set[int]):
    calls = []

    def problem(numbers):
        calls.append(numbers)
        return "wrong" if bad & set(numbers) else None

    found = find_bad(16, problem, attempts=100)
    assert set(found.bad) == bad and found.kept == sorted(set(range(16)) - bad)
    assert len(calls) <= 2 * 4 * len(bad) + 1 and not found.untried


def test_attempts_are_bounded():
    found = find_bad(1000, lambda some: "wrong" if 999 in some else None, attempts=3)
    assert found.untried == list(range(750, 1000)) or found.untried[-1] == 999
    assert found.kept and not set(found.kept) & set(found.untried)
