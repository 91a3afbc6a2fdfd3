from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.system_tools import require_tool
from tinytorch.errors import MissingExtraError
from tinytorch.graph import parse_graph
from tinytorch.graph.draw import draw, node_color, to_dot, to_mermaid

TEXT = """
    %x : float32[2] = placeholder[x]
    %exp : float32[2] = exp(%x)
    %neg : float32[2] = neg(%exp)  # backward
    return (%neg,)
"""

DOT = """\
digraph {
  node [shape=box, style=filled, fontname="monospace"];
  "x" [label="x\\nfloat32[2]", fillcolor="#eeeeee"];
  "exp" [label="exp\\nfloat32[2]", fillcolor="#cfe2f3"];
  "x" -> "exp";
  "neg" [label="neg\\nfloat32[2]", fillcolor="#f9cb9c"];
  "exp" -> "neg";
  "output" [label="output", fillcolor="#d9d2e9"];
  "neg" -> "output";
}"""

MERMAID = """\
flowchart TD
  n_x["x<br>float32[2]"]
  style n_x fill:#eeeeee
  n_exp["exp<br>float32[2]"]
  style n_exp fill:#cfe2f3
  n_x --> n_exp
  n_neg["neg<br>float32[2]"]
  style n_neg fill:#f9cb9c
  n_exp --> n_neg
  n_output["output"]
  style n_output fill:#d9d2e9
  n_neg --> n_output"""


def test_dot():
    assert to_dot(parse_graph(TEXT)) == DOT


def test_mermaid():
    assert to_mermaid(parse_graph(TEXT)) == MERMAID


def test_colours_by_time():
    graph = parse_graph(TEXT)
    exp, neg = graph.find_nodes(op="call_function")
    seconds = {exp: 2.0, neg: 1.0}
    assert (node_color(exp, seconds), node_color(neg, seconds)) == ("#ff0000", "#ff8080")
    assert node_color(exp, {}) == "#ffffff"


def test_files(tmp_path):
    graph = parse_graph(TEXT)
    draw(graph, tmp_path / "graph.dot")
    draw(graph, tmp_path / "graph.mmd")
    assert (tmp_path / "graph.dot").read_text() == DOT + "\n"
    assert (tmp_path / "graph.mmd").read_text() == MERMAID + "\n"
    for suffix in ("dot", "svg"):
        with pytest.raises(FileNotFoundError):
            draw(graph, tmp_path / "nowhere" / f"graph.{suffix}")
    with pytest.raises(ValueError, match=r"graph.gif must end with .dot, .mmd, .svg or .png"):
        draw(graph, tmp_path / "graph.gif")


def test_pictures_need_graphviz(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(MissingExtraError, match=r"graph.svg needs Graphviz's program `dot`"):
        draw(parse_graph(TEXT), tmp_path / "graph.svg")


def test_pictures_are_made_by_dot(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: calls.append((args, kwargs)))
    draw(parse_graph(TEXT), tmp_path / "graph.png")
    ((command,), options) = calls[0]
    assert command == ["/bin/dot", "-Tpng", "-o", str(tmp_path / "graph.png")]
    assert options == {"input": DOT, "text": True, "check": True}


def test_graphviz_takes_what_is_drawn(tmp_path):
    require_tool("dot")
    graph = parse_graph(TEXT)
    draw(graph, tmp_path / "graph.svg")
    picture = (tmp_path / "graph.svg").read_text()
    assert all(f"<title>{node.name}</title>" in picture for node in graph.nodes)
    draw(graph, tmp_path / "graph.png", {graph.output_node().prev: 1.0})
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


def test_an_input_may_be_called_like_a_word_of_graphviz(tmp_path):
    require_tool("dot")
    words = ("node", "edge", "graph", "digraph", "subgraph", "strict")
    lines = [f"%{word} : float32[2] = placeholder[{word}]" for word in words]
    graph = parse_graph("\n".join([*lines, "%exp : float32[2] = exp(%node)", "return (%exp,)"]))
    draw(graph, tmp_path / "graph.svg")
    picture = (tmp_path / "graph.svg").read_text()
    assert all(f"<title>{word}</title>" in picture for word in words)
