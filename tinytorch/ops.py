"""The op table: every op that TinyTorch has, once.

A row says an op's name, its meaning (for an elementwise op: a function of Python scalars), its
shape and dtype rule and its cost. Gradients are attached by name in `gradients.py`, decompositions
of fused ops in `decompositions.py`. To add an op, add its row here; a test then names every other
line that is still missing.

The scalar functions are the meaning of the op on every backend: the naive backend loops over them,
the compiled ones compile them. They return what IEEE 754 says where Python would raise (division by
zero, overflow, the square root of a negative number), and NaN goes in and out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinytorch import (
    dtype_rules,
    shapes,
    shapes_attention,
    shapes_conv,
    shapes_ctc,
    shapes_quantized,
)  # fmt: skip
from tinytorch.dtypes import Shape
from tinytorch.op import DTypeRule, FlopCount, Op, Params, ShapeRule, register_op

INF = math.inf
NAN = math.nan


def _per_output(shapes_in: list[Shape], out: Shape, params: Params) -> int:
    return math.prod(out)


def _per_input(shapes_in: list[Shape], out: Shape, params: Params) -> int:
    return math.prod(shapes_in[0])


def _free(shapes_in: list[Shape], out: Shape, params: Params) -> int:
    return 0


def elementwise(
    dtypes: DTypeRule, *, commutative: bool = False, flops: int = 1
) -> Callable[[Callable[..., Any]], Op]:
    """Register a scalar function as an elementwise op; its parameters name the op's inputs."""

    def enter(scalar: Callable[..., Any]) -> Op:
        inputs = " ".join(scalar.__code__.co_varnames[: scalar.__code__.co_argcount])
        return _row(
            scalar.__name__.rstrip("_"), inputs, "elementwise", shapes.broadcast, dtypes,
            lambda _, out, __: flops * math.prod(out), scalar=scalar, commutative=commutative,
        )  # fmt: skip

    return enter


def _row(
    name: str,
    inputs: str,
    kind: str,
    shape: ShapeRule,
    dtypes: DTypeRule,
    flops: FlopCount = _free,
    **flags: Any,
) -> Op:
    return register_op(Op(name, inputs, kind, shape, dtypes, flops, **flags))


# -- elementwise, one input ------------------------------------------------------------------------


@elementwise(dtype_rules.numeric)
def neg(a):  # type: ignore[no-untyped-def]
    return -a


@elementwise(dtype_rules.numeric)
def abs_(a):  # type: ignore[no-untyped-def]
    return abs(a)


@elementwise(dtype_rules.numeric)
def sign(a):  # type: ignore[no-untyped-def]
    return (a > 0) - (a < 0)


@elementwise(dtype_rules.floating)
def exp(a):  # type: ignore[no-untyped-def]
    return INF if a > 709.782712893384 else math.exp(a)


@elementwise(dtype_rules.floating)
def expm1(a):  # type: ignore[no-untyped-def]
    return INF if a > 709.782712893384 else math.expm1(a)


@elementwise(dtype_rules.floating)
def log(a):  # type: ignore[no-untyped-def]
    return math.log(a) if a > 0 else (-INF if a == 0 else NAN)


@elementwise(dtype_rules.floating)
def log2(a):  # type: ignore[no-untyped-def]
    return math.log2(a) if a > 0 else (-INF if a == 0 else NAN)


@elementwise(dtype_rules.floating)
def log10(a):  # type: ignore[no-untyped-def]
    return math.log10(a) if a > 0 else (-INF if a == 0 else NAN)


@elementwise(dtype_rules.floating)
def log1p(a):  # type: ignore[no-untyped-def]
    return math.log1p(a) if a > -1 else (-INF if a == -1 else NAN)


@elementwise(dtype_rules.floating)
def sqrt(a):  # type: ignore[no-untyped-def]
    return math.sqrt(a) if a >= 0 else NAN


@elementwise(dtype_rules.floating)
def sin(a):  # type: ignore[no-untyped-def]
    return math.sin(a) if a - a == 0 else NAN


@elementwise(dtype_rules.floating)
def cos(a):  # type: ignore[no-untyped-def]
    return math.cos(a) if a - a == 0 else NAN


@elementwise(dtype_rules.floating)
def asin(a):  # type: ignore[no-untyped-def]
    return math.asin(a) if -1 <= a <= 1 else NAN


@elementwise(dtype_rules.floating)
def acos(a):  # type: ignore[no-untyped-def]
    return math.acos(a) if -1 <= a <= 1 else NAN


@elementwise(dtype_rules.floating)
def atan(a):  # type: ignore[no-untyped-def]
    return math.atan(a)


@elementwise(dtype_rules.floating)
def tanh(a):  # type: ignore[no-untyped-def]
    return math.tanh(a)


@elementwise(dtype_rules.floating, flops=3)
def sigmoid(a):  # type: ignore[no-untyped-def]
    """1 / (1 + exp(-a)), for a number `a` of any size, infinities too; NaN gives NaN.

    `math.exp` raises OverflowError above 709.78: exp is to be called with what cannot overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0), sigmoid(1000.0)
    (0.5, 0.0, 1.0)
    """
    # exp of a negative number never overflows
    t = math.exp(-abs(a))
    return 1.0 / (1.0 + t) if a >= 0 else t / (1.0 + t)


@elementwise(dtype_rules.floating)
def erf(a):  # type: ignore[no-untyped-def]
    return math.erf(a)


@elementwise(dtype_rules.numeric)
def relu(a):  # type: ignore[no-untyped-def]
    """The larger of the number `a` and 0; NaN stays NaN.

    >>> relu(2.5), relu(-2.5)
    (2.5, 0)
    """
    return max(a, 0)  # in this order NaN stays NaN, and -0.0 its sign


@elementwise(dtype_rules.numeric)
def floor(a):  # type: ignore[no-untyped-def]
    if isinstance(a, int) or a - a != 0:
        return a
    return math.copysign(math.floor(a), a)  # -0.0 keeps its sign


@elementwise(dtype_rules.numeric)
def round_(a):  # type: ignore[no-untyped-def]
    if isinstance(a, int) or a - a != 0:
        return a
    return math.copysign(round(a), a)  # -0.3 becomes -0.0


@elementwise(dtype_rules.logical)
def logical_not(a):  # type: ignore[no-untyped-def]
    return not a


# -- elementwise, two inputs -----------------------------------------------------------------------


@elementwise(dtype_rules.promoted, commutative=True)
def add(a, b):  # type: ignore[no-untyped-def]
    return a + b


@elementwise(dtype_rules.numeric)
def sub(a, b):  # type: ignore[no-untyped-def]
    return a - b


@elementwise(dtype_rules.promoted, commutative=True)
def mul(a, b):  # type: ignore[no-untyped-def]
    return a * b


@elementwise(dtype_rules.floating)
def div(a, b):  # type: ignore[no-untyped-def]
    if b != 0:
        return a / b
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)


@elementwise(dtype_rules.numeric)
def floor_divide(a, b):  # type: ignore[no-untyped-def]
    if b != 0 or isinstance(b, int):  # integers: Python's ZeroDivisionError, not a wrong number
        return a // b
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)


@elementwise(dtype_rules.numeric)
def remainder(a, b):  # type: ignore[no-untyped-def]
    # the sign is the divisor's, as with Python's %
    if isinstance(b, int):
        return a % b
    return a % b if b != 0 and a - a == 0 else NAN


@elementwise(dtype_rules.numeric)
def pow_(a, b):  # type: ignore[no-untyped-def]
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:  # rounded towards 0: only 1 and -1 are left
            return a ** (b % 2) if abs(a) == 1 else 0
        return a**b
    if b == 0 or a == 1:
        return 1.0
    odd = b - b == 0 and b % 2 == 1
    if a == 0 or a - a != 0 or b - b != 0:
        magnitude = abs(a)
        if magnitude != magnitude or b != b:
            return NAN
        if magnitude == 1:
            return 1.0
        result = 0.0 if (magnitude < 1) == (b > 0) else INF
        return math.copysign(result, a) if odd else result
    if a < 0 and b % 1 != 0:
        return NAN
    if b * math.log(abs(a)) > 709.782712893384:
        return -INF if a < 0 and odd else INF
    return math.pow(a, b)


@elementwise(dtype_rules.floating)
def atan2(a, b):  # type: ignore[no-untyped-def]
    return math.atan2(a, b)


@elementwise(dtype_rules.integral, commutative=True)
def bitwise_and(a, b):  # type: ignore[no-untyped-def]
    return a & b


@elementwise(dtype_rules.integral, commutative=True)
def bitwise_or(a, b):  # type: ignore[no-untyped-def]
    return a | b


@elementwise(dtype_rules.integral, commutative=True)
def bitwise_xor(a, b):  # type: ignore[no-untyped-def]
    return a ^ b


@elementwise(dtype_rules.promoted)
def maximum(a, b):  # type: ignore[no-untyped-def]
    return b if b >= a or b != b else a  # of two zeros the second, as in NumPy


@elementwise(dtype_rules.promoted)
def minimum(a, b):  # type: ignore[no-untyped-def]
    return b if b <= a or b != b else a


@elementwise(dtype_rules.comparing, commutative=True)
def eq(a, b):  # type: ignore[no-untyped-def]
    return a == b


@elementwise(dtype_rules.comparing, commutative=True)
def ne(a, b):  # type: ignore[no-untyped-def]
    return a != b


@elementwise(dtype_rules.comparing)
def lt(a, b):  # type: ignore[no-untyped-def]
    return a < b


@elementwise(dtype_rules.comparing)
def le(a, b):  # type: ignore[no-untyped-def]
    return a <= b


@elementwise(dtype_rules.logical, commutative=True)
def logical_and(a, b):  # type: ignore[no-untyped-def]
    return bool(a and b)


@elementwise(dtype_rules.logical, commutative=True)
def logical_or(a, b):  # type: ignore[no-untyped-def]
    return bool(a or b)


@elementwise(dtype_rules.numeric)
def relu_backward(grad, y):  # type: ignore[no-untyped-def]
    return 0 if y <= 0 else grad  # in this order it passes where y is NaN


# -- elementwise, three inputs ---------------------------------------------------------------------


@elementwise(dtype_rules.selecting)
def where(condition, a, b):  # type: ignore[no-untyped-def]
    return a if condition else b


@elementwise(dtype_rules.numeric)
def clip(a, low, high):  # type: ignore[no-untyped-def]
    raised = low if a < low or low != low else a
    return high if raised > high or high != high else raised


# -- reductions ------------------------------------------------------------------------------------

sum = _row(
    "sum", "a", "reduction", shapes.reduced, dtype_rules.accumulating, _per_input,
    scalar=add.scalar, initial=0,
)  # fmt: skip
amax = _row(
    "amax", "a", "reduction", shapes.reduced_nonempty, dtype_rules.promoted, _per_input,
    scalar=maximum.scalar,
)  # fmt: skip
amin = _row(
    "amin", "a", "reduction", shapes.reduced_nonempty, dtype_rules.promoted, _per_input,
    scalar=minimum.scalar,
)  # fmt: skip
argmax = _row("argmax", "a", "index", shapes.arg_reduced, dtype_rules.ordering, _per_input)
argmin = _row("argmin", "a", "index", shapes.arg_reduced, dtype_rules.ordering, _per_input)
argsort = _row("argsort", "a", "index", shapes.same, dtype_rules.ordering, _per_input)
cumsum = _row("cumsum", "a", "scan", shapes.same, dtype_rules.accumulating, _per_input)

# -- movement: the result is a view, or a placement of the same values -----------------------------

reshape = _row("reshape", "a", "movement", shapes.reshaped, dtype_rules.any_type, view=True)
permute = _row("permute", "a", "movement", shapes.permuted, dtype_rules.any_type, view=True)
expand = _row("expand", "a", "movement", shapes.expanded, dtype_rules.any_type, view=True)
slice_ = _row("slice", "a", "movement", shapes.sliced, dtype_rules.any_type, view=True)
unslice = _row("unslice", "a", "movement", shapes.given, dtype_rules.any_type)
unfold = _row("unfold", "a", "movement", shapes.windowed, dtype_rules.any_type, view=True)
fold = _row("fold", "a", "movement", shapes.folded, dtype_rules.numeric, _per_input)
cat = _row("cat", "*", "movement", shapes.concatenated, dtype_rules.any_type)
detach = _row("detach", "a", "movement", shapes.same, dtype_rules.any_type, view=True)
copy = _row("copy", "a", "movement", shapes.same, dtype_rules.any_type)
cast = _row("cast", "a", "movement", shapes.same, dtype_rules.converting)

# -- indexing: a pair of adjoints ------------------------------------------------------------------

take = _row("take", "a index", "index", shapes.taken, dtype_rules.indexed(1))
scatter_add = _row(
    "scatter_add", "a index", "index", shapes.scattered, dtype_rules.indexed(1, dtype_rules.added),
    _per_input,
)  # fmt: skip

# -- contractions ----------------------------------------------------------------------------------


def _matmul_flops(shapes_in: list[Shape], out: Shape, params: Params) -> int:
    return 2 * math.prod(out) * shapes_in[0][-1]


matmul = _row("matmul", "a b", "contraction", shapes.matmul, dtype_rules.numeric, _matmul_flops)
conv2d = _row(
    "conv2d", "x w b", "contraction", shapes_conv.conv2d, dtype_rules.only_floating,
    shapes_conv.flops(-1, 1), optional=1,
)  # fmt: skip
conv2d_input = _row(
    "conv2d_input", "grad w", "contraction", shapes_conv.conv2d_input, dtype_rules.only_floating,
    shapes_conv.flops(0, 1),
)  # fmt: skip
conv2d_weight = _row(
    "conv2d_weight", "x grad", "contraction", shapes_conv.conv2d_weight, dtype_rules.only_floating,
    shapes_conv.flops(1, -1),
)  # fmt: skip


def _window_flops(shapes_in: list[Shape], out: Shape, params: Params) -> int:
    return min(math.prod(out), math.prod(shapes_in[0])) * math.prod(params["kernel_size"])


def _pooling(name: str, inputs: str, shape: ShapeRule) -> Op:
    return _row(name, inputs, "pooling", shape, dtype_rules.only_floating, _window_flops)


max_pool2d = _pooling("max_pool2d", "x", shapes_conv.pooled)
max_pool2d_backward = _pooling("max_pool2d_backward", "grad x", shapes_conv.unpooled)
max_pool2d_select = _pooling("max_pool2d_select", "values x", shapes_conv.selected)
avg_pool2d = _pooling("avg_pool2d", "x", shapes_conv.pooled)
avg_pool2d_backward = _pooling("avg_pool2d_backward", "grad", shapes_conv.avg_unpooled)

# -- creation --------------------------------------------------------------------------------------

full = _row("full", "", "creation", shapes.given, dtype_rules.created)
arange = _row("arange", "", "creation", shapes.ranged, dtype_rules.created)
uniform = _row(
    "uniform", "seed", "creation", shapes.given, dtype_rules.seeded, _per_output, random=True
)

# -- fused: each has a decomposition into the ops above, and may have a kernel of its own ----------


def _fused(name: str, inputs: str, shape: ShapeRule, dtypes: DTypeRule, each: int, **kw: Any) -> Op:
    return _row(
        name, inputs, "fused", shape, dtypes,
        lambda shapes_in, out, _: each * max(math.prod(s) for s in [*shapes_in, out]), **kw,
    )  # fmt: skip


linear = _row(
    "linear", "x w b", "fused", shapes.linear, dtype_rules.only_floating,
    lambda shapes_in, out, _: 2 * math.prod(out) * shapes_in[1][1], optional=1,
)  # fmt: skip
linear_weight = _row(
    "linear_weight", "grad x", "fused", shapes.linear_weight, dtype_rules.only_floating,
    lambda shapes_in, out, _: 2 * math.prod(shapes_in[0]) * shapes_in[1][-1],
)  # fmt: skip
softmax = _fused("softmax", "x", shapes.same, dtype_rules.only_floating, 5)
log_softmax = _fused("log_softmax", "x", shapes.same, dtype_rules.only_floating, 5)
softmax_backward = _fused("softmax_backward", "grad y", shapes.equal, dtype_rules.only_floating, 4)
log_softmax_backward = _fused(
    "log_softmax_backward", "grad y", shapes.equal, dtype_rules.only_floating, 4
)
cross_entropy = _fused(
    "cross_entropy", "x target", shapes.labelled,
    dtype_rules.indexed(1, dtype_rules.only_floating), 6,
)  # fmt: skip
cross_entropy_backward = _fused(
    "cross_entropy_backward", "grad x target", shapes.labelled_gradient,
    dtype_rules.indexed(2, dtype_rules.only_floating), 6,
)  # fmt: skip
ctc_loss = _row(
    "ctc_loss", "log_probs targets input_lengths target_lengths", "fused",
    shapes_ctc.losses, shapes_ctc.dtypes(1), shapes_ctc.flops(8),
)  # fmt: skip
ctc_loss_backward = _row(
    "ctc_loss_backward", "grad log_probs targets input_lengths target_lengths", "fused",
    shapes_ctc.gradient, shapes_ctc.dtypes(2), shapes_ctc.flops(20),
)  # fmt: skip
gather = _row("gather", "x index", "fused", shapes.gathered, dtype_rules.indexed(1))
scatter = _row(
    "scatter", "x index src", "fused", shapes.replaced, dtype_rules.indexed(1, dtype_rules.replaced)
)
_order = (dtype_rules.ordering, _per_input)
partial_argsort = _row("partial_argsort", "a", "fused", shapes.partly_sorted, *_order)
running_argmax = _row("running_argmax", "a", "fused", shapes.same, *_order)
running_argmin = _row("running_argmin", "a", "fused", shapes.same, *_order)
prod = _row("prod", "x", "fused", shapes.multiplied, dtype_rules.accumulating, _per_input)
cumprod = _row("cumprod", "x", "fused", shapes.same, dtype_rules.accumulating, _per_input)
cumprod_backward = _row(
    "cumprod_backward", "grad x", "fused", shapes.equal, dtype_rules.only_floating, _per_input
)
cross = _row("cross", "a b", "fused", shapes.crossed, dtype_rules.numeric, _per_output)
gelu = _fused("gelu", "x", shapes.same, dtype_rules.only_floating, 8)
gelu_backward = _fused("gelu_backward", "grad x", shapes.equal, dtype_rules.only_floating, 12)


def _normalization(name: str, dim: int) -> tuple[Op, Op, Op]:
    """The op, its gradient for the input and its gradient for the weight."""
    of_x, of_w, real = shapes.normalized, shapes.normalized_weight, dtype_rules.only_floating
    return (
        _fused(name, "x w b", of_x(dim), real, 8),
        _fused(f"{name}_backward", "grad x w", of_x(dim, 2), real, 14),
        _fused(f"{name}_weight", "grad x", of_w(dim), real, 8),
    )


layer_norm, layer_norm_backward, layer_norm_weight = _normalization("layer_norm", -1)
batch_norm, batch_norm_backward, batch_norm_weight = _normalization("batch_norm", 1)
group_norm, group_norm_backward, group_norm_weight = _normalization("group_norm", 1)

scaled_dot_product_attention = _row(
    "scaled_dot_product_attention", "query key value mask seed", "fused",
    shapes_attention.attention, shapes_attention.dtypes(3), shapes_attention.flops, optional=2,
)  # fmt: skip
scaled_dot_product_attention_backward = _row(
    "scaled_dot_product_attention_backward", "grad query key value mask seed", "fused",
    shapes_attention.gradients, shapes_attention.dtypes(4), shapes_attention.backward_flops,
    optional=2,
)  # fmt: skip
quantized_linear = _row(
    "quantized_linear", "x weight scale bias range_", "fused", shapes_quantized.linear,
    shapes_quantized.dtypes, shapes_quantized.flops, optional=2,
)  # fmt: skip
dynamic_update_slice = _row(
    "dynamic_update_slice", "a update start", "fused", shapes.updated, dtype_rules.indexed(2)
)
