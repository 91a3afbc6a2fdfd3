"""Test cells rewritten, so that what the student's code returns can be judged elsewhere.

In the student's process `equal(f(2), 4)` becomes `__tito__.got(0, f(2))`: the 4 stays outside, and
so does the comparison. With the reference it becomes `__tito__.key(0, "equal", f(2), 4)`, which
also checks that the reference passes. Each call of a check in the source is a *site*; in a loop it
sends once a turn.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from tito.course.exam.taint import Taint

RECORDER = "__tito__"
CHECKS = "tito.checks"
COMPARED = ("equal", "close")
KNOWN = (*COMPARED, "raises", "check")
PARAMETERS = {
    "equal": ("got", "expected"),
    "close": ("got", "expected"),
    "raises": ("error", "function"),
    "check": ("condition", "message"),
}
NOT_FOR_THE_FUNCTION = {"error", "function", "match", "hint"}  # `raises` keeps these to itself


class InstrumentError(ValueError):
    """A test cell cannot be graded; the text names it and says what to change."""


@dataclass(frozen=True)
class Site:
    """One call of a check in the source of a test cell.

    Attributes:
        call: source of what is checked, for the message.
        mode: "fixed": the expected value is the reference's; "free": both values are the
            student's, compared outside; "local": compared where the student's code runs, for
            objects that are not data.
    """

    check: str
    call: str
    line: int
    mode: str


@dataclass(frozen=True)
class Source:
    """A cell of the course's notebook: `kind` is "solution", "test" or "given"; `seconds` is what
    it may take, if it has a limit of its own."""

    id: str
    kind: str
    text: str
    seconds: float | None = None


@dataclass(frozen=True)
class Instrumented:
    """A test cell with its sites, and the names by which it calls the checks."""

    id: str
    source: str
    names: Mapping[str, str]
    sites: tuple[Site, ...]

    def for_reference(self) -> str:
        """The source that checks, and records what is expected."""
        return self._rewritten(lambda i, node: _recorded("key", i, node, self.names))

    def for_student(
        self, local: frozenset[int] = frozenset(), needed: Set[str] | None = None
    ) -> str:
        """The source that only sends; sites in `local` compare in the student's process.

        Args:
            needed: names that other test cells use. If given, assignments that only a removed
                expected value needed are removed as well, so that it is nowhere to be found.
        """

        def replace(i: int, node: ast.Call | ast.Assert) -> ast.Call:
            if i in local:
                return _recorded("local", i, node, self.names)
            return _sent(i, node, self.sites[i])

        text = self._rewritten(replace)
        return text if needed is None else _pruned(text, needed)

    def _rewritten(self, replace: Callable[[int, ast.Call | ast.Assert], ast.Call]) -> str:
        tree = ast.parse(self.source)
        calls = {id(node): i for i, node in enumerate(_calls(tree, self.names))}
        rewritten = _Rewrite(calls, replace).visit(tree)
        return ast.unparse(ast.fix_missing_locations(rewritten))


def instrument(cells: Sequence[Source]) -> list[Instrumented]:
    """The test cells of a notebook, in order.

    Raises:
        InstrumentError: a test cell makes no check, or one in a form that is not known.
    """
    taint = Taint()
    names: dict[str, str] = {}
    found = []
    for cell in cells:
        tree = ast.parse(cell.text)
        if cell.kind == "solution":
            taint.read_solution(tree)
            continue
        names |= _imported_checks(tree)
        taint.read(tree)
        if cell.kind == "test":
            sites = tuple(_site(call, names, taint, cell.id) for call in _calls(tree, names))
            if not sites:
                raise InstrumentError(
                    f"test cell {cell.id!r} makes no check, so nothing in it can be graded: "
                    f"call equal, close, raises or check of {CHECKS}"
                )
            found.append(Instrumented(cell.id, cell.text, dict(names), sites))
    return found


def _imported_checks(tree: ast.Module) -> dict[str, str]:
    """What a cell calls the checks: local name to name, with a dot for those of a module."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == CHECKS:
            names |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "tito":
            modules = [a.asname or a.name for a in node.names if a.name == "checks"]
            names |= {f"{m}.{check}": check for m in modules for check in KNOWN}
        elif isinstance(node, ast.Import):
            modules = [a.asname or a.name for a in node.names if a.name == CHECKS]
            names |= {f"{m}.{check}": check for m in modules for check in KNOWN}
    return names


def _calls(tree: ast.Module, names: Mapping[str, str]) -> list[ast.Call | ast.Assert]:
    """Calls of checks, and bare asserts, in the order of the source."""
    return [n for n in _in_order(tree) if _check_name(n, names)]  # type: ignore[misc]


def _in_order(node: ast.AST) -> list[ast.AST]:
    nodes = [node]
    for child in ast.iter_child_nodes(node):
        nodes += _in_order(child)
    return nodes


def _check_name(node: ast.AST, names: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Assert):
        return "check"
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        return names.get(ast.unparse(node.func))
    return None


def _site(node: ast.Call | ast.Assert, names: Mapping[str, str], taint: Taint, cell: str) -> Site:
    check = _check_name(node, names)
    if isinstance(node, ast.Assert):
        return Site("check", ast.unparse(node.test), node.lineno, "free")
    if check not in KNOWN:
        raise InstrumentError(
            f"test cell {cell!r}, line {node.lineno}: {CHECKS}.{check} cannot be graded; "
            f"known are {', '.join(KNOWN)}"
        )
    parts = _parts(node, check)
    if parts is None:
        raise InstrumentError(
            f"test cell {cell!r}, line {node.lineno}: {check} needs {PARAMETERS[check]} written "
            f"out, not unpacked from a list"
        )
    subject, other = parts
    if check == "raises":
        called = [ast.unparse(a) for a in [*node.args[2:], *_passed_on(node)]]
        return Site(check, f"{ast.unparse(other)}({', '.join(called)})", node.lineno, "fixed")
    fixed = check in COMPARED and not taint.depends(other)
    return Site(check, ast.unparse(subject), node.lineno, "fixed" if fixed else "free")


def _parts(call: ast.Call, check: str) -> tuple[ast.expr, ast.expr] | None:
    """The first two arguments by position or name; None if they are not written out."""
    by_name = {k.arg: k.value for k in call.keywords}
    given = dict(zip(PARAMETERS[check], call.args, strict=False)) | by_name
    parts = [given.get(p, ast.Constant("")) for p in PARAMETERS[check]]
    if any(isinstance(p, ast.Starred) for p in parts) or None in by_name:
        return None
    return parts[0], parts[1]


def _passed_on(call: ast.Call) -> list[ast.keyword]:
    return [k for k in call.keywords if k.arg not in NOT_FOR_THE_FUNCTION]


def loaded(text: str) -> set[str]:
    """Names that a cell reads."""
    nodes = ast.walk(ast.parse(text))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _pruned(text: str, needed: Set[str]) -> str:
    """A cell without assignments, at its top level, to names that nothing reads."""
    tree = ast.parse(text)
    while True:
        read = loaded(ast.unparse(tree)) | needed
        kept = [s for s in tree.body if not _assigns_only(s) or _assigns_only(s) & read]
        if len(kept) == len(tree.body):
            return ast.unparse(tree)
        tree.body = kept


def _assigns_only(statement: ast.stmt) -> set[str]:
    """The names that a plain assignment binds; empty for any other statement."""
    if not isinstance(statement, ast.Assign):
        return set()
    targets = [n for target in statement.targets for n in ast.walk(target)]
    if not all(isinstance(t, (ast.Name, ast.Tuple, ast.Store)) for t in targets):
        return set()
    return {t.id for t in targets if isinstance(t, ast.Name)}


class _Rewrite(ast.NodeTransformer):
    """Put other calls in place of those with these ids; an assert becomes a statement."""

    def __init__(
        self, calls: Mapping[int, int], replace: Callable[[int, ast.Call | ast.Assert], ast.Call]
    ) -> None:
        self.calls = calls
        self.replace = replace

    def visit(self, node: ast.AST) -> ast.AST:
        index = self.calls.get(id(node))
        if index is None:
            return self.generic_visit(node)
        assert isinstance(node, (ast.Call, ast.Assert))
        call = self.replace(index, node)
        return ast.copy_location(ast.Expr(call) if isinstance(node, ast.Assert) else call, node)


def _recorded(
    method: str, index: int, node: ast.Call | ast.Assert, names: Mapping[str, str]
) -> ast.Call:
    """The whole check, with its name, for a recorder that runs it."""
    check = ast.Constant(_check_name(node, names))
    if isinstance(node, ast.Assert):
        return _call(method, [ast.Constant(index), check, node.test, ast.Constant("")])
    return _call(method, [ast.Constant(index), check, *node.args], node.keywords)


def _sent(index: int, node: ast.Call | ast.Assert, site: Site) -> ast.Call:
    """Only what the student's code makes, and nothing that tells what it should be."""
    number = ast.Constant(index)
    if isinstance(node, ast.Assert):
        return _call("truth", [number, node.test])
    parts = _parts(node, site.check)
    assert parts is not None, "instrument has refused such a cell"
    subject, other = parts
    if site.check == "check":
        return _call("truth", [number, subject])
    if site.check == "raises":
        return _call("outcome", [number, other, *node.args[2:]], _passed_on(node))
    if site.mode == "fixed":
        return _call("got", [number, subject])
    return _call("both", [number, subject, other])


def _call(
    method: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword] = ()
) -> ast.Call:
    function = ast.Attribute(ast.Name(RECORDER, ast.Load()), method, ast.Load())
    return ast.Call(function, list(arguments), list(keywords))
