"""The package's source: where a definition is, and which one a dotted name means.

Nothing is imported or run: the package is read with `ast`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tito.lessons.published import published_by, publisher_of

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
GRADIENT = re.compile(r"""gradient\(["'](?P<op>\w+)["']\)""")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class SourceError(ValueError):
    """The package has no such definition, or it cannot be made an exercise."""


@dataclass(frozen=True)
class Target:
    """The place of a definition: a file of the package and a name in it.

    Attributes:
        path: `tinytorch/nn/linear.py`.
        name: `Linear`, `Linear.forward`, or `gradient("mul")` for an op's gradient line.
    """

    path: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """From `tinytorch/nn/linear.py::Linear.forward`.

        Raises:
            SourceError: it does not have this form.
        """
        path, separator, name = text.partition("::")
        line = GRADIENT.fullmatch(name)
        name = f'gradient("{line["op"]}")' if line else name
        if not (separator and path.endswith(".py") and (line or NAME.fullmatch(name))):
            raise SourceError(
                f"{text!r} is no place of a definition; write tinytorch/shapes.py::broadcast, "
                f'tinytorch/nn/linear.py::Linear.forward or tinytorch/gradients.py::gradient("mul")'
            )
        return cls(path, name)

    def __str__(self) -> str:
        return f"{self.path}::{self.name}"

    @property
    def module(self) -> str:
        """The dotted name of the file: `tinytorch.nn.linear`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def op(self) -> str | None:
        """The op whose gradient line it is."""
        found = GRADIENT.fullmatch(self.name)
        return found["op"] if found else None

    @property
    def owner(self) -> str | None:
        """The class of which it is a method."""
        owner, dot, _ = self.name.partition(".")
        return owner if dot and self.op is None else None

    @property
    def leaf(self) -> str:
        """The name that its `def` or `class` carries."""
        return self.name.rpartition(".")[2] if self.op is None else self.name


@dataclass(frozen=True)
class Definition:
    """A definition as it is in a file.

    Attributes:
        kind: "function", "class", "method" or "gradient".
        node: its syntax.
        lines: all lines of the file.
        first, last: its lines, decorators included, counted from 1.
    """

    target: Target
    kind: str
    node: ast.stmt
    lines: tuple[str, ...]
    first: int
    last: int

    @property
    def head(self) -> int:
        """The line of `def` or `class`, below the decorators."""
        return self.node.lineno

    def text(self, first: int | None = None, last: int | None = None) -> str:
        """Its source, or some lines of the file."""
        start = self.first if first is None else first
        return "\n".join(self.lines[start - 1 : self.last if last is None else last])

    def without_docstring(self) -> str:
        """The lines without the docstring at their top."""
        body = getattr(self.node, "body", [])
        if self.docstring is None or not body:
            return self.text()
        above, below = body[0].lineno - 1, (body[0].end_lineno or 0) + 1
        lines = [*self.lines[self.first - 1 : above], *self.lines[below - 1 : self.last]]
        return "\n".join(lines)

    @property
    def docstring(self) -> str | None:
        if isinstance(self.node, (*FUNCTIONS, ast.ClassDef)):
            return ast.get_docstring(self.node)
        return None


def first_line(node: ast.stmt) -> int:
    """Where a statement begins: a definition with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *[d.lineno for d in decorators]])


def gradient_op(node: ast.stmt) -> str | None:
    """The op of a statement `gradient("mul", ...)`, or None if it is another statement."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return None
    call = node.value
    if not (isinstance(call.func, ast.Name) and call.func.id == "gradient" and call.args):
        return None
    first = call.args[0]
    is_name = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first.value if is_name else None  # type: ignore[attr-defined]


def _is_overload(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(d).rpartition(".")[2] == "overload" for d in decorators)


def _named(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    kinds = (*FUNCTIONS, ast.ClassDef)
    return [n for n in body if isinstance(n, kinds) and n.name == name and not _is_overload(n)]


def find_definition(text: str, target: Target, tree: ast.Module | None = None) -> Definition:
    """The definition in a file's text; its path plays no part.

    Args:
        tree: the text's syntax, where it is known already.

    Raises:
        SourceError: there is none, or more than one; the message names the nearest.
        SyntaxError: the text is no Python.
    """
    body = (ast.parse(text) if tree is None else tree).body
    if target.op is not None:
        found, kind = [n for n in body if gradient_op(n) == target.op], "gradient"
        known = [f'gradient("{op}")' for op in map(gradient_op, body) if op]
    else:
        known = _names_in(body)
        if target.owner is not None:
            classes = [n for n in _named(body, target.owner) if isinstance(n, ast.ClassDef)]
            body = classes[0].body if classes else []
        found = _named(body, target.leaf)
        kind = "method" if target.owner is not None else "function"
    if len(found) != 1:
        close = get_close_matches(target.name, known)
        hint = f"; did you mean {' or '.join(close)}?" if close and not found else ""
        many = f"{len(found)} definitions" if found else "no definition"
        raise SourceError(f"{target.path} has {many} of {target.name}{hint}")
    node = found[0]
    if isinstance(node, ast.ClassDef):
        kind = "class"
    assert node.end_lineno is not None
    lines = tuple(text.split("\n"))
    return Definition(target, kind, node, lines, first_line(node), node.end_lineno)


def _names_in(body: list[ast.stmt]) -> list[str]:
    names = []
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.append(node.name)
        if isinstance(node, ast.ClassDef):
            names += [f"{node.name}.{n.name}" for n in node.body if isinstance(n, FUNCTIONS)]
    return names


class Package:
    """The source of a package `tinytorch`, read on demand.

    Args:
        root: the folder that contains `tinytorch/`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._trees: dict[str, ast.Module] = {}
        self._published: dict[str, dict[str, Target]] = {}

    def text(self, path: str) -> str:
        """The text of a file, by its path from the root.

        Raises:
            SourceError: there is no such file.
        """
        file = self.root / path
        if not file.is_file():
            raise SourceError(f"{path} does not exist")
        return file.read_text(encoding="utf-8")

    def tree(self, path: str) -> ast.Module:
        """The syntax of a file."""
        if path not in self._trees:
            self._trees[path] = ast.parse(self.text(path), path)
        return self._trees[path]

    def find(self, target: Target) -> Definition:
        """The definition at a place.

        Raises:
            SourceError: there is none.
        """
        return find_definition(self.text(target.path), target, self.tree(target.path))

    def lessons(self) -> set[int]:
        """The numbers of the lessons beside the package."""
        found = (path.parent.name[:2] for path in self.root.glob("modules/*/lesson.md"))
        return {int(number) for number in found if number.isdigit()}

    def path_of(self, module: str) -> str | None:
        """The file of a module, or None if there is no such module."""
        stem = module.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if (self.root / path).is_file():
                return path
        return None

    def resolve(self, dotted: str) -> Target | None:
        """The function or class that `tinytorch.nn.Linear` means, through all re-exports.

        None for a module, for a name that is no function or class, and for what is not there.

        Raises:
            SourceError: a module publishes its functions by arguments that only running it tells.
        """
        module, *names = dotted.split(".")
        return self._resolve_in(module, names)

    def _resolve_in(self, module: str, names: list[str]) -> Target | None:
        path = self.path_of(module)
        if path is None or not names:
            return None
        name, *rest = names
        body = self.tree(path).body
        if _named(body, name):
            return Target(path, name)
        origin = _imported_from(body, name)
        if origin is not None and origin != (module, name):
            return self._resolve_in(origin[0], [origin[1], *rest])
        publisher = publisher_of(body)
        if publisher is not None and name in self._published_in(publisher):
            return self._published_in(publisher)[name]
        return self._resolve_in(f"{module}.{name}", rest)

    def _published_in(self, publisher: str) -> dict[str, Target]:
        """The functions that the modules beside a publisher publish, by their public names."""
        if publisher not in self._published:
            found: dict[str, Target] = {}
            folder = self.root / publisher.rpartition(".")[0].replace(".", "/")
            for file in sorted(folder.glob("*.py")):
                path = file.relative_to(self.root).as_posix()
                body = self.tree(path).body
                try:
                    names = published_by(body)
                except ValueError as error:
                    raise SourceError(
                        f"{path}: the arguments of publish must be literal, to be read without "
                        f"running it ({error})"
                    ) from None
                found |= {n: Target(path, own) for n, own in names.items() if _named(body, own)}
            self._published[publisher] = found
        return self._published[publisher]

    def public_name(self, target: Target) -> str:
        """The shortest dotted name of a function or class: `tinytorch.nn.Linear`."""
        parts = target.module.split(".")
        for end in range(1, len(parts)):
            dotted = ".".join([*parts[:end], target.name])
            if self.resolve(dotted) == target:
                return dotted
        return f"{target.module}.{target.name}"


def _imported_from(body: list[ast.stmt], name: str) -> tuple[str, str] | None:
    """The module that a module's own imports take a name from, and what it is called there."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None
