"""Scalar definitions in other vocabularies: what an elementwise op is in PyTorch and in ONNX.

An elementwise op is defined by a function of Python scalars. `describe` walks the function's source
once and says each operation in the target's words: an operator or a function of `math` becomes a
word, `x if c else y` and an `if` become `where`. So every target knows an op that a user adds.

    @elementwise(dtype_rules.floating)
    def softsign(a):
        return a / (1 + abs(a))         # abs, add, div

Words are the names of ops of the table and of functions of `math`. Python raises where IEEE 754
has a value, and definitions go around that (`math.sqrt(a) if a >= 0 else NAN`); a target does not
raise, so the ops in WORDS are one word each. Both sides of a choice are computed, as with `where`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
import textwrap
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from tinytorch.dtypes import LIMITS, DType, Shape, TensorMeta, bool_, float64, int64
from tinytorch.errors import TinyTorchError
from tinytorch.op import Op, Operand

T = TypeVar("T")  # a value of the target: a node of torch.fx, a name in ONNX
Number = bool | int | float

#: Ops that are one word of every target: it follows IEEE 754, or knows bool, by itself.
WORDS = frozenset({
    "sign", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "asin", "acos",
    "floor", "round", "add", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum",
})  # fmt: skip
OPERATORS: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.Pow: ("pow", operator.pow),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod),
    ast.BitAnd: ("bitwise_and", operator.and_),
    ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor),
    ast.USub: ("neg", operator.neg),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
OF_FLOATS = frozenset({"isnan", "isinf", "isfinite"})  # predicates
ON_INTEGERS = frozenset({
    "add", "sub", "mul", "pow", "floor_divide", "remainder", "neg", "abs", "bitwise_and",
    "bitwise_or", "bitwise_xor",
})  # fmt: skip
ROUNDINGS = {round: "round", math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}
OF_MATH = (
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "copysign",
    "fmod", "erf", "erfc", "lgamma", "isnan", "isinf", "isfinite",
)  # fmt: skip
FUNCTIONS: dict[Any, str] = {getattr(math, name): name for name in OF_MATH} | {
    math.fabs: "abs", math.pow: "pow", abs: "abs", pow: "pow"
}  # fmt: skip


class ScalarError(TinyTorchError, NotImplementedError):
    """A scalar definition that cannot be said in another vocabulary."""


class Vocabulary(ABC, Generic[T]):
    """The spelling of constants, casts and words in a target."""

    @abstractmethod
    def constant(self, value: Number, dtype: DType) -> T:
        """A number."""

    @abstractmethod
    def cast(self, value: T, dtype: DType) -> T:
        """A value in another dtype."""

    @abstractmethod
    def expand(self, value: T, shape: Shape, dtype: DType) -> T:
        """A value of this dtype repeated to a shape."""

    @abstractmethod
    def word(self, name: str, operands: Sequence[T], dtype: DType) -> T:
        """The word applied to operands of one dtype; `where` has a condition of bool first.

        Args:
            dtype: of the operands; of `where` that of the values.

        Raises:
            ScalarError: the target has no such word.
        """


@dataclass(frozen=True)
class Value(Generic[T]):
    """A value that is known only when the target runs."""

    it: T
    dtype: DType
    shape: Shape


Known = Any  # a Value, or what Python knows already: a number, a function, a module


def describe(
    op: Op, operands: Sequence[T | Number], metas: Sequence[Operand], vocabulary: Vocabulary[T]
) -> T:
    """An elementwise op in the words of a target.

    Args:
        operands: values of the target, of the dtypes that the op's rule asks for, or numbers.
        metas: of each operand the meta, or the type of a number.

    Raises:
        ScalarError: the definition has something in it that cannot be said; the message names the
            op, the line and what it is.
    """
    wanted, dtype = op._dtype_rule(op.name, list(metas), {})
    if op.name in COMPARISONS and any(map(_is_outside, operands, metas, wanted)):
        wanted = [int64] * len(metas)  # x >= -1 of uint8, whose numbers it cannot be said in
        operands = [
            vocabulary.cast(operand, int64) if isinstance(meta, TensorMeta) else operand  # type: ignore[arg-type]
            for operand, meta in zip(operands, metas, strict=True)
        ]
    given = [
        Value(operand, want, meta.shape) if isinstance(meta, TensorMeta) else _number(operand, want)
        for operand, meta, want in zip(operands, metas, wanted, strict=True)
    ]
    walker = _Walker(op, wanted, dtype, vocabulary)
    if op.name in WORDS:
        result: Known = walker.word(op.name, given, wanted[-1])
    else:
        assert op.scalar is not None
        result = walker.call(op.scalar, given)
    shape = np.broadcast_shapes(*[m.shape for m in metas if isinstance(m, TensorMeta)])
    if isinstance(result, Value) and result.shape == shape:
        return walker.at(result, dtype)
    # an operand does not matter, as in `True or a`, but its shape does
    return vocabulary.expand(walker.at(result, dtype), shape, dtype)


def _is_outside(value: Any, meta: Operand, dtype: DType) -> bool:
    """Whether it is a number that a dtype of integers does not have."""
    if isinstance(meta, TensorMeta) or dtype not in LIMITS:
        return False
    least, largest = LIMITS[dtype]
    return not least <= value <= largest


def _number(value: Any, dtype: DType) -> Number:
    return dtype.dtype.type(value).item()  # type: ignore[no-any-return]


class _Walker(Generic[T]):
    """Walks the definition of one op."""

    def __init__(
        self, op: Op, wanted: Sequence[DType], result: DType, vocabulary: Vocabulary[T]
    ) -> None:
        self.op = op
        self.vocabulary = vocabulary
        numbers = [d for d in (*wanted, result) if d is not bool_]
        self.real = next((d for d in numbers if d.is_floating_point), float64)
        self.whole = next((d for d in numbers if not d.is_floating_point), int64)

    # -- values ----------------------------------------------------------------------------------

    def at(self, value: Known, dtype: DType) -> T:
        """A value, or a number, in a dtype of the target."""
        if not isinstance(value, Value):
            return self.vocabulary.constant(_number(value, dtype), dtype)
        return value.it if value.dtype is dtype else self.vocabulary.cast(value.it, dtype)

    def word(self, name: str, operands: Sequence[Known], dtype: DType) -> Known:
        """A word on operands in one dtype."""
        if name in ROUNDINGS.values() and not dtype.is_floating_point:
            return operands[0]
        made = self.vocabulary.word(name, [self.at(x, dtype) for x in operands], dtype)
        return Value(made, bool_ if name in COMPARISONS | OF_FLOATS else dtype, _shape(operands))

    def common(self, name: str, operands: Sequence[Known]) -> DType:
        """The dtype in which Python computes: floats if there is one, or if `name` makes one."""
        dtypes = [x.dtype if isinstance(x, Value) else _dtype_of(x) for x in operands]
        if name in ("eq", "ne") and all(d is bool_ for d in dtypes):
            return bool_
        if any(d.is_floating_point for d in dtypes) or name not in ON_INTEGERS | COMPARISONS:
            return self.real
        return self.whole

    def apply(self, name: str, operands: Sequence[Known]) -> Known:
        """A word on what Python would compute it on."""
        return self.word(name, operands, self.common(name, operands))

    def truth(self, value: Known) -> Known:
        """What Python's `bool` gives."""
        if not isinstance(value, Value):
            return bool(value)
        return value if value.dtype is bool_ else self.word("ne", [value, 0], value.dtype)

    def select(
        self, condition: Known, then: Callable[[], Known], other: Callable[[], Known]
    ) -> Known:
        """`then() if condition else other()`."""
        condition = self.truth(condition)
        if not isinstance(condition, Value):
            return then() if condition else other()
        a, b = then(), other()
        if a is b:
            return a
        kinds = {x.dtype if isinstance(x, Value) else _dtype_of(x) for x in (a, b)}
        dtype = kinds.pop() if len(kinds) == 1 else self.common("add", [a, b])
        dtype = dtype if dtype is bool_ else self.real if dtype.is_floating_point else self.whole
        parts = [condition.it, self.at(a, dtype), self.at(b, dtype)]
        made = self.vocabulary.word("where", parts, dtype)
        return Value(made, dtype, _shape([condition, a, b]))

    # -- functions -------------------------------------------------------------------------------

    def call(self, function: Any, arguments: Sequence[Known]) -> Known:
        """A call: of Python if all is known, else of a word, or of a function that is walked."""
        if isinstance(function, types.FunctionType):
            return _Body(self, function).run(arguments)
        if function is isinstance:
            return self.is_instance(*arguments)
        if not any(isinstance(x, Value) for x in arguments):
            return function(*arguments)
        if function in (max, min):
            first, *rest = arguments
            for each in rest:  # Python keeps the first unless a later one is beyond it
                beyond = self.apply("gt" if function is max else "lt", [each, first])
                first = self.select(beyond, partial(_same, each), partial(_same, first))
            return first
        if function is bool:
            return self.truth(arguments[0])
        if function is float:
            return Value(self.at(arguments[0], self.real), self.real, _shape(arguments))
        if function is int:
            whole = self.word("trunc", arguments, arguments[0].dtype)
            return Value(self.at(whole, self.whole), self.whole, _shape(arguments))
        if function in ROUNDINGS:
            (given,) = arguments
            return self.word(ROUNDINGS[function], [given], self.common("abs", [given]))
        if function is math.log and len(arguments) == 2:
            return self.apply("div", [self.apply("log", [x]) for x in arguments])
        if function not in FUNCTIONS:
            known = ", ".join(sorted(set(FUNCTIONS.values())))
            raise ScalarError(f"calls {function!r}; a target is told of {known}")
        return self.apply(FUNCTIONS[function], arguments)

    def is_instance(self, value: Known, kind: Any) -> bool:
        if not isinstance(value, Value):
            return isinstance(value, kind)
        python = bool if value.dtype is bool_ else float if value.dtype.is_floating_point else int
        return isinstance(python(), kind)


def _shape(values: Sequence[Known]) -> Shape:
    return np.broadcast_shapes(*[x.shape for x in values if isinstance(x, Value)])


def _same(value: Known) -> Known:
    return value


def _dtype_of(number: Any) -> DType:
    if isinstance(number, bool):
        return bool_
    return int64 if isinstance(number, int) else float64


class _Body(Generic[T]):
    """Walks the body of one Python function."""

    def __init__(self, walker: _Walker[T], function: types.FunctionType) -> None:
        self.walker = walker
        self.function = function
        try:
            lines, self.first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise ScalarError(
                f"the source of {function.__name__} is not at hand; define it in a file"
            ) from None
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise ScalarError(f"{function.__name__} is no function made by `def`")
        self.body = tree.body
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self.outer = {
            **vars(builtins),
            **function.__globals__,
            **dict(zip(function.__code__.co_freevars, cells, strict=True)),
        }

    def run(self, arguments: Sequence[Known]) -> Known:
        """What the function returns."""
        names = dict(inspect.signature(self.function).bind(*arguments).arguments)
        return self.block(self.body, names)

    def block(self, statements: Sequence[ast.stmt], names: dict[str, Known]) -> Known:
        """What is returned by statements; `names` are the variables, which change."""
        for i, statement in enumerate(statements):
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.value(value, names)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = self.value(value, names)
                case ast.AugAssign(target=ast.Name(id=name) as old, op=kind, value=value):
                    both = [self.value(old, names), self.value(value, names)]
                    names[name] = self.operate(statement, kind, both)
                case ast.If(test=test, body=body, orelse=other):
                    # each branch goes on to the end: what follows the `if` is in both
                    rest = statements[i + 1 :]
                    then = partial(self.block, [*body, *rest], dict(names))
                    otherwise = partial(self.block, [*other, *rest], dict(names))
                    return self.walker.select(self.value(test, names), then, otherwise)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass  # a docstring
                case _:
                    raise self.error(statement, "is no assignment, `if` or `return` of a value")
        raise self.error(self.body[-1], "is the last line, and returns nothing on some way")

    def value(self, tree: ast.expr, names: dict[str, Known]) -> Known:
        """What an expression is."""
        walker = self.walker

        def value(part: ast.expr) -> Known:
            return self.value(part, names)

        match tree:
            case ast.Constant(value=known):
                return known
            case ast.Name(id=name):
                return names[name] if name in names else self.global_(tree, name)
            case ast.Attribute(value=of, attr=name):
                if isinstance(owner := value(of), Value):
                    raise self.error(tree, "is an attribute of a number that is not known yet")
                return getattr(owner, name)
            case ast.BinOp(left=left, op=kind, right=right):
                return self.operate(tree, kind, [value(left), value(right)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = walker.truth(value(operand))
                made = isinstance(known, Value)
                return walker.word("logical_not", [known], bool_) if made else not known
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return value(operand)
            case ast.UnaryOp(op=kind, operand=operand):
                return self.operate(tree, kind, [value(operand)])
            case ast.IfExp(test=test, body=then, orelse=other):
                return walker.select(value(test), lambda: value(then), lambda: value(other))
            case ast.BoolOp(op=kind, values=parts):
                return self.both(isinstance(kind, ast.And), parts, value)
            case ast.Compare(left=left, ops=kinds, comparators=others):
                return self.compare(tree, [value(x) for x in (left, *others)], kinds)
            case ast.Call(func=function, args=arguments, keywords=[]):
                called = value(function)
                try:
                    return walker.call(called, [value(x) for x in arguments])
                except ScalarError as error:
                    raise self.error(tree, str(error)) from None
        raise self.error(tree, "is no arithmetic, comparison, choice or call of a known function")

    def global_(self, tree: ast.expr, name: str) -> Known:
        if name not in self.outer:
            raise self.error(tree, "has no value on some way")
        return self.outer[name]

    def operate(self, tree: ast.stmt | ast.expr, kind: ast.AST, operands: list[Known]) -> Known:
        """A Python operator."""
        if type(kind) not in OPERATORS:
            raise self.error(tree, "is an operator without a word")
        name, python = OPERATORS[type(kind)]
        if any(isinstance(x, Value) for x in operands):
            bits = name.startswith("bitwise") and all(self._is_bool(x) for x in operands)
            if bits:
                return self.walker.word(name.replace("bitwise", "logical"), operands, bool_)
            return self.walker.apply(name, operands)
        return python(*operands)

    @staticmethod
    def _is_bool(value: Known) -> bool:
        return value.dtype is bool_ if isinstance(value, Value) else isinstance(value, bool)

    def both(
        self, is_and: bool, parts: list[ast.expr], value: Callable[[ast.expr], Known]
    ) -> Known:
        """`a and b`, `a or b`: of bool a word, else a choice."""
        first, *rest = parts
        a = value(first)
        if not rest:
            return a
        if not isinstance(a, Value):
            return self.both(is_and, rest, value) if bool(a) == is_and else a
        b = self.both(is_and, rest, value)
        if a.dtype is bool_ and self._is_bool(b):
            return self.walker.word("logical_and" if is_and else "logical_or", [a, b], bool_)
        return self.walker.select(
            a, *((lambda: b, lambda: a) if is_and else (lambda: a, lambda: b))
        )

    def compare(self, tree: ast.expr, values: list[Known], kinds: Sequence[ast.cmpop]) -> Known:
        """`a < b <= c`: each pair, and all of them."""
        pairs = zip(kinds, values, values[1:], strict=False)
        found = [self.operate(tree, kind, [a, b]) for kind, a, b in pairs]
        if not any(isinstance(each, Value) for each in found):
            return all(found)
        result, *rest = found
        for each in rest:
            result = self.walker.word("logical_and", [result, each], bool_)
        return result

    def error(self, tree: ast.stmt | ast.expr, why: str) -> ScalarError:
        line = self.first + tree.lineno - 1
        file = self.function.__code__.co_filename
        return ScalarError(f"{file}:{line}: `{ast.unparse(tree).splitlines()[0]}` {why}")
