"""ONNX operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.functions import bitwise, elementwise as e, mathematics as m
from tinytorch.nn import functional as F
from tinytorch.onnx.operators.registry import operator, refuse
from tinytorch.tensor import Tensor

_SAME: dict[str, Callable[..., Any]] = {
    "Abs": e.abs, "Neg": e.neg, "Exp": e.exp, "Log": e.log, "Sqrt": e.sqrt, "Sin": e.sin,
    "Cos": e.cos, "Tanh": e.tanh, "Sigmoid": e.sigmoid, "Erf": e.erf, "Relu": e.relu,
    "Floor": e.floor, "Ceil": e.ceil, "Round": e.round, "Sign": e.sign, "IsNaN": e.isnan,
    "Reciprocal": e.reciprocal, "Not": e.logical_not, "Softsign": F.softsign, "Mish": F.mish,
    "Add": e.add, "Sub": e.sub, "Mul": e.mul, "And": e.logical_and, "Or": e.logical_or,
    "Xor": e.ne, "Equal": e.eq, "Less": e.lt, "LessOrEqual": e.le, "Greater": e.gt,
    "GreaterOrEqual": e.ge, "Where": e.where, "Asin": m.asin, "Acos": m.acos, "Atan": m.atan,
    "Sinh": m.sinh, "Cosh": m.cosh, "Asinh": m.asinh, "Acosh": m.acosh,
    "BitwiseAnd": bitwise.bitwise_and, "BitwiseOr": bitwise.bitwise_or,
    "BitwiseXor": bitwise.bitwise_xor, "BitwiseNot": bitwise.bitwise_not,
}  # fmt: skip
for _name, _function in _SAME.items():
    operator(_name)(_function)


@operator("Identity")
def identity(x: Tensor) -> Tensor:
    return x


@operator("Tan")
def tan(x: Tensor) -> Tensor:
    return e.sin(x) / e.cos(x)


@operator("Atanh")
def atanh(x: Tensor) -> Tensor:
    return (e.log1p(x) - e.log1p(-x)) / 2


@operator("Div")
def div(a: Tensor, b: Tensor) -> Tensor:
    """The quotient; of integers: towards zero, as C does it."""
    if a.dtype.is_floating_point:
        return a / b
    down = e.floor_divide(a, b)
    inexact = e.ne(down * b, a)
    return e.where(inexact & e.ne(e.lt(a, 0), e.lt(b, 0)), down + 1, down)


@operator("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The sign is the divisor's; with `fmod` the dividend's."""
    return e.remainder(e.abs(a), e.abs(b)) * e.sign(a) if fmod else e.remainder(a, b)


@operator("Pow")
def pow_(a: Tensor, b: Tensor) -> Tensor:
    return e.pow(a, b).to(a.dtype)


@operator("Max")
def max_(*tensors: Tensor) -> Tensor:
    return _each(e.maximum, tensors)


@operator("Min")
def min_(*tensors: Tensor) -> Tensor:
    return _each(e.minimum, tensors)


@operator("Sum")
def sum_(*tensors: Tensor) -> Tensor:
    return _each(e.add, tensors)


@operator("Mean")
def mean(*tensors: Tensor) -> Tensor:
    return _each(e.add, tensors) / len(tensors)


def _each(function: Any, tensors: tuple[Tensor, ...]) -> Tensor:
    result = tensors[0]
    for tensor in tensors[1:]:
        result = function(result, tensor)
    return result


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return e.isinf(x)
    sign = e.gt(x, 0) if detect_positive else e.lt(x, 0)
    return e.isinf(x) & sign & bool(detect_positive or detect_negative)


@operator("Clip")
def clip(
    x: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Tensor:
    least, most = min if low is None else low, max if high is None else high
    return x if least is None and most is None else e.clip(x, least, most)


@operator("Cast")
def cast(x: Tensor, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(to)


@operator("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(like.dtype)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return e.where(e.lt(x, 0), x * alpha, x)


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return e.where(e.lt(x, 0), x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return e.where(e.gt(x, alpha), x, x * 0)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return e.relu(x) + e.minimum(alpha * e.expm1(x / alpha), x * 0)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * F.elu(x, alpha)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate)


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    return F.softplus(x)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * e.sigmoid(x * alpha)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return e.clip(x * alpha + beta, 0.0, 1.0)


@operator("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    return x * e.clip(x / 6 + 0.5, 0.0, 1.0)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    low = e.where(e.lt(x, -lambd), x + bias, x * 0)
    return e.where(e.gt(x, lambd), x - bias, low)


@operator("Dropout", static=["ratio", "training_mode"])
def dropout(
    x: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Dropout without training: x, and a mask of all true."""
    drops = 0.5 if ratio is None else float(ratio)
    if training_mode is not None and bool(training_mode) and drops > 0:
        raise refuse("Dropout with training_mode: its random numbers")
    return x, e.eq(x, x) | True
