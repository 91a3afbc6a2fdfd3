"""Pictures of a graph: DOT for Graphviz, Mermaid for Markdown, SVG and PNG where `dot` is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tinytorch.errors import MissingExtraError
from tinytorch.graph.ir import Graph, Node, target_name

COLORS = {"forward": "#cfe2f3", "backward": "#f9cb9c", "optimizer": "#d9ead3"}
LARGE = 200  # nodes; from there on Graphviz takes minutes to find the best picture
QUICK_LAYOUT = ("-Gnslimit=1", "-Gnslimit1=1", "-Gmclimit=0.1", "-Gsplines=line")
INPUT_COLOR, CONSTANT_COLOR, OUTPUT_COLOR = "#eeeeee", "#fff2cc", "#d9d2e9"


def node_color(node: Node, seconds: Mapping[Node, float] | None = None) -> str:
    """By phase; or, where times are given, from white (none) to red (the slowest)."""
    fixed = {
        "placeholder": INPUT_COLOR, "get_attr": CONSTANT_COLOR, "output": OUTPUT_COLOR
    }.get(node.op)  # fmt: skip
    if fixed is not None:
        return fixed
    if seconds is None:
        return COLORS.get(node.meta.get("phase", "forward"), INPUT_COLOR)
    share = seconds.get(node, 0.0) / (max(seconds.values(), default=0.0) or 1.0)
    level = round(255 * (1 - share))
    return f"#ff{level:02x}{level:02x}"


def _label(node: Node) -> list[str]:
    what = target_name(node.target) if node.op == "call_function" else str(node.target)
    meta = node.meta.get("tensor_meta")
    return [what] if meta is None else [what, str(meta)]


def to_dot(graph: Graph, seconds: Mapping[Node, float] | None = None) -> str:
    """The graph in Graphviz's language. Names are quoted, as an input may be called `node`.

    Args:
        seconds: for each node its time, for example of `Profiler`; nodes are then coloured by it.
    """
    lines = ["digraph {", '  node [shape=box, style=filled, fontname="monospace"];']
    for node in graph.nodes:
        label = "\\n".join(line.replace('"', r"\"") for line in _label(node))
        color = node_color(node, seconds)
        lines.append(f'  "{node.name}" [label="{label}", fillcolor="{color}"];')
        lines += [f'  "{used.name}" -> "{node.name}";' for used in node.all_input_nodes]
    return "\n".join([*lines, "}"])


def to_mermaid(graph: Graph, seconds: Mapping[Node, float] | None = None) -> str:
    """The graph in Mermaid's language, which code hosts draw inside Markdown."""
    lines = ["flowchart TD"]
    for node in graph.nodes:
        label = "<br>".join(line.replace('"', "#quot;") for line in _label(node))
        lines.append(f'  n_{node.name}["{label}"]')
        lines.append(f"  style n_{node.name} fill:{node_color(node, seconds)}")
        lines += [f"  n_{used.name} --> n_{node.name}" for used in node.all_input_nodes]
    return "\n".join(lines)


def draw(graph: Graph, path: str | Path, seconds: Mapping[Node, float] | None = None) -> None:
    """Write a picture; the suffix says the format: .dot, .mmd (Mermaid), .svg or .png.

    Raises:
        MissingExtraError: a .svg or .png is asked for, and Graphviz's program `dot` is not there.
        ValueError: another suffix.
        FileNotFoundError: there is no such folder.
    """
    path = Path(path)
    kind = path.suffix.removeprefix(".")
    if kind in ("dot", "mmd"):
        path.write_text((to_dot if kind == "dot" else to_mermaid)(graph, seconds) + "\n")
        return
    if kind not in ("svg", "png"):
        raise ValueError(f"draw: {path.name} must end with .dot, .mmd, .svg or .png")
    program = shutil.which("dot")
    if program is None:
        raise MissingExtraError(
            f"draw: {path.name} needs Graphviz's program `dot`, which is not on the PATH; install "
            f"Graphviz, or write a .mmd (Mermaid) or .dot file"
        )
    if not path.parent.is_dir():  # `dot` would fail with a number
        raise FileNotFoundError(f"draw: there is no folder {path.parent} for {path.name}")
    quick = QUICK_LAYOUT if len(graph.nodes) > LARGE else ()
    subprocess.run(
        [program, f"-T{kind}", *quick, "-o", str(path)],
        input=to_dot(graph, seconds),
        text=True,
        check=True,
    )
