"""A solution as its syntax tree says it: what is renamed, commented or laid out anew is the same.

All names become one token; attributes and keywords keep theirs (`np.sum(x, axis=0)`), since they
say what is computed. Constants keep their kind, and small whole numbers their value.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from tito.lessons.magic import plain

SKIPPED = (ast.Load, ast.Store, ast.Del, ast.Pass)
SMALL = range(-1, 3)  # that mean something on their own


@dataclass(frozen=True)
class Token:
    """A node of a syntax tree in its order, with the lines of its cell that it is on."""

    text: str
    line: int


def tokens(source: str) -> list[Token]:
    """The tokens of a cell, without docstrings, annotations and imports; none if it is no Python.

    >>> [t.text for t in tokens("y = x + 1")]
    ['Assign', 'Name', 'BinOp', 'Name', 'Add', 'int 1']
    >>> tokens("total = count + 1") == tokens("y = x + 1  # the same")
    True
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(plain(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    try:
        return list(_walk(tree.body, 1))
    except RecursionError:
        return []


def _walk(nodes: list[ast.stmt] | list[ast.AST], line: int) -> Iterator[Token]:
    for node in nodes:
        if isinstance(node, (*SKIPPED, ast.Import, ast.ImportFrom)) or _is_text(node):
            continue
        here = getattr(node, "lineno", line)
        yield Token(_named(node), here)
        yield from _walk(_parts(node), here)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or a string that is a statement of its own."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _parts(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.args, *node.body]
    if isinstance(node, ast.arg):
        return []
    if isinstance(node, ast.AnnAssign):
        return [part for part in (node.target, node.value) if part is not None]
    return list(ast.iter_child_nodes(node))


def _named(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"Attribute {node.attr}"
    if isinstance(node, ast.keyword):
        return f"keyword {node.arg}"
    if isinstance(node, ast.AnnAssign):
        return "Assign"
    if isinstance(node, ast.Constant):
        value, kind = node.value, type(node.value).__name__
        return f"int {value!r}" if kind == "int" and value in SMALL else kind
    return type(node).__name__
