from __future__ import annotations

import copy

import pytest

from tinytorch import ops
from tinytorch.graph import Graph, GraphError, parse_graph
from tinytorch.graph.ir import map_arg

TEXT = """\
graph():
    %x : float32[2, 3] = placeholder[x]
    %c : float32[3] = get_attr[c]
    %mul : float32[2, 3] = mul(%x, %c)
    %sum : float32[] = sum(%mul, dims=(0, 1), keepdim=False)  # backward
    return (%sum, [%mul, 1], {'a': %x})"""


def small() -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(ops.mul, (x, 2.0))
    graph.output(graph.call_function(ops.add, (y, x)))
    return graph


def by_name(graph: Graph, name: str):
    return next(n for n in graph.nodes if n.name == name)


def test_print():
    assert str(small()) == (
        "graph():\n    %x = placeholder[x]\n    %mul = mul(%x, 2.0)\n    %add = add(%mul, %x)\n"
        "    return %add"
    )


def test_text_is_read_back():
    assert str(parse_graph(TEXT)) == TEXT


def test_copy_is_equal_and_apart():
    graph = parse_graph(TEXT)
    other = copy.deepcopy(graph)
    assert str(other) == TEXT
    other.erase_node(other.output_node())
    assert str(graph) == TEXT


def test_users_follow_arguments():
    graph = small()
    x, mul, add = (by_name(graph, n) for n in ("x", "mul", "add"))
    assert list(x.users) == [mul, add]
    add.args = (mul, mul)
    assert list(x.users) == [mul]
    add.update_arg(1, x)
    assert add.args == (mul, x) and add in x.users
    add.update_kwarg("alpha", [x, {"k": mul}])
    assert add.all_input_nodes == [mul, x]
    add.args = ()
    assert list(x.users) == [mul, add]  # still used in kwargs


def test_replace_all_uses_with():
    graph = small()
    x, mul, add = (by_name(graph, n) for n in ("x", "mul", "add"))
    assert x.replace_all_uses_with(mul, lambda user: user is add) == [add]
    assert add.args == (mul, mul) and mul.args == (x, 2.0)


def test_insertion_points():
    graph = small()
    mul = by_name(graph, "mul")
    with graph.inserting_after(mul):
        graph.call_function(ops.neg, (mul,))
        graph.call_function(ops.exp, (mul,))
    with graph.inserting_before(mul):
        graph.placeholder("y")
    with graph.inserting_before():
        graph.placeholder("z")
    names = [n.name for n in graph.nodes]
    assert names == ["z", "x", "y", "mul", "neg", "exp", "add", "output"]


def test_prepend_and_append_move():
    graph = small()
    mul, add = by_name(graph, "mul"), by_name(graph, "add")
    mul.prepend(add)
    assert [n.name for n in graph.nodes] == ["x", "add", "mul", "output"]
    mul.append(add)
    mul.append(add)
    assert [n.name for n in graph.nodes] == ["x", "mul", "add", "output"]


def test_names_are_unique_identifiers():
    graph = Graph()
    names = [graph.placeholder(n).name for n in ("a.b", "a_b", "a_b_1", "a.b", "0")]
    assert len(set(names)) == 5 and all(n.isidentifier() for n in names)
    assert names[:2] == ["a_b", "a_b_1"]


def test_erase():
    graph = small()
    with pytest.raises(GraphError, match=r"node mul cannot be erased: add uses it"):
        graph.erase_node(by_name(graph, "mul"))
    add = by_name(graph, "add")
    graph.output_node().args = (None,)
    graph.erase_node(add)
    assert add not in by_name(graph, "x").users
    with pytest.raises(GraphError, match="has been erased"):
        graph.erase_node(add)


def test_nodes_can_be_erased_while_walked():
    graph = small()
    graph.erase_node(graph.output_node())
    for node in reversed(graph.nodes):
        graph.erase_node(node)
    assert len(graph.nodes) == 0


def test_eliminate_dead_code():
    graph = small()
    with graph.inserting_before(graph.output_node()):
        dead = graph.call_function(ops.exp, (by_name(graph, "x"),))
        graph.call_function(ops.neg, (dead,))
    assert graph.eliminate_dead_code(lambda n: n is dead)
    assert by_name(graph, "exp") is dead
    assert graph.eliminate_dead_code() and not graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "mul", "add", "output"]


def test_find_nodes():
    graph = small()
    assert graph.find_nodes(op="call_function", target=ops.mul) == [by_name(graph, "mul")]
    assert len(graph.find_nodes(op="call_function")) == 2


def test_foreign_nodes_are_refused():
    graph, other = small(), small()
    with pytest.raises(GraphError, match="belongs to another graph; copy it with node_copy"):
        graph.call_function(ops.neg, (by_name(other, "x"),))
    with pytest.raises(GraphError, match="there is no opcode 'call_method'"):
        graph.create_node("call_method", "relu")


def test_map_arg_keeps_the_nest():
    graph = small()
    x = by_name(graph, "x")
    nest = (x, [1, x], {"k": (x,)}, "s")
    assert map_arg(nest, lambda n: n.name) == ("x", [1, "x"], {"k": ("x",)}, "s")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = nonsense(%x)", "there is no op 'nonsense'"),
        ("%y = neg(%z)", "%z is used before it is defined"),
        ("%x = neg(%x)", "there is a node %x already"),
        ("y = neg(%x)", "a line is"),
        ("%y = neg(%x)(1)", "expected an op"),
        ("%y = add(%x, lambda: 1)", "is no argument"),
        ("%y = neg(%x", "was never closed"),
        ("%y : float99[2] = neg(%x)", "there is no dtype 'float99'; there are bool, "),
    ],
)
def test_parse_errors(line: str, message: str):
    with pytest.raises(GraphError, match=r"line 2, `.*`: ") as error:
        parse_graph(f"%x = placeholder[x]\n{line}")
    assert message in str(error.value)


def test_print_tabular(capsys):
    small().print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[2].split() == ["call_function", "mul", "mul", "(%x,", "2.0)", "{}"]
