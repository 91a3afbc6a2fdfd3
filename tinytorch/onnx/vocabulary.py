"""ONNX's words for scalar definitions: an operator each, or a few where ONNX has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinytorch.dtypes import DType, Shape, bool_
from tinytorch.onnx.library import onnx_package
from tinytorch.onnx.writer import OnnxWriter
from tinytorch.scalar import Number, ScalarError, Vocabulary

Word = Callable[..., str]

# words that ONNX writes otherwise than with a capital
OPERATORS = {
    "maximum": "Max", "minimum": "Min", "eq": "Equal", "lt": "Less", "le": "LessOrEqual",
    "gt": "Greater", "ge": "GreaterOrEqual", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "logical_and": "And", "logical_or": "Or", "logical_not": "Not",
    "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
# words that are other operators for bool
OF_BOOL = {"add": "Or", "mul": "And", "maximum": "Or", "minimum": "And"}
COMPOSED: dict[str, Word] = {}


class OnnxVocabulary(Vocabulary[str]):
    """Writes ONNX nodes; a value is its name."""

    def __init__(self, writer: OnnxWriter) -> None:
        self._writer = writer

    def constant(self, value: Number, dtype: DType) -> str:
        return self._writer.constant(value, dtype)

    def cast(self, value: str, dtype: DType) -> str:
        return self._writer.cast(value, dtype)

    def expand(self, value: str, shape: Shape, dtype: DType) -> str:
        return self._writer.node("Expand", [value, self._writer.constant(shape)])

    def word(self, name: str, operands: Sequence[str], dtype: DType) -> str:
        if dtype is bool_ and name in OF_BOOL:
            return self._writer.node(OF_BOOL[name], operands)
        if dtype is bool_ and name == "where":
            return _choice_of_bools(self._writer, *operands)
        if name in COMPOSED:
            return COMPOSED[name](self._writer, dtype, *operands)
        op_type = OPERATORS.get(name, name.capitalize())
        if not onnx_package().defs.has(op_type):
            raise ScalarError(f"ONNX has no operator for {name}")
        return self._writer.node(op_type, operands)


def _word(function: Word) -> Word:
    COMPOSED[function.__name__] = function
    return function


def _choice_of_bools(w: OnnxWriter, condition: str, a: str, b: str) -> str:
    chosen = w.node("And", [condition, a])
    return w.node("Or", [chosen, w.node("And", [w.node("Not", [condition]), b])])


@_word
def ne(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    return w.node("Not", [w.node("Equal", [a, b])])


@_word
def isfinite(w: OnnxWriter, dtype: DType, a: str) -> str:
    return w.node("Not", [w.node("Or", [w.node("IsNaN", [a]), w.node("IsInf", [a])])])


@_word
def trunc(w: OnnxWriter, dtype: DType, a: str) -> str:
    whole = w.node("Floor", [w.node("Abs", [a])])
    return w.node("Mul", [w.node("Sign", [a]), whole])


def _is_negative(w: OnnxWriter, dtype: DType, x: str) -> str:
    """Whether the sign is minus: of a zero it is that of 1 divided by it."""
    zero, one = w.constant(0, dtype), w.constant(1, dtype)
    below_zero = w.node("Less", [w.node("Div", [one, x]), zero])
    return w.node("Or", [w.node("Less", [x, zero]), below_zero])


@_word
def copysign(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    size = w.node("Abs", [a])
    return w.node("Where", [_is_negative(w, dtype, b), w.node("Neg", [size]), size])


@_word
def atan2(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    """atan(a / b), and for b below 0 pi with a's sign more; at the origin atan is a itself."""
    pi, zero = w.constant(math.pi, dtype), w.constant(0, dtype)
    at_origin = w.node("And", [w.node("Equal", [a, zero]), w.node("Equal", [b, zero])])
    angle = w.node("Where", [at_origin, a, w.node("Atan", [w.node("Div", [a, b])])])
    side = w.node("Where", [_is_negative(w, dtype, a), w.node("Neg", [pi]), pi])
    behind = w.node("Add", [side, angle])
    return w.node("Where", [_is_negative(w, dtype, b), behind, angle])


@_word
def expm1(w: OnnxWriter, dtype: DType, a: str) -> str:
    """2 * sinh(a / 2) * exp(a / 2) near zero, exp(a) - 1 elsewhere."""
    two = w.constant(2, dtype)
    half = w.node("Div", [a, two])
    near = w.node("Mul", [w.node("Mul", [two, w.node("Sinh", [half])]), w.node("Exp", [half])])
    far = w.node("Sub", [w.node("Exp", [a]), w.constant(1, dtype)])
    is_near = w.node("Less", [w.node("Abs", [a]), w.constant(0.5, dtype)])
    return w.node("Where", [is_near, near, far])


@_word
def log2(w: OnnxWriter, dtype: DType, a: str) -> str:
    return w.node("Div", [w.node("Log", [a]), w.constant(math.log(2), dtype)])


@_word
def log10(w: OnnxWriter, dtype: DType, a: str) -> str:
    return w.node("Div", [w.node("Log", [a]), w.constant(math.log(10), dtype)])


@_word
def log1p(w: OnnxWriter, dtype: DType, a: str) -> str:
    """2 * atanh(a / (2 + a)) near zero, log(1 + a) elsewhere."""
    two = w.constant(2, dtype)
    ratio = w.node("Div", [a, w.node("Add", [a, two])])
    near = w.node("Mul", [two, w.node("Atanh", [ratio])])
    far = w.node("Log", [w.node("Add", [a, w.constant(1, dtype)])])
    is_near = w.node("Less", [w.node("Abs", [a]), w.constant(0.5, dtype)])
    return w.node("Where", [is_near, near, far])


def _opposite(w: OnnxWriter, a: str, b: str, zero: str) -> str:
    """Whether the signs differ, for b that is not zero."""
    return w.node("Xor", [w.node("Less", [a, zero]), w.node("Less", [b, zero])])


@_word
def floor_divide(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    """The quotient rounded towards zero, less one where it is not exact and the signs differ."""
    zero, one = w.constant(0, dtype), w.constant(1, dtype)
    quotient = whole = w.node("Div", [a, b])  # of integers ONNX rounds so
    if dtype.is_floating_point:  # 1 / 0.1 is rounded to 10, but 0.1 is in 1 only 9 times
        rest = fmod(w, dtype, a, b)
        whole = w.node("Round", [w.node("Div", [w.node("Sub", [a, rest]), b])])
        exact = w.node("Equal", [rest, zero])
    else:
        exact = w.node("Equal", [w.node("Mul", [quotient, b]), a])
    lower = w.node("And", [w.node("Not", [exact]), _opposite(w, a, b, zero)])
    result = w.node("Where", [lower, w.node("Sub", [whole, one]), whole])
    if not dtype.is_floating_point:
        return result
    return w.node("Where", [w.node("Equal", [b, zero]), quotient, result])


@_word
def fmod(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    return w.node("Mod", [a, b], fmod=1)  # with the sign of a


@_word
def remainder(w: OnnxWriter, dtype: DType, a: str, b: str) -> str:
    rest = fmod(w, dtype, a, b)
    zero = w.constant(0, dtype)
    inexact = w.node("Not", [w.node("Equal", [rest, zero])])
    wrong = w.node("And", [inexact, _opposite(w, rest, b, zero)])
    return w.node("Where", [wrong, w.node("Add", [rest, b]), rest])
