"""The syntax of the project's files, parsed once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tinytorch"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> frozenset[ast.AST]:
    return frozenset(ast.walk(tree(path)))
