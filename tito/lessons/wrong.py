"""Wrong solutions made by machine: bodies that return nothing, or an object equal to everything."""

from __future__ import annotations

import ast

from tito.lessons.exercise import BEGIN, END
from tito.lessons.source import gradient_op

# Says yes to every question that a careless test could ask of it.
EQUAL_TO_EVERYTHING = """
class EqualToEverything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __call__(self, *args, **kwargs): return self
    def __getattr__(self, name): return self
    def __getitem__(self, index): return self
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
    __matmul__ = __rmatmul__ = __neg__ = __abs__ = __round__ = __add__
"""

RESULTS = {"returns None": "None", "returns an object equal to everything": "EqualToEverything()"}


def with_result(cell: str, result: str) -> str:
    """A solution cell in which every body only returns an expression."""
    kept: list[str] = []
    taken: list[str] = []
    inside = False
    for line in cell.split("\n"):
        if BEGIN in line:
            inside, taken = True, []
        elif END in line:
            inside = False
            indent = line[: len(line) - len(line.lstrip())]
            kept += [f"{indent}return {result}"] if indent else _gradients("\n".join(taken), result)
        elif inside:
            taken.append(line)
        else:
            kept.append(line)
    return "\n".join(kept)


def _gradients(lines: str, result: str) -> list[str]:
    """Gradient lines whose formulas all give the result."""
    made = []
    for node in ast.parse(lines).body:
        if gradient_op(node) is not None and isinstance(node, ast.Expr):
            call = node.value
            assert isinstance(call, ast.Call)
            for keyword in call.keywords:
                keyword.value = ast.parse(f"lambda g: {result}", mode="eval").body
            made.append(ast.unparse(node))
    return made
