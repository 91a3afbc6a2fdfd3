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


class _WithScopes(ast.NodeTransformer):
    """Makes comprehensions generator expressions: from Python 3.12 on, variables of the others are
    in the symbols of the code around them."""

    def _as_generator(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> ast.expr:
        self.generic_visit(node)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return ast.GeneratorExp(ast.Tuple(parts, ast.Load()), node.generators)

    visit_ListComp = visit_SetComp = visit_DictComp = _as_generator


def free_names(source: str) -> set[str]:
    """Names that the code reads when it runs and neither binds itself nor finds in builtins.

    >>> sorted(free_names("def f(x: int) -> Tensor: return g(x) + math.pi + len(x)"))
    ['g', 'math']
    """
    return read_names(source) - BUILTINS


def read_names(source: str) -> set[str]:
    """Names that the code reads when it runs and does not bind itself; builtins as well."""
    top = _symbols(_WithoutAnnotations().visit(ast.parse(source)))
    return _read(top) - _bound(top) - MODULE_NAMES


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
    named, others = [], []
    for node in ast.parse(source).body:  # what a function or class has inside says nothing here
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            named.append(node.name)
        else:
            others.append(node)
    return _bound(_symbols(ast.Module(others, []))).union(named)


def _symbols(tree: ast.AST) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(_WithScopes().visit(tree)), "<cell>", "exec")


def _bound(table: symtable.SymbolTable) -> set[str]:
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}


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
