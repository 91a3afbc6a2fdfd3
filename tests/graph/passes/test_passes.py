"""Each pass by what it makes of a printed graph."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, ops
from tinytorch.graph import (
    Graph,
    OptimizationPass,
    PassManager,
    get_pass_by_name,
    parse_graph,
    register_pass,
    trace,
)
from tinytorch.graph.interpret import Interpreter, ShapeProp
from tinytorch.graph.passes import AlgebraicSimplification, ConstantFolding, Fusion, Recompute
from tinytorch.graph.passes.rules import Rule

pytestmark = pytest.mark.usefixtures("numpy_backend")


def graph_of(*lines: str, **constants: np.ndarray) -> Graph:
    """A graph of %x and %y, both float32[2, 3], with shapes filled in."""
    inputs = ["%x : float32[2, 3] = placeholder[x]", "%y : float32[2, 3] = placeholder[y]"]
    graph = parse_graph("\n".join([*inputs, *lines]), constants)
    ShapeProp(graph).propagate()
    return graph


def after(each: OptimizationPass | str, graph: Graph) -> list[str]:
    """What a pass leaves of a graph, checked by the manager, without its inputs."""
    result, report = PassManager([each]).run(graph)
    assert not report.failures, report
    return [n.format_node() for n in result.nodes if n.op != "placeholder"]


# -- dead code, common subexpressions --------------------------------------------------------------


def test_dce():
    graph = graph_of("%a = exp(%x)", "%b = neg(%a)", "%c = add(%x, %y)", "return %c")
    assert after("dce", graph) == ["%c : float32[2, 3] = add(%x, %y)", "return %c"]


def test_dce_keeps_inputs():
    graph = graph_of("return %x")
    PassManager(["dce"]).run(graph)
    assert len(graph.find_nodes(op="placeholder")) == 2


def test_cse_through_chains_orders_and_nests():
    graph = graph_of(
        "%a = add(%x, %y)", "%b = add(%y, %x)", "%c = exp(%a)", "%d = exp(%b)",
        "%e = cat(%c, %d, dim=0)", "%f = cat(%d, %c, dim=0)", "return (%e, %f)",
    )  # fmt: skip
    assert after("cse", graph)[:4] == [
        "%a : float32[2, 3] = add(%x, %y)",
        "%c : float32[2, 3] = exp(%a)",
        "%e : float32[4, 3] = cat(%c, %c, dim=0)",
        "%f : float32[4, 3] = cat(%c, %c, dim=0)",  # two results stay two tensors
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sub(%x, %y)", "sub(%y, %x)"),
        ("maximum(%x, %y)", "maximum(%y, %x)"),  # of 0.0 and -0.0 the second
        ("mul(%x, 2)", "mul(%x, 2.0)"),
        ("mul(%x, 0.0)", "mul(%x, -0.0)"),
        ("mul(%x, 1)", "mul(%x, True)"),
        ("sum(%x, dims=(0,), keepdim=True)", "sum(%x, dims=(0,), keepdim=False)"),
        ("full(shape=(2,), value=2, dtype=int64)", "full(shape=(2,), value=2, dtype=float32)"),
    ],
)
def test_cse_does_not_merge(first: str, second: str):
    lines = [f"%a = {first}", f"%b = {second}", "%c = exp(%a)", "%d = exp(%b)", "return (%c, %d)"]
    assert len(after("cse", graph_of(*lines))) == 5


def test_cse_leaves_random_numbers_apart():
    def f(x):
        return nn.functional.dropout(x) + nn.functional.dropout(x)

    graph = PassManager(["cse"]).run(trace(f, tinytorch.ones(4)).graph)[0]
    assert len(graph.find_nodes(op="call_function", target=ops.uniform)) == 2


# -- constants -------------------------------------------------------------------------------------


def test_fold():
    graph = graph_of(
        "%k = get_attr[k]", "%a = exp(%k)", "%b = add(%a, 1.0)", "%c = mul(%x, %b)", "return %c",
        k=np.zeros(3, np.float32),
    )  # fmt: skip
    result, _ = PassManager(["fold"]).run(graph)
    assert [n.format_node() for n in result.nodes][2:] == [
        "%folded : float32[3] = get_attr[folded]",
        "%c : float32[2, 3] = mul(%x, %folded)",
        "return %c",
    ]
    assert result.constants["folded"].tolist() == [2.0, 2.0, 2.0]
    assert "folded" not in graph.constants


def test_fold_keeps_what_is_small_as_an_op_and_large_as_a_constant():
    lines = ["%f = full(shape=(2, 3), value=1.0, dtype=float32)", "%a = add(%f, 1.0)",
             "%b = mul(%x, %a)", "%c = mul(%y, %f)", "return (%b, %c)"]  # fmt: skip
    assert len(after(ConstantFolding(limit=5), graph_of(*lines))) == 5
    assert after("fold", graph_of(*lines))[1] == "%folded : float32[2, 3] = get_attr[folded]"


def test_fold_does_not_freeze_random_numbers():
    graph = graph_of("%s = get_attr[s]", "%u = uniform(%s, shape=(2, 3), dtype=float32)",
                     "%a = add(%x, %u)", "return %a", s=np.array(7))  # fmt: skip
    assert len(after("fold", graph)) == 4


# -- algebra ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["mul(%x, 1)"], "%x"),
        (["mul(1.0, %x)"], "%x"),
        (["div(%x, 1.0)"], "%x"),
        (["sub(%x, 0)"], "%x"),
        (["add(%x, -0.0)"], "%x"),
        (["neg(%x)", "neg(%a0)"], "%x"),
        (["mul(%x, -1.0)"], "neg(%x)"),
        (["neg(%y)", "add(%x, %a0)"], "sub(%x, %y)"),
        (["neg(%y)", "add(%a0, %x)"], "sub(%x, %y)"),
        (["neg(%y)", "sub(%x, %a0)"], "add(%x, %y)"),
        (["neg(%x)", "neg(%y)", "mul(%a0, %a1)"], "mul(%x, %y)"),
        (["div(%x, 8)"], "mul(%x, 0.125)"),
        (["relu(%x)", "relu(%a0)"], "relu(%x)"),
        (["neg(%x)", "abs(%a0)"], "abs(%x)"),
        (["cast(%x, dtype=float32)"], "%x"),
        (["permute(%x, dims=(1, 0))", "permute(%a0, dims=(1, 0))"], "%x"),
        (["permute(%x, dims=(0, 1))"], "%x"),
        (["reshape(%x, shape=(6,))", "reshape(%a0, shape=(3, 2))"], "reshape(%x, shape=(3, 2))"),
        (["reshape(%x, shape=(6,))", "reshape(%a0, shape=(2, 3))"], "%x"),
        (["expand(%x, shape=(1, 2, 3))", "expand(%a0, shape=(4, 2, 3))"],
         "expand(%x, shape=(4, 2, 3))"),
        (["slice(%x, bounds=((0, 2, 1), (0, 3, 1)))"], "%x"),
    ],
)  # fmt: skip
def test_rules(lines: list[str], expected: str):
    named = [f"%a{i} = {line}" for i, line in enumerate(lines)]
    graph = graph_of(*named, f"%end = exp(%a{len(lines) - 1})", "return %end")
    result, report = PassManager(["algebra", "dce"], rounds=3).run(graph)
    assert not report.failures, report
    lines = [n.format_node().split(" = ")[-1] for n in result.nodes][2:]
    if expected.startswith("%"):
        assert lines == [f"exp({expected})", "return %end"]
    else:
        assert lines[0] == expected and len(lines) == 3


@pytest.mark.parametrize(
    "line",
    [
        "add(%x, 0)",  # -0.0 + 0 is 0.0
        "mul(%x, 0)",
        "div(%x, 3)",
        "sub(%x, -0.0)",
        "add(%x, 1)",
        "permute(%x, dims=(1, 0))",
        "sum(%x, dims=(), keepdim=False)",
    ],
)
def test_what_is_not_exact_stays(line: str):
    graph = graph_of(f"%a = {line}", "%end = exp(%a)", "return %end")
    assert len(after("algebra", graph)) == 3


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["add(%x, 0)"], "%x"),
        (["div(%x, 3)"], "mul(%x, 0.3333333333333333)"),
        (["mul(%x, 3.0)", "mul(%a0, 5.0)"], "mul(%x, 15.0)"),
        (["pow(%x, 2)"], "mul(%x, %x)"),
        (["exp(%x)", "log(%a0)"], "%x"),
    ],
)
def test_fast_math(lines: list[str], expected: str):
    named = [f"%a{i} = {line}" for i, line in enumerate(lines)]
    graph = graph_of(*named, f"%end = neg(%a{len(lines) - 1})", "return %end")
    each = AlgebraicSimplification(fast_math=True)
    result, report = PassManager([each, "dce"]).run(graph)
    assert not report.failures, report
    lines = [n.format_node().split(" = ")[-1] for n in result.nodes][2:]
    assert lines[0] == (f"neg({expected})" if expected.startswith("%") else expected)


def test_a_rule_must_not_change_the_dtype():
    graph = parse_graph("%i : int64[2] = placeholder[i]\n%a = mul(%i, 1.0)\nreturn %a")
    ShapeProp(graph).propagate()
    assert after("algebra", graph) == ["%a : float32[2] = mul(%i, 1.0)", "return %a"]


def test_a_result_does_not_become_an_input():
    graph = graph_of("%a = mul(%x, 1.0)", "return %a")
    assert after("algebra", graph) == ["%a : float32[2, 3] = mul(%x, 1.0)", "return %a"]


def test_two_results_do_not_become_one():
    graph = graph_of("%a = exp(%x)", "%v = slice(%a, bounds=((0, 1, 1), (0, 3, 1)))",
                     "%b = mul(%v, 1.0)", "%c = mul(%v, 1.0)", "return (%b, %c)")  # fmt: skip
    assert after("algebra", graph)[2:] == [
        "%c : float32[1, 3] = mul(%v, 1.0)", "return (%v, %c)"
    ]  # fmt: skip
    lines = ["%a = exp(%x)", "%b = exp(%x)", "%c = exp(%x)", "return (%b, %c)"]
    assert after("cse", graph_of(*lines)) == [
        "%a : float32[2, 3] = exp(%x)", "%c : float32[2, 3] = exp(%x)", "return (%a, %c)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        ["neg(%i)", "add(%j, %a0)"],  # -1 is 255 as uint8, and stays that beside int64
        ["neg(%i)", "sub(%j, %a0)"],
        ["neg(%i)", "neg(%j)", "mul(%a0, %a1)"],
        ["neg(%i)", "abs(%a0)"],
        ["mul(%k, -1)"],  # a bool has no negative
    ],
)
def test_negatives_of_small_integers_stay(lines: list[str]):
    graph = parse_graph("\n".join([
        "%i : uint8[2] = placeholder[i]", "%j : int64[2] = placeholder[j]",
        "%k : bool[2] = placeholder[k]", *[f"%a{n} = {line}" for n, line in enumerate(lines)],
        f"return %a{len(lines) - 1}",
    ]))  # fmt: skip
    ShapeProp(graph).propagate()
    calls = [n.target.name for n in PassManager(["algebra"]).run(graph)[0].nodes
             if n.op == "call_function"]  # fmt: skip
    assert calls == [line.partition("(")[0] for line in lines]


def test_a_rule_of_ones_own():
    rule = Rule("exp(x) * exp(y) -> exp(x + y)")
    each = AlgebraicSimplification(fast_math=True, rules=[rule])
    graph = graph_of("%a = exp(%x)", "%b = exp(%y)", "%c = mul(%a, %b)", "return %c")
    result, report = PassManager([each, "dce"]).run(graph)
    assert not report.failures and len(result.find_nodes(op="call_function")) == 2


# -- fusion, layout --------------------------------------------------------------------------------


def test_fusion_makes_one_op_of_a_chain():
    graph = graph_of("%a = exp(%x)", "%b = mul(%a, %y)", "%c = add(%b, 1.0)", "return %c")
    result, report = PassManager(["fusion"]).run(graph)
    assert not report.failures, report
    (node,) = result.find_nodes(op="call_function")
    assert node.target.name.startswith("fused_exp_mul_add_")
    assert [n.name for n in node.all_input_nodes] == ["x", "y"]
    body = node.target.decomposition.graph.find_nodes(op="call_function")
    assert [n.target for n in body] == [ops.exp, ops.mul, ops.add]
    assert node.target.flops([(2, 3), (2, 3)], (2, 3), {}) == 18
    x, y = tinytorch.ones(2, 3), tinytorch.ones(2, 3, requires_grad=True)
    out = Interpreter(result).run(x, y)
    out.sum().backward()
    assert np.allclose(y.grad.numpy(), np.e)


def test_fusion_computes_nothing_twice():
    graph = graph_of("%a = exp(%x)", "%b = neg(%a)", "%c = sum(%a, dims=(0,), keepdim=True)",
                     "%d = add(%b, %c)", "return %d")  # fmt: skip
    kinds = [n.target.name for n in PassManager(["fusion"]).run(graph)[0].find_nodes(
        op="call_function")]  # fmt: skip
    assert kinds[:2] == ["exp", "sum"] and kinds[2].startswith("fused_neg_add_")


def test_fusion_takes_one_contraction_for_its_epilogue():
    graph = graph_of("%t = permute(%y, dims=(1, 0))", "%m = matmul(%x, %t)", "%r = relu(%m)",
                     "%n = matmul(%r, %x)", "%e = exp(%n)", "return %e")  # fmt: skip
    names = [n.target.name for n in PassManager(["fusion"]).run(graph)[0].find_nodes(
        op="call_function")]  # fmt: skip
    assert names[1].startswith("fused_matmul_relu_") and names[2].startswith("fused_matmul_exp_")


def test_fusion_asks_whether_it_pays():
    lines = ["%a = exp(%x)", "%b = mul(%a, %y)", "return %b"]
    assert len(after(Fusion(min_saved=49), graph_of(*lines))) == 3
    assert len(after(Fusion(min_saved=48), graph_of(*lines))) == 2
    assert len(after(Fusion(max_inputs=1), graph_of(*lines))) == 3


def test_groups_that_are_alike_share_one_op():
    lines = ["%a = exp(%x)", "%b = neg(%a)", "%c = exp(%y)", "%d = neg(%c)", "return (%b, %d)"]
    result, _ = PassManager(["fusion"]).run(graph_of(*lines))
    first, second = result.find_nodes(op="call_function")
    assert first.target is second.target
    assert str(result).count("\nfused_exp_neg_") == 1


def test_layout_lets_elementwise_ops_broadcast():
    graph = graph_of("%s = sum(%y, dims=(0,), keepdim=True)", "%e = expand(%s, shape=(2, 3))",
                     "%k = copy(%x)", "%a = mul(%k, %e)", "return %a")  # fmt: skip
    assert after("layout", graph) == [
        "%s : float32[1, 3] = sum(%y, dims=(0,), keepdim=True)",
        "%mul_1 : float32[2, 3] = mul(%x, %s)",
        "return %mul_1",
    ]


def test_layout_keeps_what_decides_the_shape():
    graph = graph_of("%s = sum(%y, dims=(0,), keepdim=True)", "%e = expand(%s, shape=(2, 3))",
                     "%a = exp(%e)", "return %a")  # fmt: skip
    assert len(after("layout", graph)) == 4


# -- the registry ----------------------------------------------------------------------------------


def test_passes_by_name():
    assert get_pass_by_name("fusion") is Fusion
    with pytest.raises(KeyError, match=r"there is no pass 'nonsense'; there are algebra, .*dce"):
        get_pass_by_name("nonsense")
    with pytest.raises(ValueError, match="there is a pass 'dce' already"):

        @register_pass
        class Other(OptimizationPass):
            name = "dce"

            def analyze(self, graph):
                return None

            def transform(self, graph, found):
                return False


def test_an_option_that_is_not_given_by_name_is_refused() -> None:
    """The pass would fail on every graph, and be taken back."""
    with pytest.raises(TypeError, match=r"Recompute: the first argument is .* not 0\.5; give"):
        Recompute(0.5)  # type: ignore[arg-type]
