"""One change at a time to the syntax tree of a solution: what a student could get wrong.

Changed is only what a student writes: bodies, neither signatures nor docstrings, annotations, the
words of an error, or `assert`s. Source of the idea and of most operators: R. DeMillo, R. Lipton,
F. Sayward, "Hints on test data selection", IEEE Computer 11(4), 1978.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tito.lessons.exercise import BEGIN, END
from tito.lessons.source import FUNCTIONS, gradient_op

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
# of functions and of ops that are handed on: their first two operands may change places
COMMUTES = {"max", "min", "add", "mul", "maximum", "minimum", "eq", "ne"}
COMMUTES |= {"result_type", "broadcast_shapes"}
UNMUTATED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)
SHOWN_WITH_PARENT = (ast.Constant, ast.Name, ast.keyword, ast.Slice, ast.comprehension)


@dataclass(frozen=True)
class Mutant:
    """A solution cell with one change.

    Attributes:
        exercise: its id.
        change: where, and what became what: `mean: x / n -> x * n`. Unique in the exercise.
        source: of the whole cell.
    """

    exercise: str
    change: str
    source: str


def mutants_of(exercise: str, cell: str) -> list[Mutant]:
    """The cells that differ from a solution cell in one place of what is written in it."""
    return _Mutation(exercise, cell).made()


@dataclass(frozen=True)
class _Slot:
    """Where a node is in its parent."""

    parent: ast.AST
    field: str
    index: int

    def put(self, node: ast.AST) -> None:
        holder = getattr(self.parent, self.field)
        if isinstance(holder, list):
            holder[self.index] = node
        else:
            setattr(self.parent, self.field, node)


class _Mutation:
    """A walk over the tree of a cell; at each node it is changed, written down, changed back."""

    def __init__(self, exercise: str, cell: str) -> None:
        self.exercise = exercise
        self.tree = ast.parse(cell)
        self.written = _between_markers(cell)
        self.found: list[Mutant] = []
        self.sources = {ast.unparse(self.tree)}
        self.times: dict[str, int] = {}
        self.above: list[ast.AST] = []

    def made(self) -> list[Mutant]:
        self.visit(self.tree, "")
        return self.found

    def visit(self, node: ast.AST, where: str) -> None:
        if isinstance(node, UNMUTATED):
            return
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            where = f"{where}.{node.name}" if where else node.name
            self.early_return(node, where)
        elif isinstance(node, ast.stmt) and (op := gradient_op(node)) is not None:
            where = f'gradient("{op}")'
        if isinstance(node, ast.expr) and _number(node) is not None:
            return
        self.above.append(node)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases"):
                continue
            children = value if isinstance(value, list) else [value]
            for index, child in enumerate(children):
                if isinstance(child, ast.AST) and not _is_strict(child):
                    self.change(node, field, index, child, where)
                    self.visit(child, where)
        self.above.pop()

    def change(self, parent: ast.AST, field: str, index: int, child: ast.AST, where: str) -> None:
        """Put each variant into the place of a child."""
        if not self.is_written(child):
            return
        if isinstance(child, ast.stmt):
            variants = _statements(child, [a for a in self.above if isinstance(a, FUNCTIONS)])
        elif isinstance(child, ast.expr):
            variants = _expressions(child)
        else:
            variants = _generators(child)
        for variant in variants:
            self.record(_Slot(parent, field, index), child, variant, where)

    def is_written(self, node: ast.AST) -> bool:
        line = getattr(node, "lineno", None)
        if line is None:
            line = min((n.lineno for n in ast.walk(node) if hasattr(n, "lineno")), default=0)
        return line in self.written

    def record(self, place: _Slot, old: ast.AST, new: ast.AST, where: str) -> None:
        shown = self.shown(old)
        before = _text(shown)
        place.put(new)
        source = ast.unparse(ast.fix_missing_locations(self.tree))
        after = _said(old, new) or _text(new if shown is old else shown)
        place.put(old)
        self.add(f"{where}: {before} -> {after}", source)

    def add(self, change: str, source: str) -> None:
        if source in self.sources:
            return
        self.sources.add(source)
        self.times[change] = times = self.times.get(change, 0) + 1
        name = change if times == 1 else f"{change} ({times})"
        self.found.append(Mutant(self.exercise, name, source))

    def shown(self, node: ast.AST) -> ast.AST:
        """The node itself, or for a small one what it is in."""
        for above in reversed(self.above):
            is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
            if not (isinstance(node, SHOWN_WITH_PARENT) or is_minus):
                break
            node = above
        return node

    def early_return(self, function: ast.AST, where: str) -> None:
        """The first argument is what is returned, at once."""
        if not isinstance(function, FUNCTIONS) or not any(
            isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function)
        ):
            return
        names = [a.arg for a in function.args.posonlyargs + function.args.args if a.arg != "self"]
        body = function.body
        if not names or not self.is_written(body[-1]):
            return
        documented = ast.get_docstring(function) is not None
        function.body = [*body[:documented], ast.Return(ast.Name(names[0], ast.Load()))]
        source = ast.unparse(ast.fix_missing_locations(self.tree))
        function.body = body
        self.add(f"{where}: early return of {names[0]}", source)


def _between_markers(cell: str) -> set[int]:
    """The numbers of the lines between solution markers."""
    found, inside = set(), False
    for number, line in enumerate(cell.split("\n"), start=1):
        if BEGIN in line or END in line:
            inside = BEGIN in line
        elif inside:
            found.add(number)
    return found


def _text(node: ast.AST) -> str:
    """How a node reads; of a statement with a body its first line."""
    if isinstance(node, ast.comprehension):
        return ast.unparse(node).strip()
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]


def _said(old: ast.AST, new: ast.AST) -> str:
    """What became of a statement, where the new one's first line does not say it."""
    if isinstance(new, ast.Pass):
        return "nothing"
    if isinstance(old, (ast.For, ast.While)):
        return "once"
    if isinstance(old, (ast.With, ast.Try)):
        return "without finally" if isinstance(new, ast.Try) else "only its body"
    return ""


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield ast.BoolOp(other, node.values)
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp):
        number = _number(node)
        if number is None:
            yield node.operand
        else:
            yield from _constants(number)
    elif isinstance(node, ast.BinOp):
        if type(node.op) in COMPUTED:
            yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
        if isinstance(node.op, ORDERED):
            yield ast.BinOp(node.right, node.op, node.left)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield node.value


def _compared(node: ast.Compare) -> Iterator[ast.expr]:
    for i, op in enumerate(node.ops):
        for other in COMPARED[type(op)]:
            yield ast.Compare(
                node.left, [*node.ops[:i], other(), *node.ops[i + 1 :]], node.comparators
            )


def _number(node: ast.expr) -> float | None:
    """The value of a literal with a minus sign."""
    if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)):
        return None
    value = node.operand.value if isinstance(node.operand, ast.Constant) else None
    return -value if isinstance(value, (int, float)) else None


def _is_strict(node: ast.AST) -> bool:
    """A keyword that only says what is so: zip(a, b, strict=True)."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, float):
        yield ast.Constant(2 * value if value else 1.0)
        if value:
            yield ast.Constant(-value)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    for i, keyword in enumerate(node.keywords):
        rest = node.keywords[:i] + node.keywords[i + 1 :]
        if keyword.arg is not None and not _is_strict(keyword):
            yield ast.Call(node.func, node.args, rest)
    if isinstance(node.func, ast.Attribute) and not node.args:
        yield node.func.value  # x.detach() -> x
    if not node.args or any(isinstance(arg, ast.Starred) for arg in node.args):
        return
    if len(node.args) == 1 and not isinstance(node.args[0], ast.GeneratorExp):
        yield node.args[0]
    words = [ast.unparse(each).rpartition(".")[2] for each in (node.func, *node.args)]
    for i in range(len(node.args) - 1):
        # what comes before the two: the function, or an op that is applied
        if words[i] not in COMMUTES and words[i] != "apply":
            swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            yield ast.Call(node.func, swapped, node.keywords)


def _generators(node: ast.AST) -> Iterator[ast.AST]:
    """Without one of the conditions; a keyword is handled with its call."""
    if isinstance(node, ast.comprehension):
        for i in range(len(node.ifs)):
            rest = node.ifs[:i] + node.ifs[i + 1 :]
            yield ast.comprehension(node.target, node.iter, rest, node.is_async)


def _statements(node: ast.stmt, functions: list[ast.AST]) -> Iterator[ast.stmt]:
    if isinstance(node, ast.If):
        for value in (True, False):
            yield ast.If(ast.Constant(value), node.body, node.orelse)
    elif isinstance(node, (ast.While, ast.For)):
        once = [*node.body, ast.Break()]
        if isinstance(node, ast.For):
            yield ast.For(node.target, node.iter, once, node.orelse)
        else:
            yield ast.While(node.test, once, node.orelse)
        yield ast.Pass()
    elif isinstance(node, ast.With):
        yield _block(node.body)
    elif isinstance(node, ast.Try):
        if node.finalbody:
            yield _block(node.body) if not node.handlers else _without_finally(node)
        if node.handlers:
            yield _block([*node.body, *node.orelse, *node.finalbody])
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        yield ast.Pass()
    elif isinstance(node, (ast.Raise, ast.Delete)):
        yield ast.Pass()
    elif isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Constant):
            yield ast.Pass()
    elif isinstance(node, ast.AugAssign):
        yield from _augmented(node)
    elif isinstance(node, ast.Return):
        if not functions or node not in functions[-1].body:  # type: ignore[attr-defined]
            yield ast.Pass()
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_bound_without(node, functions):
        yield ast.Pass()


def _block(body: list[ast.stmt]) -> ast.stmt:
    return ast.If(ast.Constant(True), body, [])


def _without_finally(node: ast.Try) -> ast.stmt:
    return ast.Try(node.body, node.handlers, node.orelse, [])


def _augmented(node: ast.AugAssign) -> Iterator[ast.stmt]:
    yield ast.Pass()
    if type(node.op) in COMPUTED:
        yield ast.AugAssign(node.target, COMPUTED[type(node.op)](), node.value)
    yield ast.Assign([node.target], node.value)


def _is_bound_without(node: ast.Assign | ast.AnnAssign, functions: list[ast.AST]) -> bool:
    """Whether what is assigned has a value before, so that leaving it out is a plausible mistake
    and not a NameError."""
    if node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
        return True
    if not functions:
        return False
    function = functions[-1]
    bound = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    bound |= {
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name)
        and isinstance(n.ctx, ast.Store)
        and (n.lineno, n.col_offset) < (node.lineno, node.col_offset)
    }
    return names <= bound
