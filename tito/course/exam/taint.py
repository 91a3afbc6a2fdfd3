"""Which expressions of a test cell depend on the student's code, found in its source.

What does not depend on it (`np.maximum(x, 0)`, with an x of the test's own) has one right value,
which the reference can give. What does (`layer.weight * 2`, with weights that the student's code
has drawn) is right or wrong only beside the student's own values. The analysis errs on the side of
"depends": that costs protection, and never a point.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

# These draw from a generator that the student's code may have drawn from before.
RANDOM = {
    "rand", "randn", "randint", "randperm", "bernoulli", "rand_like", "randn_like", "draw_seed",
    "dropout", "random", "normal", "uniform", "choice", "shuffle", "permutation", "sample", "gauss",
}  # fmt: skip
SEEDS = {"manual_seed", "seed"}


class Taint:
    """What is known of names while the cells of a notebook are read in order.

    Attributes:
        given: names of modules, of what is imported from them, and builtins.
        owned: names that cells of the student's bind.
        dirty: names of test cells that hold something which depends on those.
        clean: names of test cells that do not.
    """

    def __init__(self) -> None:
        self.given = {*dir(builtins), "tinytorch", "__name__"}
        self.owned: set[str] = set()
        self.dirty: set[str] = set()
        self.clean: set[str] = set()
        self.disturbed = False  # the student's code has run since the last seed

    def read_solution(self, tree: ast.Module) -> None:
        """All that a cell of the student's binds is theirs."""
        self.owned |= _bound(tree.body, inner=False)

    def read(self, tree: ast.Module) -> None:
        """A cell of the course's own: follow its assignments."""
        bound = _bound(tree.body)
        self.dirty -= bound
        self.clean -= bound
        for _ in range(2):  # the second time for names that a loop binds below their use
            self.disturbed = False  # each cell starts from a seed
            for statement in tree.body:
                self._statement(statement)

    def depends(self, node: ast.AST) -> bool:
        """Does the value of an expression depend on the student's code?"""
        return any(
            (isinstance(n, ast.Name) and self._is_dirty(n, node)) or self._draws(n)
            for n in ast.walk(node)
        )

    def _is_dirty(self, name: ast.Name, inside: ast.AST) -> bool:
        if name.id in self.owned | self.dirty:
            return True
        return name.id not in self.given | self.clean | _inner(inside)

    def _draws(self, node: ast.AST) -> bool:
        """A draw from a generator that the student's code may have moved."""
        if not self.disturbed or not isinstance(node, ast.Call):
            return False
        own = any(keyword.arg == "generator" for keyword in node.keywords)
        return not own and _called(node) in RANDOM

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            self.given |= _bound([statement])
            return
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
        self.disturbed |= any(self.depends(call) for call in calls)
        for node in ast.walk(statement):
            for target, value in _assignments(node):
                self._bind(target, self.depends(value))
        for call in calls:  # a list to which something of the student's is appended is theirs
            if isinstance(call.func, ast.Attribute) and any(map(self.depends, call.args)):
                self._bind(call.func.value, True)
        if any(_called(call) in SEEDS for call in calls):
            self.disturbed = False

    def _bind(self, target: ast.AST, dirty: bool) -> None:
        names = {n.id: n.ctx for n in ast.walk(target) if isinstance(n, ast.Name)}
        for name, context in names.items():
            if dirty and name not in self.given:
                self.dirty.add(name)
                self.clean.discard(name)
            elif isinstance(context, ast.Store) and name not in self.dirty:
                self.clean.add(name)


def _assignments(node: ast.AST) -> Iterable[tuple[ast.AST, ast.AST]]:
    """Pairs of what is bound and what it depends on."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value:
        return [(node.target, node.value)]
    if isinstance(node, (ast.For, ast.comprehension)):
        return [(node.target, node.iter)]
    if isinstance(node, ast.withitem) and node.optional_vars:
        return [(node.optional_vars, node.context_expr)]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [(ast.Name(node.name, ast.Store()), node)]
    return []


def _bound(statements: Iterable[ast.AST], inner: bool = True) -> set[str]:
    """Names that statements bind; `inner` adds those that bodies of functions and classes do."""
    names: set[str] = set()
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            if not inner:
                continue
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        names |= _bound(ast.iter_child_nodes(node), inner)
    return names


def _inner(node: ast.AST) -> set[str]:
    """Names of parameters and of comprehensions in an expression: bound inside of it."""
    parameters = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return parameters | {n.id for n in stored}


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
