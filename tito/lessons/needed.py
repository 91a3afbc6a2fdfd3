"""What a student's definition needs besides itself, and so takes with it into the package."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tito.lessons.names import BUILTINS, bound_names, imports_of, read_names
from tito.lessons.source import FUNCTIONS, Target, first_line


class SpliceError(ValueError):
    """The cell cannot take the place of the package's definitions; the message says why."""


class Supply:
    """The names that a cell and what ran before it can give to a definition.

    Args:
        cell: the student's solution cell.
        targets: what it is to define.
        context: code that ran before, of which imports are taken.

    Raises:
        SyntaxError: the cell is no Python.
    """

    def __init__(self, cell: str, targets: Sequence[Target], context: str) -> None:
        asked = {name_in_file(target) for target in targets}
        self.offered = _offered(cell, asked)
        self.altered = _altered(cell)
        self.imports = imports_of(ast.parse(context).body)
        for target in targets:
            if target.op is None:
                name = name_in_file(target)
                self.imports[name] = f"from {target.module} import {name}"

    def needed(self, source: str, text: str, target: Target) -> list[str]:
        """Statements that code needs and the file that it goes into lacks, in their order.

        Raises:
            SpliceError: a name is nowhere; or it means something else in the file.
        """
        file = _File(text, target)
        self._check_builtins(source, file)
        found: dict[str, str] = {}
        absent = set()
        wanted = self._wanted(source)
        while wanted:
            name = wanted.pop()
            if name in found or file.has(name, self.offered.get(name)):
                continue
            statement = self.offered.get(name) or self.imports.get(name)
            if name in self.offered and name in self.altered:
                raise SpliceError(
                    f"{target.name} uses {name}, which other statements of its cell change after "
                    f"it was made, and these do not go with it: make it in one statement"
                )
            if statement is None:
                absent.add(name)
            else:
                file.check_untouched(name)
                found[name] = statement
                wanted += self._wanted(statement)
        if absent:
            raise SpliceError(
                f"{target.name} uses {', '.join(sorted(absent))}, which its cell does not define: "
                f"put the import or the helper into the same cell"
            )
        every = [*self.imports.values(), *self.offered.values()]
        return list(dict.fromkeys(s for s in every if s in found.values()))

    def _wanted(self, source: str) -> list[str]:
        """Names that code takes from outside; Python's where the notebook makes others of them."""
        own = BUILTINS - set(self.offered) - set(self.imports)
        return list(read_names(source) - own)

    def _check_builtins(self, source: str, file: _File) -> None:
        used = BUILTINS & read_names(source)
        other = used & file.names - set(self.offered) - set(self.imports)
        if other:
            raise SpliceError(
                f"{file.target.path} has a {min(other)} of its own, so there your code would not "
                f"get Python's: import builtins and write builtins.{min(other)}"
            )


class _File:
    """A file of the package, and the names that it has."""

    def __init__(self, text: str, target: Target) -> None:
        self.target = target
        self.text = text
        self.body = ast.parse(text).body
        self.names = bound_names(text) | set(imports_of(self.body)) | {name_in_file(target)}

    def has(self, name: str, statement: str | None) -> bool:
        """Whether a name stands for the same here; the statement is the cell's, if it has one.

        Raises:
            SpliceError: the cell makes something else of it.
        """
        if name not in self.names or statement is None:
            return name in self.names
        (node,) = ast.parse(statement).body
        imported = imports_of([node]).get(name)
        same_import = imported is not None and imported == imports_of(self.body).get(name)
        if same_import or any(ast.dump(node) == ast.dump(other) for other in self.body):
            return True
        raise SpliceError(
            f"{self.target.path} has a {name} of its own, which other code uses: give the helper "
            f"in your cell another name"
        )

    def check_untouched(self, name: str) -> None:
        """A new name of the file must not hide Python's from other code in it.

        Raises:
            SpliceError: it would.
        """
        if name in BUILTINS & read_names(self.text):
            raise SpliceError(
                f"{self.target.path} uses Python's {name}, and in your code {name} is another: "
                f"give yours another name"
            )


def name_in_file(target: Target) -> str:
    """The name at module level that a definition is, or belongs to."""
    return "gradient" if target.op is not None else target.owner or target.name


def _offered(cell: str, asked: set[str]) -> dict[str, str]:
    """Names that the cell binds besides what the exercise asks for, and the statements that do."""
    body = ast.parse(cell).body
    offered: dict[str, str] = dict(imports_of(body))
    lines = cell.split("\n")
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            if node.name not in asked:
                offered[node.name] = "\n".join(lines[first_line(node) - 1 : node.end_lineno])
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            statement = ast.get_source_segment(cell, node) or ast.unparse(node)
            offered |= dict.fromkeys(bound_names(statement), statement)
    return offered


def _altered(cell: str) -> set[str]:
    """Names whose values statements at the top of a cell change: `n += 1`, `table[key] = value`."""
    found = set()
    outside = [n for n in ast.parse(cell).body if not isinstance(n, (*FUNCTIONS, ast.ClassDef))]
    for node in [part for statement in outside for part in ast.walk(statement)]:
        if isinstance(node, ast.AugAssign):
            place: ast.expr = node.target
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            place = node.value
        else:
            continue
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if isinstance(place, ast.Name):
            found.add(place.id)
    return found
