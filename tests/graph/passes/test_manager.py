"""Passes that break a graph are caught and rolled back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, ops
from tinytorch.graph import Graph, GraphError, OptimizationPass, PassManager, parse_graph, trace
from tinytorch.graph.interpret import ShapeProp
from tinytorch.graph.passes import DeadCodeElimination
from tinytorch.graph.semantics import TinyTorchSemantics

pytestmark = pytest.mark.usefixtures("numpy_backend")

TEXT = """
    %x : float32[2, 3] = placeholder[x]
    %y : float32[2, 3] = placeholder[y]
    %sub : float32[2, 3] = sub(%x, %y)
    %exp : float32[2, 3] = exp(%sub)
    %dead : float32[2, 3] = neg(%exp)
    return (%exp, %sub)
"""

REPEATED = """
    %x : float32[2, 3] = placeholder[x]
    %exp : float32[2, 3] = exp(%x)
    %again : float32[2, 3] = exp(%x)
    %dead : float32[2, 3] = neg(%x)
    %mul : float32[2, 3] = mul(%exp, %again)
    return (%mul)
"""


class Broken(OptimizationPass):
    """Finds the node that a test is about; its subclasses break it."""

    name = "broken"
    target: Any = None

    def analyze(self, graph):
        return graph.find_nodes(op="call_function", target=self.target)

    def transform(self, graph, found):
        for node in found:
            self.break_it(graph, node)
        return bool(found)

    def break_it(self, graph, node):
        raise NotImplementedError

    def rewrites(self, found):
        return None  # all or nothing


def rolled_back(each: OptimizationPass, graph: Graph) -> str:
    """Check that the pass failed and left the graph alone; the error."""
    text = str(graph)
    for compares_each in (False, True):
        result, report = PassManager([each, "dce"], each=compares_each).run(graph)
        (failure,) = report.failures
        assert failure.name == each.name and not failure.changed
        assert str(graph) == text
        # the next pass goes on from the graph as it was
        assert str(result) == str(PassManager(["dce"]).run(graph)[0])
        assert failure.before == text
    return failure.error or ""


class MergesDropout(Broken):
    """A CSE that takes random nodes for equal."""

    target = ops.uniform

    def break_it(self, graph, node):
        first = graph.find_nodes(op="call_function", target=ops.uniform)[0]
        if node is not first:
            node.replace_all_uses_with(first)


def test_merged_dropout_is_caught():
    def f(x):
        return nn.functional.dropout(x) * nn.functional.dropout(x)

    graph = trace(f, tinytorch.ones(8)).graph
    assert "output 0 (float32[8]) is not the same to the last bit" in rolled_back(
        MergesDropout(), graph
    )


class FreezesBuffers(Broken):
    """A constant folding that ignores that a buffer is written."""

    def analyze(self, graph):
        return [n for n in graph.find_nodes(op="placeholder") if "running" in n.target]

    def break_it(self, graph, node):
        with graph.inserting_after(node):
            constant = self.semantics.constant(graph, node.meta["example"])
        node.replace_all_uses_with(constant)


def test_a_frozen_buffer_is_caught():
    model = nn.BatchNorm1d(3)
    model.eval()
    graph = trace(model, tinytorch.ones(4, 3)).graph
    error = rolled_back(FreezesBuffers(), graph)
    assert "is not the same to the last bit on generated input 1" in error


class ChangesOrder(Broken):
    """A fusion that mixes up its operands."""

    target = ops.sub

    def break_it(self, graph, node):
        node.args = tuple(reversed(node.args))


class Reassociates(Broken):
    """Sums in another order: right but for rounding, and does not say so."""

    target = ops.add

    def break_it(self, graph, node):
        a, b = node.args
        if a.target is ops.add:
            with graph.inserting_before(node):
                inner = self.semantics.call(graph, "add", (a.args[1], b), {})
            node.args = (a.args[0], inner)


class ReassociatesOpenly(Reassociates):
    name = "reassociates"
    exact = False


def test_another_order_of_operands_is_caught():
    error = rolled_back(ChangesOrder(), parse_graph(TEXT))
    assert "output 0 (float32[2, 3]) is not the same to the last bit on generated input 0" in error


def test_another_order_of_a_sum_is_caught_unless_declared():
    graph = trace(lambda x, y, z: x + y + z, *[tinytorch.ones(64) for _ in range(3)]).graph
    assert "differs by up to" in rolled_back(Reassociates(), graph)
    result, report = PassManager([ReassociatesOpenly()]).run(graph)
    assert not report.failures and str(result) != str(graph)


@pytest.mark.parametrize("each", [False, True])
def test_bits_are_compared_before_a_pass_changes_rounding(each):
    graph = trace(lambda x, y, z: x + y + z, *[tinytorch.ones(64) for _ in range(3)]).graph
    _, report = PassManager([Reassociates(), ReassociatesOpenly()], each=each).run(graph)
    assert [r.error is None for r in report.results] == [False, True]


def test_compares_at_the_end_alone():
    class Counting(TinyTorchSemantics):
        runs = 0

        def run(self, graph, inputs):
            self.runs += 1
            return super().run(graph, inputs)

    counts = []
    for each in (False, True):
        semantics = Counting()
        passes = ["cse", "dce", "cse"]
        _, report = PassManager(passes, semantics, trials=1, each=each).run(parse_graph(REPEATED))
        assert [r.changed for r in report.results] == [True, True, False]
        counts.append(semantics.runs)
    assert counts == [2, 3]  # the first is that of the graph itself


class CutsTheGradient(Broken):
    """Right results, wrong gradients."""

    target = ops.exp

    def break_it(self, graph, node):
        with graph.inserting_after(node):
            cut = self.semantics.call(graph, "detach", (node,), {})
        node.replace_all_uses_with(cut, lambda user: user is not cut)


def test_gradients_are_compared_too():
    assert rolled_back(CutsTheGradient(), parse_graph(TEXT)).startswith("GraphError: gradient 0 ")


class Misfits(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        node.target = ops.matmul
        node.args = (node.args[0], node.args[0])


class UsesTooEarly(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        node.args[0].prepend(node)


class DropsAResult(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        out = graph.output_node()
        out.args = (out.args[0][:1],)


class AddsAnInput(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        with graph.inserting_before():
            graph.placeholder("z")


class ChangesDtype(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        with graph.inserting_after(node):
            cast = self.semantics.call(graph, "cast", (node,), {"dtype": tinytorch.float64})
        node.replace_all_uses_with(cast, lambda user: user.op == "output")


class Raises(Broken):
    target = ops.exp

    def break_it(self, graph, node):
        graph.erase_node(node)


@pytest.mark.parametrize(
    ("each", "message"),
    [
        (Misfits, "cannot run: matmul: shapes"),
        (UsesTooEarly, "uses sub, which is defined only later"),
        (DropsAResult, "1 outputs where there were 2"),
        (AddsAnInput, "broken changed the inputs from ['x', 'y'] to ['z', 'x', 'y']"),
        (ChangesDtype, "output 0 is float64[2, 3], and was float32[2, 3]"),
        (Raises, "node exp cannot be erased: dead, output uses it"),
    ],
)
def test_broken_graphs_are_caught(each, message):
    assert message in rolled_back(each(), parse_graph(TEXT))


class Lies(Broken):
    """Changes the graph and says that it did not."""

    target = ops.sub

    def transform(self, graph, found):
        found[0].args = tuple(reversed(found[0].args))
        return False


def test_a_change_that_is_not_reported_is_seen():
    assert "output 0" in rolled_back(Lies(), parse_graph(TEXT))


def test_the_report_has_the_difference():
    result, report = PassManager(["dce", "cse"], rounds=5).run(parse_graph(TEXT))
    assert [r.name for r in report.results] == ["dce", "cse", "dce", "cse"]  # a fixed point
    assert report.results[0].diff().splitlines()[3:] == [
        "     %exp : float32[2, 3] = exp(%sub)",
        "-    %dead : float32[2, 3] = neg(%exp)",
        "     return (%exp, %sub)",
    ]
    first, second, *_ = str(report).splitlines()
    assert first.split()[:5] == ["dce", "changed", "5", "->", "4"]
    assert second.split()[:3] == ["cse", "no", "change"]
    assert len(result.nodes) == 5


def test_a_graph_that_fails_itself_is_no_reference():
    graph = parse_graph("%i : int64[2] = placeholder[i]\n%q = floor_divide(1, %i)\nreturn %q")
    ShapeProp(graph).propagate()
    with pytest.raises(GraphError, match="the graph itself fails on generated input 0, so passes"):
        PassManager(["dce"]).run(graph)
    assert not PassManager(["dce"], trials=0).run(graph)[1].failures


def test_special_values_are_compared():
    graph = parse_graph(
        "%x : float32[2] = placeholder[x]\n%l = log(%x)\n%m = mul(%l, 0.0)\nreturn %m"
    )
    ShapeProp(graph).propagate()
    graph.find_nodes(op="placeholder")[0].meta["example"] = np.array([-1.0, 0.0], np.float32)

    class ZeroIsZero(Broken):
        target = ops.mul

        def break_it(self, graph, node):
            with graph.inserting_before(node):
                zero = self.semantics.call(
                    graph, "full", (), {"shape": (2,), "value": 0.0, "dtype": tinytorch.float32}
                )
            node.replace_all_uses_with(zero)

    assert "output 0" in rolled_back(ZeroIsZero(), graph)


def test_what_is_called_after_a_pass_sees_both_graphs_and_may_refuse_it() -> None:
    graph = trace(lambda x: x.exp() + x.exp(), tinytorch.ones(3)).graph
    seen = []

    def refuse(each: OptimizationPass, before: Any, after: Any) -> None:
        seen.append((each.name, len(before.nodes), len(after.nodes)))
        raise ValueError("not today")

    improved, report = PassManager(["dce", "cse"], after_pass=refuse).run(graph)
    assert ("cse", 5, 4) in seen and "dce" not in {name for name, *_ in seen}
    assert len(improved.nodes) == 5 and report.failures[0].error == "ValueError: not today"
    kept, _ = PassManager(["cse"], after_pass=lambda *_: None).run(graph)
    assert len(kept.nodes) == 4


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("dce", r"passes are several: write \['dce'\]"),
        ([DeadCodeElimination], r"passes must be objects or names: write DeadCodeElimination\(\)"),
        ([3], "3 is neither a pass nor the name of one"),
    ],
)
def test_what_is_no_list_of_passes_is_named(passes, message):
    with pytest.raises(TypeError, match=message):
        PassManager(passes)
