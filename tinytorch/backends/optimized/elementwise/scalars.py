"""Scalar definitions of the op table, rewritten so that they compile to good vector code.

The table says what an op means in plain Python, `1.0 / (1.0 + math.exp(-a))`. Compiled as written
that would be slow: a literal is a float64 and drags a float32 computation up to it, and `math.exp`
calls the C library, one number at a time. So the source is read, and in its syntax tree

    numbers             become constants of the array's type
    math.exp, ...       become the polynomials of `math`
    math.exp(-abs(a))   becomes the faster one for numbers up to 0 (no subnormal results)
    isinstance(a, int)  becomes False: arrays of integers are left to NumPy
    the returned value  is converted to the array's type (a comparison may have made it a bool)
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.backends.optimized.elementwise import (
    arcs,
    division,
    logarithms,
    math as polynomials,
    trigonometry,
)
from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.jit.library import compile_source, kernel
from tinytorch.op import Op
from tinytorch.program import ALIASES, Program, Step

_REPLACED: dict[Any, Callable[..., Any]] = {
    math.exp: polynomials.exp,
    math.exp2: polynomials.exp2,
    math.expm1: polynomials.expm1,
    math.log: logarithms.log,
    math.log1p: logarithms.log1p,
    math.log2: logarithms.log2,
    math.log10: logarithms.log10,
    math.tanh: polynomials.tanh,
    math.erf: polynomials.erf,
    math.asin: arcs.asin,
    math.acos: arcs.acos,
    math.atan: arcs.atan,
    math.atan2: arcs.atan2,
    polynomials.standard_normal: polynomials.normal,
    math.sqrt: np.sqrt,
    math.copysign: np.copysign,
    math.floor: np.floor,  # Python's give integers
    math.ceil: np.ceil,
    round: np.rint,
}


class _Typed(ast.NodeTransformer):
    """Rewrites one function; `names` collects what the new text refers to."""

    def __init__(self, function: FunctionType, real: Any) -> None:
        self.function = function
        self.real = real
        self.names: dict[str, Any] = {"real": real}

    def _refer(self, name: str, value: Any) -> ast.Name:
        self.names[name] = value
        return ast.Name(name, ast.Load())

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            return node
        text = repr(node.value).replace(".", "_").replace("+", "").replace("-", "m")
        return self._refer(f"number_{text}", self.real(node.value))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        function = self.function
        if node.id in function.__code__.co_varnames:
            return node
        value = function.__globals__.get(node.id, getattr(math, node.id, None))
        if node.id in ("abs", "max", "min", "bool"):
            return node
        if node.id == "round":
            value = round
        return self._use(node, node.id, value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name):
            module = self.function.__globals__.get(node.value.id)
            return self._use(node, f"{node.value.id}_{node.attr}", getattr(module, node.attr, None))
        return node

    def _use(self, node: ast.expr, name: str, value: Any) -> ast.expr:
        if isinstance(value, (int, float)):
            return self._refer(name, self.real(value))
        if value in _REPLACED:
            return self._refer(name, _REPLACED[value])
        if isinstance(value, FunctionType):
            return self._refer(name, compile_scalar(value, self.real))
        if callable(value):  # the rest of `math`
            return self._refer(name, value)
        raise TypeError(
            f"{self.function.__name__}, line {node.lineno}: cannot compile {ast.unparse(node)!r}; "
            "a scalar definition may use its arguments, numbers, `math` and functions of numbers"
        )

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            node.left = self.visit(node.left)  # an integer exponent stays one: x**2 is x * x
            return node
        node.left, node.right = (self._number(operand) for operand in (node.left, node.right))
        return node

    def _number(self, node: ast.expr) -> ast.expr:
        """An operand of arithmetic; a comparison becomes 0 or 1 of the array's type."""
        visited = self.visit(node)
        return self._real(visited) if isinstance(node, ast.Compare) else visited

    def _real(self, node: ast.expr) -> ast.Call:
        return ast.Call(ast.Name("real", ast.Load()), [node], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            return ast.Constant(False)
        match node.args:
            case [ast.UnaryOp(op=ast.USub(), operand=ast.Call(func=ast.Name(id="abs")))]:
                is_negative = True
            case _:
                is_negative = False
        node = self.generic_visit(node)  # type: ignore[assignment]
        is_exp = isinstance(node.func, ast.Name) and node.func.id in self.names
        if is_negative and is_exp and self.names[ast.unparse(node.func)] is polynomials.exp:
            node.func = self._refer("exp_of_negative", polynomials.exp_of_negative)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        is_false = [isinstance(v, ast.Constant) and v.value is False for v in node.values]
        return ast.Constant(False) if isinstance(node.op, ast.And) and any(is_false) else node

    def visit_If(self, node: ast.If) -> Any:
        test = self.visit(node.test)
        orelse = [self.visit(statement) for statement in node.orelse]
        if isinstance(test, ast.Constant) and test.value is False:
            return orelse
        return ast.If(test, [self.visit(statement) for statement in node.body], orelse)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        assert node.value is not None
        node.value = self._real(self.visit(node.value))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list, node.returns = [], None
        for argument in (*node.args.posonlyargs, *node.args.args):
            argument.annotation = None
        return self.generic_visit(node)  # type: ignore[return-value]


def compile_scalar(
    function: Callable[..., Any] | Program,
    real: Any,
    *,
    is_limited: bool = True,
    fastmath: frozenset[str] = EXACT,
) -> Callable[..., Any]:
    """A scalar definition as a kernel on numbers of type `real`, to be inlined into loops.

    A lambda, or a function without source or with a closure, is compiled as written: right, but
    it may compute in float64.

    Args:
        function: plain Python on numbers; `math` allowed. Or a program of such definitions.
        real: np.float32 or np.float64.
        is_limited: in a program, limited ops (sin, remainder) may be the vector code that is right
            where `limits_of` says. Otherwise they are the C library's.
        fastmath: LLVM's liberties with the definition itself. A program has none: its steps round
            as they do one by one.

    Raises:
        TypeError: it uses something else.
    """
    if isinstance(function, Program):
        return _compile_program(function, real, is_limited)
    if function is ops.div.scalar:
        function = _quotient
    if not isinstance(function, FunctionType):
        raise TypeError(f"a scalar definition is a Python function, not {function!r}")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        tree = ast.Module([], [])
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef) or function.__closure__:
        return kernel(fastmath=fastmath, force_inline=True)(function)
    rewriter = _Typed(function, real)
    text = ast.unparse(ast.fix_missing_locations(rewriter.visit(definition)))
    return compile_source(
        definition.name, text, rewriter.names, fastmath=fastmath, force_inline=True
    )


def _quotient(a, b):  # type: ignore[no-untyped-def]
    """What `ops.div` says: where Python would raise, the processor gives what IEEE 754 says."""
    return a / b


def _is_moderate(operands: tuple[Any, ...], step: Callable[..., str]) -> list[str]:
    return [step(ops.le, step(ops.abs_, operands[0]), trigonometry.LIMIT)]


def _is_divisible(operands: tuple[Any, ...], step: Callable[..., str]) -> list[str]:
    a, b = (step(ops.abs_, operand) for operand in operands)
    most = step(ops.mul, b, division.LIMIT)
    return [step(ops.le, a, most), step(ops.le, b, division.LARGEST)]


#: Ops with vector code for some operands: that code, and the tests that its operands must pass.
_LIMITED: dict[Op, tuple[Callable[..., Any], Callable[..., list[str]]]] = {
    ops.sin: (trigonometry.sin, _is_moderate),
    ops.cos: (trigonometry.cos, _is_moderate),
    ops.floor_divide: (division.floor_divide, _is_divisible),
    ops.remainder: (division.remainder, _is_divisible),
}
LIMITED_OPS = frozenset(_LIMITED)


@cache
def limits_of(definition: Any) -> Program | None:
    """Whether all arguments of limited ops are within them, as a program; None if it has none."""
    if not isinstance(definition, Program):
        return None
    steps, tests = list(definition.steps), []

    def step(op: Op, *operands: Any) -> str:
        steps.append(Step(op, operands))
        return f"t{len(steps) - 1}"

    asked = {(_LIMITED[s.op][1], s.operands): None for s in definition.steps if s.op in _LIMITED}
    for test, operands in asked:
        tests += test(operands, step)
    if not tests:
        return None
    result = tests[0]
    for each in tests[1:]:
        result = step(ops.logical_and, result, each)
    return Program(definition.inputs, tuple(steps), result, True)


def _compile_program(program: Program, real: Any, is_limited: bool) -> Callable[..., Any]:
    text, numbers = program.source("program")
    names: dict[str, Any] = {name: real(value) for name, value in numbers.items()}
    for op in {step.op for step in program.steps if step.op.name not in ALIASES}:
        is_here = is_limited and op in _LIMITED
        names[f"op_{op.name}"] = _LIMITED[op][0] if is_here else _definition(op, real)
    return compile_source("program", text, names, fastmath=frozenset(), force_inline=True)


@cache
def _definition(op: Op, real: Any) -> Callable[..., Any]:
    """An op of the table, compiled once for all programs."""
    if op.scalar is not None:
        return compile_scalar(op.scalar, real, fastmath=frozenset())
    assert op is ops.cast, op

    @kernel(fastmath=frozenset(), force_inline=True)
    def cast(x: Any) -> Any:
        return real(x)

    return cast
