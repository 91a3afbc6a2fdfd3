"""The gradient of every op, one line an input.

    gradient("mul", a=lambda g, b: g * b, b=lambda g, a: g * a)

says: where `g` is the gradient of the result, the gradient of input `a` is `g * b`. What a formula
names in its parameters is what is kept for it, and nothing else is:

    g                   the gradient of the result (always the first)
    out                 the result
    a, b, ...           the inputs, by the names in the op's row
    a_shape, a_dtype    shape or dtype of an input, without keeping its values
    dims, bounds, ...   the op's parameters; `params` for all of them
    position, metas     of an op with any number of inputs: which one, and what all of them were

Where the gradients of several inputs are the work of one op, `shared` is a formula that runs once;
what it returns takes the place of `g` in the others. An optional input that was left out is None.

Gradients of elementwise ops are summed over what broadcasting repeated, without being asked. They
are made of ops, so they can be differentiated again. A fused op without formulas (the backward of a
fused op) is differentiated through its decomposition.

Source of the notation: tools/autograd/derivatives.yaml of PyTorch.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import decompositions_ctc as decompositions_ctc, ops
from tinytorch.decompositions import put_gradient, slice_from
from tinytorch.decompositions_attention import mask_gradient, part_of_gradients
from tinytorch.decompositions_quantized import dequantized, scale_gradient
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, Shape, TensorMeta
from tinytorch.formulas import Formula, attach_gradient
from tinytorch.functions.elementwise import where
from tinytorch.functions.movement import expand, flip, in_shape, narrow, permute, rows, unslice
from tinytorch.functions.reductions import sum_to
from tinytorch.functions.scans import cumsum
from tinytorch.op import Params, find_op
from tinytorch.replay import holds, replayed

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def gradient(name: str, *, shared: Formula | None = None, **formulas: Formula | None) -> None:
    """Attach to an op the gradient of each input. None: the input has no gradient (an index).

    Args:
        name: of the op.
        shared: a formula whose result the others get in place of g; None if they get g.
        formulas: one for each input.

    Raises:
        KeyError: there is no such op.
        TypeError: an input of the op is missing, or a formula asks for what there is not.
    """
    attach_gradient(find_op(name), formulas, shared)


def _zeros(g: Tensor) -> Tensor:
    return _zeros_of(g.shape, g)


def _zeros_of(shape: Shape, like: Tensor) -> Tensor:
    return apply(ops.full, shape=shape, value=0.0, dtype=like.dtype)


# -- elementwise -----------------------------------------------------------------------------------

gradient("neg", a=lambda g: -g)
gradient("abs", a=lambda g, a: g * a.sign())
gradient("sign", a=_zeros)
gradient("exp", a=lambda g, out: g * out)
gradient("expm1", a=lambda g, out: g * (out + 1.0))
gradient("log", a=lambda g, a: g / a)
gradient("log2", a=lambda g, a: g / (a * math.log(2)))
gradient("log10", a=lambda g, a: g / (a * math.log(10)))
gradient("log1p", a=lambda g, a: g / (a + 1.0))
gradient("sqrt", a=lambda g, out: g / (out * 2.0))
gradient("sin", a=lambda g, a: g * a.cos())
gradient("cos", a=lambda g, a: -g * a.sin())
gradient("asin", a=lambda g, a: g * (1.0 - a * a).rsqrt())
gradient("acos", a=lambda g, a: -g * (1.0 - a * a).rsqrt())
gradient("atan", a=lambda g, a: g / (a * a + 1.0))
gradient("tanh", a=lambda g, out: g * (1.0 - out * out))
gradient("sigmoid", a=lambda g, out: g * (out * (1.0 - out)))
gradient("erf", a=lambda g, a: g * (-a * a).exp() * (2 / math.sqrt(math.pi)))
gradient("relu", a=lambda g, out: apply(ops.relu_backward, g, out))
gradient("relu_backward", grad=lambda g, y: apply(ops.relu_backward, g, y), y=None)
gradient("floor", a=_zeros)
gradient("round", a=_zeros)

gradient("add", a=lambda g: g, b=lambda g: g)
gradient("sub", a=lambda g: g, b=lambda g: -g)
gradient("mul", a=lambda g, b: g * b, b=lambda g, a: g * a)
gradient("div", a=lambda g, b: g / b, b=lambda g, a, b: -g * ((a / b) / b))
gradient("remainder", a=lambda g: g, b=lambda g, a, b: -g * (a // b))
gradient("floor_divide", a=_zeros, b=_zeros)


def _inverse_of_squares(a: Any, b: Any) -> Tensor:
    """1 / (a^2 + b^2), and 0 at the origin, where `atan2` has no gradient."""
    squares = a * a + b * b
    return where(squares == 0, 0.0, 1.0 / squares)


gradient(
    "atan2",
    a=lambda g, a, b: g * (b * _inverse_of_squares(a, b)),
    b=lambda g, a, b: g * (-a * _inverse_of_squares(a, b)),
)


def _pow_base(g: Tensor, a: Any, b: Any) -> Tensor:
    """b * a^(b - 1), and 0 for b = 0, also where a is 0."""
    if isinstance(b, (int, float)):
        return _zeros(g) if b == 0 else g * (a ** (b - 1) * b)
    return where(b == 0, 0.0, g * (a ** (b - 1) * b))


def _pow_exponent(g: Tensor, a: Any, b: Any, out: Tensor) -> Tensor:
    """a^b * log(a), and 0 where a is 0 and b is not negative."""
    if isinstance(a, (int, float)):
        if a == 0:
            return where(b >= 0, 0.0, g * out * -math.inf)
        return g * (out * (math.log(a) if a > 0 else math.nan))
    return where((a == 0) & (b >= 0), 0.0, g * (out * a.log()))


gradient("pow", a=_pow_base, b=_pow_exponent)


def _winner(g: Tensor, mine: Any, other: Any, sign: int) -> Tensor:
    """The larger (sign 1) or smaller (-1) takes the gradient; equals share it; NaN takes it."""
    loses = mine < other if sign > 0 else other < mine
    return where(mine == other, g * 0.5, where(loses, 0.0, g))


gradient(
    "maximum",
    a=lambda g, a, b: _winner(g, a, b, 1),
    b=lambda g, a, b: _winner(g, b, a, 1),
)
gradient(
    "minimum",
    a=lambda g, a, b: _winner(g, a, b, -1),
    b=lambda g, a, b: _winner(g, b, a, -1),
)
gradient(
    "where",
    condition=None,
    a=lambda g, condition: where(condition, g, 0.0),
    b=lambda g, condition: where(condition, 0.0, g),
)
gradient(
    "clip",
    a=lambda g, a, low, high: where((a >= low) & (a <= high), g, 0.0),
    low=lambda g, a, low, high: where((a < low) & (low < high), g, 0.0),
    high=lambda g, a, low, high: where((a > high) | (high < low), g, 0.0),
)

# -- reductions ------------------------------------------------------------------------------------


def _unreduce(g: Tensor, dims: tuple[int, ...], keepdim: bool, ndim: int) -> Tensor:
    """g with the reduced dimensions back in place, of size 1: it broadcasts to what was reduced.

    Args:
        g: of the shape that the reduction gave.
        dims: the dimensions that were reduced, none of them negative; empty for none.
        keepdim: they are in place already.
        ndim: number of dimensions of what was reduced.
    """
    if keepdim or not dims:
        return g
    left = iter(g.shape)
    return in_shape(g, tuple(1 if i in dims else next(left) for i in range(ndim)))


def _sum(g: Tensor, a_shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Every element that was summed gets the gradient of its sum: g expanded to `a_shape`."""
    return expand(_unreduce(g, dims, keepdim, len(a_shape)), a_shape)


def _extremum(g: Tensor, a: Tensor, out: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Elements equal to the extremum share the gradient equally; the others get 0.

    If the extremum is NaN, the elements that are NaN share it.

    Args:
        g: the gradient of the extrema.
        a: what was reduced.
        out: the extrema, of the same shape as g.
        dims, keepdim: as the reduction had them; see `_unreduce`.

    Returns:
        The gradient of a, of its shape.
    """
    kept = _unreduce(out, dims, keepdim, a.ndim)
    chosen = ((a == kept) | (a != a)).to(g.dtype)
    share = chosen / apply(ops.sum, chosen, dims=dims, keepdim=True)
    return _unreduce(g, dims, keepdim, a.ndim) * share


def _is_accurate(products: Array) -> bool:
    """Whether no product is 0, was rounded as a tiny number is, or overflowed."""
    sizes, (least, most) = np.abs(products), _range_of_accurate(products.dtype)
    return bool(least < np.minimum.reduce(sizes, None) and np.maximum.reduce(sizes, None) <= most)


@cache
def _range_of_accurate(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    limits = np.finfo(dtype)
    return limits.tiny / limits.eps, limits.max


def _prod(g: Tensor, x: Tensor, out: Tensor, dim: int, keepdim: bool) -> Tensor:
    """g times the product of all other elements: out / x, where there is no 0."""
    g = _unreduce(g, (dim,), keepdim, x.ndim)
    if not x.meta.size or holds(out, _is_accurate, traced=False):
        return g * _unreduce(out, (dim,), keepdim, x.ndim) / x
    return _times_others(g, x, dim)  # type: ignore[no-any-return]


@replayed
def _times_others(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """g, of size 1 along `dim`, times the product of all other elements, without a division."""
    # the last of the running products is the product: the gradient of the others is 0
    bounds = tuple((n - 1 if d == dim else 0, n, 1) for d, n in enumerate(x.shape))
    return apply(ops.cumprod_backward, unslice(g, x.shape, bounds), x, dim=dim)


gradient("prod", x=_prod)
gradient("sum", a=_sum)
gradient("amax", a=_extremum)
gradient("amin", a=_extremum)
gradient("cumsum", a=lambda g, dim: flip(cumsum(flip(g, dim), dim), dim))
gradient("cumprod", x=lambda g, x, dim: apply(ops.cumprod_backward, g, x, dim=dim))

# -- movement and indexing: pairs of adjoints ------------------------------------------------------


def _invert(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dims.index(i) for i in range(len(dims)))


gradient("reshape", a=lambda g, a_shape: in_shape(g, a_shape))
gradient("permute", a=lambda g, dims: permute(g, _invert(dims)))
gradient("expand", a=lambda g, a_shape: sum_to(g, a_shape))
gradient("slice", a=lambda g, a_shape, bounds: unslice(g, a_shape, bounds))
gradient("unslice", a=lambda g, bounds: apply(ops.slice_, g, bounds=bounds))
gradient("unfold", a=lambda g, a_shape, step: apply(ops.fold, g, length=a_shape[-1], step=step))
gradient("fold", a=lambda g, a_shape, step: apply(ops.unfold, g, size=a_shape[-1], step=step))
gradient("copy", a=lambda g: g)
gradient("cast", a=lambda g, a_dtype: apply(ops.cast, g, dtype=a_dtype))
gradient(
    "take",
    a=lambda g, a_shape, index: apply(ops.scatter_add, g, index, length=a_shape[0]),
    index=None,
)
gradient("scatter_add", a=lambda g, index: apply(ops.take, g, index), index=None)


def _gather(g: Tensor, x_shape: Shape, index: Tensor, dim: int) -> Tensor:
    """Every element of g added to where it came from in zeros of `x_shape`."""
    return apply(ops.scatter, expand(_zeros_of((), g), x_shape), index, g, dim=dim, reduce="add")


gradient("gather", x=_gather, index=None)


def _scatter_into(g: Tensor, index: Tensor, dim: int, reduce: str) -> Tensor:
    if reduce == "add":
        return g
    return apply(ops.scatter, g, index, _zeros_of(index.shape, g), dim=dim, reduce=reduce)


gradient("scatter", x=_scatter_into, index=None, src=put_gradient)


def _cat(g: Tensor, metas: tuple[TensorMeta, ...], position: int, dim: int) -> Tensor:
    """The part of g that input `position` became."""
    start = sum(meta.shape[dim] for meta in metas[:position])
    return narrow(g, dim, start, metas[position].shape[dim])


gradient("cat", **{"*": _cat})

# -- contractions and pooling ----------------------------------------------------------------------


def _fitting(params: Params, **others: Any) -> dict[str, Any]:
    """The parameters that all convolutions share, and others."""
    shared = {k: params[k] for k in ("stride", "padding", "dilation", "groups")}
    return {**shared, **others}


def _sums(dim: int) -> Formula:
    """The gradient of a bias for each element of dimension `dim`; of a vector nothing is added."""
    return lambda g: apply(
        ops.sum, g, dims=tuple(i for i in range(g.ndim) if i != dim % g.ndim), keepdim=False
    )


gradient(
    "matmul",
    a=lambda g, a_shape, b: sum_to(apply(ops.matmul, g, b.mT), a_shape),
    b=lambda g, a, b_shape: sum_to(apply(ops.matmul, a.mT, g), b_shape),
)
gradient(
    "conv2d",
    x=lambda g, w, x_shape, params: apply(
        ops.conv2d_input, g, w, **_fitting(params, input_size=x_shape[2:])
    ),
    w=lambda g, x, w_shape, params: apply(
        ops.conv2d_weight, x, g, **_fitting(params, kernel_size=w_shape[2:])
    ),
    b=_sums(1),
)
gradient(
    "conv2d_input",
    grad=lambda g, w, params: apply(ops.conv2d, g, w, **_fitting(params)),
    w=lambda g, grad, w_shape, params: apply(
        ops.conv2d_weight, g, grad, **_fitting(params, kernel_size=w_shape[2:])
    ),
)
gradient(
    "conv2d_weight",
    x=lambda g, grad, x_shape, params: apply(
        ops.conv2d_input, grad, g, **_fitting(params, input_size=x_shape[2:])
    ),
    grad=lambda g, x, params: apply(ops.conv2d, x, g, **_fitting(params)),
)
gradient("max_pool2d", x=lambda g, x, params: apply(ops.max_pool2d_backward, g, x, **params))
gradient(
    "max_pool2d_backward",
    grad=lambda g, x, params: apply(ops.max_pool2d_select, g, x, **params),
    x=None,
)
gradient(
    "max_pool2d_select",
    values=lambda g, x, params: apply(ops.max_pool2d_backward, g, x, **params),
    x=None,
)
gradient(
    "avg_pool2d",
    x=lambda g, x_shape, params: apply(
        ops.avg_pool2d_backward, g, input_size=x_shape[2:], **params
    ),
)
gradient(
    "avg_pool2d_backward",
    grad=lambda g, kernel_size, stride, padding: apply(
        ops.avg_pool2d, g, kernel_size=kernel_size, stride=stride, padding=padding
    ),
)

# -- fused -----------------------------------------------------------------------------------------

gradient(
    "linear",
    x=lambda g, x_shape, w: in_shape(apply(ops.matmul, rows(g), w), x_shape),
    w=lambda g, x: apply(ops.linear_weight, g, x),
    b=_sums(-1),
)
gradient(
    "quantized_linear",
    x=lambda g, x_shape, weight, scale, bits: in_shape(
        apply(ops.matmul, rows(g), dequantized(weight, scale, x_shape[-1], bits)), x_shape
    ),
    weight=None,
    scale=lambda g, x, weight, scale, range_, params: scale_gradient(
        g, x, weight, scale, range_, **params
    ),
    bias=_sums(-1),
    range_=None,
)
gradient(
    "dynamic_update_slice",
    a=lambda g, update_shape, start, dim: apply(
        ops.dynamic_update_slice, g, _zeros_of(update_shape, g), start, dim=dim
    ),
    update=lambda g, update_shape, start, dim: slice_from(g, start, update_shape[dim], dim),
    start=None,
)
gradient("softmax", x=lambda g, out, dim: apply(ops.softmax_backward, g, out, dim=dim))
gradient("log_softmax", x=lambda g, out, dim: apply(ops.log_softmax_backward, g, out, dim=dim))
gradient(
    "cross_entropy",
    x=lambda g, x, target: apply(ops.cross_entropy_backward, g, x, target),
    target=None,
)
gradient(
    "ctc_loss",
    log_probs=lambda g, log_probs, targets, input_lengths, target_lengths, params: apply(
        ops.ctc_loss_backward, g, log_probs, targets, input_lengths, target_lengths, **params
    ),
    **dict.fromkeys(("targets", "input_lengths", "target_lengths")),
)
gradient(
    "cross",
    a=lambda g, b, dim: apply(ops.cross, b, g, dim=dim),
    b=lambda g, a, dim: apply(ops.cross, g, a, dim=dim),
)
gradient("gelu", x=lambda g, x, params: apply(ops.gelu_backward, g, x, **params))


def _normalization(name: str, dim: int) -> None:
    """Of an op with a weight and a bias for each element of dimension `dim`."""
    backward, weight = (getattr(ops, f"{name}_{of}") for of in ("backward", "weight"))
    gradient(
        name,
        x=lambda g, x, w, params: apply(backward, g, x, w, **params),
        w=lambda g, x, params: apply(weight, g, x, **params),
        b=_sums(dim),
    )


_normalization("layer_norm", -1)
_normalization("batch_norm", 1)
_normalization("group_norm", 1)


def _attention(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Any, seed: Any, params: Params
) -> tuple[Tensor, Tensor]:
    """The gradient of the result, and those of query, key and value in one flat tensor."""
    inputs = [x for x in (query, key, value, mask, seed) if x is not None]
    return g, apply(ops.scaled_dot_product_attention_backward, g, *inputs, **params)


def _attention_part(
    both: tuple[Tensor, Tensor],
    position: int,
    query_shape: Shape,
    key_shape: Shape,
    value_shape: Shape,
) -> Tensor:
    return part_of_gradients(both[1], position, (query_shape, key_shape, value_shape))


gradient(
    "scaled_dot_product_attention",
    shared=_attention,
    query=_attention_part,
    key=_attention_part,
    value=_attention_part,
    mask=lambda both, query, key, value, mask, seed, params: mask_gradient(
        both[0], query, key, value, mask, seed, **params
    ),
    seed=None,
)
