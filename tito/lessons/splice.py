"""A student's cell into their package: definitions of the cell in place of the package's.

What stays is the file: its imports, its other definitions, the decorators of the replaced one (only
if it has none, those of the student's go with it, as `@no_grad()` does). What the student's code
needs and defines in the same cell (imports, helper functions, constants) goes with it; what the
cell does besides (prints, experiments) does not.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence

from tito.lessons.exercise import BEGIN, END
from tito.lessons.names import bound_names
from tito.lessons.needed import SpliceError, Supply
from tito.lessons.source import (
    FUNCTIONS,
    Definition,
    SourceError,
    Target,
    find_definition,
    first_line,
)

STUB_ERROR = "NotImplementedError"


def splice(
    files: Mapping[str, str], targets: Sequence[Target], cell: str, context: str = ""
) -> dict[str, str]:
    """The files with the definitions of a student's cell in them.

    Args:
        files: texts of the package's files, by path; at least those that the targets name.
        targets: what the cell is to define.
        cell: the student's solution cell.
        context: code that the notebook has run before, from which imports may be taken
            (`cells.context_of`).

    Returns:
        The new texts of the files that have changed.

    Raises:
        SpliceError: the cell is no Python, lacks a definition, still has the stub in it, or uses
            names that neither it nor the file has.
    """
    cell = "\n".join(x for x in cell.split("\n") if BEGIN not in x and END not in x)
    try:
        supply = Supply(cell, targets, context)
    except SyntaxError as error:
        raise SpliceError(f"line {error.lineno} of the cell is no Python: {error.msg}") from None
    changed: dict[str, str] = {}
    for target in targets:
        text = changed.get(target.path, files[target.path])
        new = _student_definition(cell, target)
        old = _package_definition(text, target)
        helpers = _helpers(new, targets)
        source = "\n".join([_lines_of(new, old), *[textwrap.dedent(h.text()) for h in helpers]])
        used = supply.needed(source, text, target)
        _check_compiled(old, used)
        changed[target.path] = _replace(text, old, new, helpers, used)
    for path, text in changed.items():
        ast.parse(text, path)
    return changed


def is_written(cell: str) -> bool:
    """Whether a solution cell is Python in which no stub is left."""
    try:
        tree = ast.parse(cell)
    except SyntaxError:
        return False
    return not any(_is_stub(node) for node in ast.walk(tree))


def _is_stub(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and "not written yet" in ast.unparse(node)


def _student_definition(cell: str, target: Target) -> Definition:
    try:
        found = find_definition(cell, target)
    except SourceError:
        what = target.name if target.op is None else f"the line {target.name}"
        raise SpliceError(f"the cell must define {what} exactly once") from None
    if any(_is_stub(node) for node in ast.walk(found.node)):
        raise SpliceError(f"{target.name} is not written yet: it still raises {STUB_ERROR}")
    return found


def _package_definition(text: str, target: Target) -> Definition:
    try:
        return find_definition(text, target)
    except SourceError as error:
        raise SpliceError(f"the package cannot take {target.name}: {error}") from None


def _lines_of(new: Definition, old: Definition) -> str:
    """The student's definition on its own, without decorators where the package's has its own."""
    is_decorated = new.kind in ("function", "class") and old.first < old.head
    return textwrap.dedent(new.text(new.head if is_decorated else None))


def _check_compiled(old: Definition, used: Sequence[str]) -> None:
    """A compiled function calls nothing that is not: numba would say so in pages.

    Raises:
        SpliceError: a helper function lacks the decorator.
    """
    decorators: list[ast.expr] = getattr(old.node, "decorator_list", [])
    if not any(ast.unparse(d).partition("(")[0] == "kernel" for d in decorators):
        return
    for node in [ast.parse(statement).body[0] for statement in used]:
        if isinstance(node, FUNCTIONS) and not node.decorator_list:
            raise SpliceError(
                f"{old.target.name} is compiled in the package, and your helper {node.name} is "
                f"not: put `@kernel` above `def {node.name}`, and `from tinytorch.jit.library "
                f"import kernel` at the top of the cell"
            )


def _replace(
    text: str, old: Definition, new: Definition, helpers: list[Definition], used: Sequence[str]
) -> str:
    target = old.target
    lines = text.split("\n")
    if target.owner is not None:
        source = _method_lines(text, old, [new, *helpers])
        start = old.first
    else:
        source = _lines_of(new, old)
        start = old.head if target.op is None else old.first
    lines[start - 1 : old.last] = source.split("\n")
    if used:
        above = _top_level_line(text, old)
        gap = "\n" if target.op is not None else "\n\n"
        lines[above - 1 : above - 1] = ("\n\n".join(used) + gap).split("\n")
    return "\n".join(lines)


def _top_level_line(text: str, old: Definition) -> int:
    """Where the statement of the file begins that holds the definition."""
    for node in ast.parse(text).body:
        if first_line(node) <= old.first <= (node.end_lineno or node.lineno):
            return first_line(node)
    return old.first


def _method_lines(text: str, old: Definition, methods: Sequence[Definition]) -> str:
    """The student's methods with the package's indentation, less those that the class has."""
    indent = " " * old.node.col_offset
    kept = []
    for method in methods:
        if method is not methods[0] and _has(text, method):
            continue
        kept.append(_indented(method, indent))
    return "\n\n".join(kept)


def _has(text: str, helper: Definition) -> bool:
    """The package's class has this very helper: it came with another of the exercise."""
    there = _bound_in(_class_of(text, helper.target)).get(helper.target.leaf)
    if there is None:
        return False
    if _meaning(there) != _meaning(helper.node):
        raise SpliceError(
            f"{helper.target.path} has a {helper.target.name} of its own: give the helper in your "
            f"class another name"
        )
    return True


def _helpers(method: Definition, exercise: Sequence[Target]) -> list[Definition]:
    """Methods and constants of the student's class that a method reads, and that the exercise does
    not name."""
    if method.target.owner is None:
        return []
    owner = _class_of("\n".join(method.lines), method.target)
    asked = {target.leaf for target in exercise if target.owner == owner.name}
    own = {name: node for name, node in _bound_in(owner).items() if name not in asked}
    found: dict[str, Definition] = {}
    waiting: list[ast.stmt] = [method.node]
    while waiting:
        node = waiting.pop()
        for name in sorted(own.keys() & _read_in_class(node) - found.keys()):
            place, made = Target(method.target.path, f"{owner.name}.{name}"), own[name]
            last = made.end_lineno or made.lineno
            found[name] = Definition(place, "helper", made, method.lines, first_line(made), last)
            waiting.append(made)
    return sorted(found.values(), key=lambda helper: helper.first)


def _bound_in(owner: ast.ClassDef) -> dict[str, ast.stmt]:
    """The names that the body of a class binds, and the statements that do."""
    found: dict[str, ast.stmt] = {}
    for node in owner.body:
        if isinstance(node, FUNCTIONS):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= dict.fromkeys(bound_names(ast.unparse(node)), node)
    return found


def _read_in_class(node: ast.stmt) -> set[str]:
    """Names of a class that a method may ask its object for, or a constant of the class reads."""
    read = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    if not isinstance(node, FUNCTIONS):
        read |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return read


def _class_of(text: str, method: Target) -> ast.ClassDef:
    kept = (n for n in ast.parse(text).body if isinstance(n, ast.ClassDef))
    return next(n for n in kept if n.name == method.owner)


def _indented(definition: Definition, indent: str) -> str:
    source = definition.text()
    if definition.node.col_offset == len(indent):
        return source
    moved = textwrap.indent(textwrap.dedent(source), indent)
    (again,) = ast.parse(textwrap.dedent(moved)).body
    if _meaning(again) != _meaning(definition.node):
        raise SpliceError(f"indent {definition.target.name} by {len(indent)} spaces")
    return moved


def _meaning(node: ast.stmt) -> str:
    """The syntax of a function without its docstring, whose indentation says nothing; of a constant
    all of it."""
    if not isinstance(node, FUNCTIONS):
        return ast.dump(node)
    skipped = int(ast.get_docstring(node) is not None)
    return "".join(map(ast.dump, node.body[skipped:]))
