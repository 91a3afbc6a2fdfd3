"""ATen's elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.dtypes import as_dtype
from tinytorch.functions import bitwise, elementwise as e, mathematics
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

_UNARY: dict[str, Callable[..., Any]] = {
    "neg": e.neg, "abs": e.abs, "sign": e.sign, "exp": e.exp, "expm1": e.expm1, "log": e.log,
    "log1p": e.log1p, "log2": e.log2, "sqrt": e.sqrt, "rsqrt": e.rsqrt, "sin": e.sin,
    "cos": e.cos, "tanh": e.tanh, "sigmoid": e.sigmoid, "erf": e.erf, "relu": e.relu,
    "floor": e.floor, "ceil": e.ceil, "round": e.round, "reciprocal": e.reciprocal,
    "isnan": e.isnan, "isinf": e.isinf, "bitwise_not": bitwise.bitwise_not, "silu": F.silu,
    "trunc": e.trunc, "tan": mathematics.tan, "asin": mathematics.asin, "acos": mathematics.acos,
    "atan": mathematics.atan, "sinh": mathematics.sinh, "cosh": mathematics.cosh,
    "asinh": mathematics.asinh, "acosh": mathematics.acosh, "atanh": mathematics.atanh,
    "log10": mathematics.log10, "sinc": mathematics.sinc, "exp2": mathematics.exp2,
    "erfc": mathematics.erfc, "erfinv": mathematics.erfinv, "signbit": mathematics.signbit,
}  # fmt: skip
_BINARY: dict[str, Callable[..., Any]] = {
    "mul": e.mul, "remainder": e.remainder, "eq": e.eq, "ne": e.ne, "lt": e.lt, "le": e.le,
    "gt": e.gt, "ge": e.ge, "bitwise_and": bitwise.bitwise_and,
    "bitwise_or": bitwise.bitwise_or, "bitwise_xor": bitwise.bitwise_xor, "fmod": e.fmod,
}  # fmt: skip
for _name, _function in _UNARY.items():
    aten(_name)(_function)
for _name, _function in _BINARY.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_function)

aten("maximum")(e.maximum)
aten("minimum")(e.minimum)
aten("atan2")(mathematics.atan2)
aten("hypot")(mathematics.hypot)
aten("copysign.Tensor", "copysign.Scalar")(mathematics.copysign)
aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")(e.pow)
aten("where.self", "where.ScalarOther", "where.ScalarSelf")(e.where)


@aten("add.Tensor", "add.Scalar")
def add(a: Tensor, b: Tensor | float, alpha: float = 1) -> Tensor:
    return e.add(a, b) if alpha == 1 else e.add(a, b * alpha)


@aten("sub.Tensor", "sub.Scalar")
def sub(a: Tensor, b: Tensor | float, alpha: float = 1) -> Tensor:
    return e.sub(a, b) if alpha == 1 else e.sub(a, b * alpha)


@aten("rsub.Scalar", "rsub.Tensor")
def rsub(a: Tensor, b: Tensor | float, alpha: float = 1) -> Tensor:
    return e.sub(b, a if alpha == 1 else a * alpha)


@aten("div.Tensor", "div.Scalar")
def div(a: Tensor, b: Tensor | float) -> Tensor:
    return e.div(a, b)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Tensor, b: Tensor | float, rounding_mode: str | None = None) -> Tensor:
    return e.div(a, b, rounding_mode=rounding_mode)


@aten("logical_not")
def logical_not(a: Tensor) -> Tensor:
    return e.logical_not(a.bool())


@aten("logical_and")
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    return e.logical_and(a.bool(), b.bool())


@aten("logical_or")
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    return e.logical_or(a.bool(), b.bool())


@aten("logical_xor")
def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    return e.ne(a.bool(), b.bool())


@aten("clamp", "clamp.Tensor")
def clamp(a: Tensor, min: Any = None, max: Any = None) -> Tensor:
    return e.clip(a, min, max)


@aten("clamp_min")
def clamp_min(a: Tensor, min: float) -> Tensor:
    return e.clip(a, min)


@aten("masked_fill.Scalar")
def masked_fill(a: Tensor, mask: Tensor, value: float) -> Tensor:
    return e.where(mask, value, a)


@aten("gelu")
def gelu(a: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(a, approximate)


@aten("leaky_relu")
def leaky_relu(a: Tensor, negative_slope: float = 0.01) -> Tensor:
    return F.leaky_relu(a, negative_slope)


@aten("elu")
def elu(a: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    y = F.elu(a if input_scale == 1 else a * input_scale, alpha * input_scale)
    return y if scale == input_scale else y * (scale / input_scale)


@aten("hardtanh")
def hardtanh(a: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return (F.hardtanh if a.requires_grad else e.clip)(a, min_val, max_val)


@aten("hardsigmoid")
def hardsigmoid(a: Tensor) -> Tensor:
    return hardtanh(a + 3.0, 0.0, 6.0) / 6.0


@aten("hardswish")
def hardswish(a: Tensor) -> Tensor:
    return a * hardtanh(a + 3.0, 0.0, 6.0) / 6.0


@aten("threshold_backward")
def threshold_backward(grad: Tensor, a: Tensor, threshold: float) -> Tensor:
    return e.where(e.le(a, threshold), 0.0, grad)


@aten("tanh_backward")
def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return grad * (1 - y * y)


@aten("sigmoid_backward")
def sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    return grad * (1 - y) * y


@aten("_to_copy")
def to_copy(
    a: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    return a.clone() if dtype is None else a.to(as_dtype(dtype))
