"""The solution cell of an exercise: signatures and docstrings stay, bodies become solutions.

The bodies are between nbgrader's solution markers; `clear` takes them out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tito.lessons.source import (
    FUNCTIONS,
    Definition,
    FunctionNode,
    Package,
    SourceError,
    Target,
    first_line,
)

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
STUB = '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'
MOST_LINES = 40
PRESENTATION = ("__repr__", "extra_repr")  # of a whole class these stay: nothing is learnt there


@dataclass(frozen=True)
class Body:
    """The lines of a function that a student writes, and their indentation."""

    first: int
    last: int
    indent: str


def body_of(definition: Definition, function: FunctionNode) -> Body | None:
    """Where a function's body is below its docstring; None if nothing is left to write.

    Raises:
        SourceError: it is on the line of the signature.
    """
    rest = list(function.body)
    above = function.lineno
    if ast.get_docstring(function, clean=False) is not None:
        above = rest.pop(0).end_lineno or above
    if not rest or (len(rest) == 1 and _says_nothing(rest[0])):
        return None
    indent = definition.lines[rest[0].lineno - 1][: rest[0].col_offset]
    if indent.strip():
        raise SourceError(
            f"{definition.target}: the body of {function.name} must be below its signature"
        )
    first = first_line(rest[0])
    while first - 1 > above and _is_blank_or_comment(definition.lines[first - 2]):
        first -= 1  # a comment above the first statement belongs to the solution
    while not definition.lines[first - 1].strip():
        first += 1
    return Body(first, rest[-1].end_lineno or first, indent)


def _says_nothing(node: ast.stmt) -> bool:
    is_ellipsis = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_stub = isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node)
    return isinstance(node, ast.Pass) or is_ellipsis or is_stub


def _is_blank_or_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def functions_of(definition: Definition) -> list[FunctionNode]:
    """The functions that a student writes for a definition: itself, or the methods of a class."""
    if isinstance(definition.node, FUNCTIONS):
        return [definition.node]
    if isinstance(definition.node, ast.ClassDef):
        methods = [node for node in definition.node.body if isinstance(node, FUNCTIONS)]
        return [node for node in methods if node.name not in PRESENTATION]
    return []


def solution_cell(package: Package, targets: Sequence[Target]) -> str:
    """The source of the cell, with its solution.

    Functions and classes are as in the package, without decorators (which would enter them into
    the package again). Methods are in a class that derives from the package's own; gradient lines
    are unchanged.

    Raises:
        SourceError: a definition is not there, or has nothing to write.
    """
    parts = []
    for owner, group in groupby(targets, key=lambda t: (t.path, t.owner, t.op is not None)):
        definitions = [package.find(target) for target in group]
        if owner[2]:
            parts.append(_gradient_lines(definitions))
        elif owner[1] is not None:
            base = package.public_name(Target(owner[0], owner[1]))
            methods = [_marked(d, d.first) for d in definitions]
            parts.append(f"class {owner[1]}({base}):\n" + "\n\n".join(methods))
        else:
            parts += [_marked(d, d.head) for d in definitions]
    return "\n\n\n".join(parts)


def _marked(definition: Definition, first: int) -> str:
    """Lines of a function or class from `first` on, with markers around each body."""
    bodies = [body_of(definition, f) for f in functions_of(definition)]
    spans = [body for body in bodies if body is not None]
    if not spans:
        raise SourceError(f"{definition.target} has an empty body: there is nothing to write")
    if definition.kind == "method" and _calls_super(definition.node):
        raise SourceError(
            f"{definition.target} calls super(), which in a notebook is the package's own "
            f"{definition.target.owner}: name the whole class instead"
        )
    result, position = [], first
    for body in spans:
        result += [definition.text(position, body.first - 1)] if body.first > position else []
        result += [body.indent + BEGIN, definition.text(body.first, body.last), body.indent + END]
        position = body.last + 1
    if position <= definition.last:
        result.append(definition.text(position, definition.last))
    return re.sub(r"  # type: ignore.*$", "", "\n".join(result), flags=re.MULTILINE)


def _calls_super(node: ast.AST) -> bool:
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and not n.args]
    return any(isinstance(n.func, ast.Name) and n.func.id == "super" for n in calls)


def _gradient_lines(definitions: Sequence[Definition]) -> str:
    head = "# The gradient of each input of: " + ", ".join(str(d.target.op) for d in definitions)
    return "\n".join([head, BEGIN, *[d.text() for d in definitions], END])


def clear(source: str) -> str:
    """Solutions replaced by the stub, hidden tests left out: as nbgrader does it.

    >>> print(clear("def f():\\n    ### BEGIN SOLUTION\\n    return 1\\n    ### END SOLUTION"))
    def f():
        # YOUR CODE HERE
        raise NotImplementedError("not written yet")
    """
    kept: list[str] = []
    inside = False
    for line in source.split("\n"):
        if BEGIN in line:
            indent = line[: len(line) - len(line.lstrip())]
            kept += [indent + stub for stub in STUB.split("\n")]
        if BEGIN in line or BEGIN_HIDDEN in line:
            inside = True
        elif END in line or END_HIDDEN in line:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def solution_lines(source: str) -> list[str]:
    """The lines that `clear` takes out of a cell, without their indentation."""
    lines: list[str] = []
    inside = False
    for line in source.split("\n"):
        if BEGIN in line or END in line:
            inside = BEGIN in line
        elif inside and line.strip():
            lines.append(line.strip())
    return lines


def written_lines(source: str) -> int:
    """How many lines of code a solution has, comments not counted."""
    return sum(not line.startswith("#") for line in solution_lines(source))
