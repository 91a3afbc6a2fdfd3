"""Rewrite rules written as text, and how they are matched and built.

x * 1 -> x                    a number matches a number of that value
-(-x) -> x                    x, y, z, c match any value
(x * a) * b -> x * (a * b)    a, b match numbers, with which the right side may compute
permute(permute(x, dims=p), dims=q) -> permute(x, dims=tuple([p[i] for i in q]))
                              names of parameters match what they are
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tinytorch.graph.semantics import AnyGraph, AnyNode, Semantics

Bound = dict[str, Any]
VALUES, NUMBERS = {"x", "y", "z", "c"}, {"a", "b"}
OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.USub: "neg",
}  # fmt: skip


class Rule:
    """`left -> right`, perhaps on a condition.

    Args:
        text: the rule.
        when: a function of (some of) the names in `left`, by its parameters' names; for x, y, z
            it gets shape and dtype of the values.
    """

    def __init__(self, text: str, when: Callable[..., bool] | None = None) -> None:
        self.text = text
        left, right = text.split("->")
        self.left = ast.parse(left.strip(), mode="eval").body
        self.right = ast.parse(right.strip(), mode="eval").body
        self.when = when
        self._name = _parts(self.left)[0]  # of the op at the top, to look at first

    def match(self, node: AnyNode, semantics: Semantics) -> Bound | None:
        """The nodes that the names of the rule match at this node; None if it does not match."""
        bound: Bound = {}
        if node.op != "call_function" or semantics.op_name(node) != self._name:
            return None
        if not _matches(self.left, node, bound, semantics):
            return None
        if self.when is not None:
            code = self.when.__code__
            seen = {n: semantics.meta(v) if n in VALUES else v for n, v in bound.items()}
            if not self.when(*[seen[name] for name in code.co_varnames[: code.co_argcount]]):
                return None
        return bound

    def build(self, graph: AnyGraph, bound: Bound, semantics: Semantics) -> Any:
        """The right side: nodes for what has values in it, numbers for what has not."""
        return _build(self.right, graph, bound, semantics)


def _matches(pattern: ast.expr, value: Any, bound: Bound, semantics: Semantics) -> bool:
    is_node = semantics.is_node(value)
    is_number = type(value) in (int, float)
    match pattern:
        case ast.Name(id=name):
            if (name in VALUES and not is_node) or (name in NUMBERS and not is_number):
                return False
            return bound.setdefault(name, value) is value or bool(bound[name] == value)
        case ast.Constant(value=number):
            return is_number and repr(float(value)) == repr(float(number))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)):
            return is_number and repr(float(value)) == repr(-float(number))  # type: ignore[arg-type]
    if not is_node or value.op != "call_function":
        return False
    name, operands, parameters = _parts(pattern)
    found = semantics.signature(value)
    if found is None:
        return False
    own_name, own_args, own_parameters = found
    if own_name != name or len(own_args) != len(operands) or set(own_parameters) != set(parameters):
        return False
    orders = [own_args, own_args[::-1]] if semantics.is_commutative(value) else [own_args]
    for args in orders:
        trial = dict(bound)
        pairs = list(zip(operands, args, strict=True))
        pairs += [(parameters[key], own_parameters[key]) for key in parameters]
        if all(_matches(p, v, trial, semantics) for p, v in pairs):
            bound.update(trial)
            return True
    return False


def _build(tree: ast.expr, graph: AnyGraph, bound: Bound, semantics: Semantics) -> Any:
    if isinstance(tree, ast.Name):
        return bound[tree.id]
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    if not names & VALUES:
        return _compute(tree, bound)
    name, operands, parameters = _parts(tree)
    args = [_build(operand, graph, bound, semantics) for operand in operands]
    kwargs = {key: _compute(value, bound) for key, value in parameters.items()}
    return semantics.call(graph, name, args, kwargs)


def _parts(tree: ast.expr) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
    """Op name, operands and parameters of an expression."""
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)], [left, right], {}
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)], [operand], {}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return name, args, {str(k.arg): k.value for k in keywords}
    raise ValueError(f"`{ast.unparse(tree)}` cannot be in a rule")


def _compute(tree: ast.expr, bound: Bound) -> Any:
    """The value of an expression over numbers and parameters. The text is a rule's, not input."""
    return eval(compile(ast.Expression(tree), "<rule>", "eval"), {**bound})
