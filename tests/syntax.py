"""The syntax of the project's files, parsed once for all tests of a process."""

from __future__ import annotations

import ast
import tokenize
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tinytorch"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> frozenset[ast.AST]:
    return frozenset(ast.walk(tree(path)))


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    docstrings = {
        line
        for node in nodes(path)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    with path.open("rb") as file:
        lines = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type
            not in (
                tokenize.COMMENT,
                tokenize.NL,
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
                tokenize.ENCODING,
                tokenize.ENDMARKER,
            )
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(lines - docstrings)
