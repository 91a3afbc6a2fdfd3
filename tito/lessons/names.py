"""Names that a piece of code needs from outside, and the imports that bring them."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable
from typing import TypeVar

LINE = 100
BUILTINS = frozenset(dir(builtins))
AnyFunction = TypeVar("AnyFunction", ast.FunctionDef, ast.AsyncFunctionDef)
MODULE_NAMES = frozenset(("__name__", "__file__", "__doc__"))


class _WithoutAnnotations(ast.NodeTransformer):
    """Annotations are not evaluated (`from __future__ import annotations`), so they need no name"""

    def _strip(self, node: AnyFunction) -> AnyFunction:
        node.returns = None
        self.generic_visit(node)
        return node

    visit_FunctionDef = _strip
    visit_AsyncFunctionDef = _strip

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        value: ast.expr = self.visit(node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def free_names(source: str) -> set[str]:
    """Names that the code reads when it runs and neither binds itself nor finds in builtins.

    >>> sorted(free_names("def f(x: int) -> Tensor: return g(x) + math.pi + len(x)"))
    ['g', 'math']
    """
    return read_names(source) - BUILTINS


def read_names(source: str) -> set[str]:
    """Names that the code reads when it runs and does not bind itself; builtins as well."""
    tree = ast.fix_missing_locations(_WithoutAnnotations().visit(ast.parse(source)))
    top = symtable.symtable(ast.unparse(tree), "<cell>", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    return _read(top) - bound - MODULE_NAMES


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of a function's arguments, as its signature has them."""
    made = function.args
    names = [arg.arg for arg in [*made.posonlyargs, *made.args]]
    names += [f"*{made.vararg.arg}"] if made.vararg else ["*"] * bool(made.kwonlyargs)
    names += [arg.arg for arg in made.kwonlyargs]
    return names + ([f"**{made.kwarg.arg}"] if made.kwarg else [])


def annotated_names(source: str) -> set[str]:
    """Names in the annotations of code, builtins left out.

    >>> sorted(annotated_names("def f(x: int, y: Shape | None = None) -> Tensor: pass"))
    ['Shape', 'Tensor']
    """
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    inner = [n for expression in found if expression is not None for n in ast.walk(expression)]
    return {n.id for n in inner if isinstance(n, ast.Name)} - BUILTINS


def _read(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    names = {
        s.get_name()
        for s in table.get_symbols()
        if (s.is_referenced() or s.is_declared_global()) and (is_module or s.is_global())
    }
    return names.union(*[_read(child) for child in table.get_children()])


def bound_names(source: str) -> set[str]:
    """Names that code binds at its own level, also inside `if`, `for`, `with` and `try`."""
    top = symtable.symtable(source, "<cell>", "exec")
    return {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}


def imports_of(body: Iterable[ast.stmt]) -> dict[str, str]:
    """The import that binds each name: {"np": "import numpy as np"}; also `if TYPE_CHECKING`."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.If):
            found |= imports_of(node.body)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                found[bound] = ast.unparse(ast.Import([alias]))
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                single = ast.ImportFrom(node.module, [alias], node.level)
                found[alias.asname or alias.name] = ast.unparse(single)
    return found


def imports_in(sources: Iterable[str]) -> list[str]:
    """The imports of several pieces of code, each once.

    >>> imports_in(["import math, os", "import os"])
    ['import math', 'import os']
    """
    found = [line for s in sources for line in imports_of(ast.parse(s).body).values()]
    return list(dict.fromkeys(found))


def imports_for(names: Iterable[str], text: str, module: str) -> dict[str, str]:
    """How a notebook gets names that code of a module uses; what the module, whose text this is,
    does not have is not in the result."""
    imported = imports_of(ast.parse(text).body)
    bound = bound_names(text)
    result = {}
    for name in sorted(names):
        if name in imported:
            result[name] = imported[name]
        elif name in bound:
            result[name] = f"from {module} import {name}"
    return result


def format_imports(statements: Iterable[str]) -> str:
    """Import statements of one name each, joined by module and in order.

    >>> print(format_imports(["from a import c", "import math", "from a import b"]))
    import math
    from a import b, c
    """
    plain = sorted({s for s in statements if s.startswith("import ")})
    grouped: dict[str, set[str]] = {}
    for statement in statements:
        if statement.startswith("from "):
            module, _, name = statement.removeprefix("from ").partition(" import ")
            grouped.setdefault(module, set()).add(name)
    return "\n".join(plain + [_from_line(m, sorted(grouped[m])) for m in sorted(grouped)])


def _from_line(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE:
        return line
    return f"from {module} import (\n" + "".join(f"    {n},\n" for n in names) + ")"
