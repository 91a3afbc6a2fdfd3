"""What each fused op means, in terms of the other ops.

A backend that has a kernel for a fused op runs that; on any other, and wherever a graph is wanted
in primitives, the function here runs. Importing this module attaches them to the op table by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_INT, Array, Shape
from tinytorch.functions import elementwise, indexing, movement, scans
from tinytorch.op import find_op
from tinytorch.replay import holds

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715
LARGE = 2**13  # elements of an index: below, looking at them saves nothing


def decomposition(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Attach a function to the fused op of its name, as what that means."""
    find_op(function.__name__).decomposition = function
    return function


@decomposition
def linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """x @ w.T + b; the batch dimensions are merged, so that it is one matrix product.

    Args:
        x: (..., in)
        w: (out, in), one row for each output.
        b: (out,), or None for nothing to add.

    Returns:
        (..., out)
    """
    out = apply(ops.matmul, movement.rows(x), w.t())
    if b is not None:
        out = apply(ops.add, out, b)
    return out if x.ndim == 2 else out.reshape((*x.shape[:-1], w.shape[0]))


@decomposition
def linear_weight(grad: Tensor, x: Tensor) -> Tensor:
    """grad.T @ x over all rows: the gradient of `linear` for its weight."""
    return apply(ops.matmul, movement.rows(grad).mT, movement.rows(x))


@decomposition
def dynamic_update_slice(a: Tensor, update: Tensor, start: Tensor, *, dim: int) -> Tensor:
    """`a` with `update` in place of its elements from `start` on: a slice whose place is a value.

    Compiled code that writes the result back into `a` writes the slice alone.

    Args:
        a: of any shape.
        update: as large as `a`, but along `dim`, where it has n elements.
        start: 0-d integer, 0 to size - n.
        dim: along which the elements begin at `start`.

    Returns:
        Of a's shape.

    Raises:
        IndexError: the slice would not lie within `a`.

    Source: XLA, operation semantics, "DynamicUpdateSlice", which moves such a start instead.
    """
    length, count = a.shape[dim], update.shape[dim]
    start = apply(ops.take, _counted(length - count + 1), start)  # refuses what is none of them
    if not update.numel():  # what is put there has a gradient all the same, an empty one
        whole = [(0, n, 1) for n in a.shape]
        whole[dim] = (0, length - count, 1)
        return apply(ops.cat, apply(ops.slice_, a, bounds=tuple(whole)), update, dim=dim)
    behind = _counted(length) - start
    inside = apply(ops.logical_and, apply(ops.le, 0, behind), apply(ops.lt, behind, count))
    inside = inside.reshape((length, *(1,) * (a.ndim - dim - 1)))
    rows = _taken_along(update, apply(ops.clip, behind, 0, count - 1), dim)
    return apply(ops.where, inside, rows, a)


def slice_from(a: Tensor, start: Tensor, count: int, dim: int) -> Tensor:
    """The slice of so many elements along `dim` that begins at `start`."""
    return _taken_along(a, _counted(count) + start, dim)


def _counted(stop: int) -> Tensor:
    return apply(ops.arange, start=0, stop=stop, step=1, dtype=DEFAULT_INT)


def _taken_along(a: Tensor, index: Tensor, dim: int) -> Tensor:
    order = (dim, *(d for d in range(a.ndim) if d != dim))
    rows = apply(ops.take, apply(ops.permute, a, dims=order), index)
    return apply(ops.permute, rows, dims=tuple(order.index(d) for d in range(a.ndim)))


@decomposition
def gather(x: Tensor, index: Tensor, *, dim: int) -> Tensor:
    """out[i][j] = x[index[i][j]][j] (for dim 0): elements of x flattened, by their positions."""
    flat = indexing.flat_index(x.shape, dim, index)
    return apply(ops.take, movement.reshape(x, (-1,)), flat)


@decomposition
def scatter(x: Tensor, index: Tensor, src: Tensor, *, dim: int, reduce: str) -> Tensor:
    """x, with src[i][j] put at [index[i][j]][j] (for dim 0), or added there.

    Args:
        index, src: of one shape, which is no larger than x but along `dim`.
        dim: along which the index counts.
        reduce: "none" to put, of several for one place the last; "add" to add all.

    Source: ONNX, operator ScatterElements.
    """
    flat = movement.reshape(indexing.flat_index(x.shape, dim, index), (-1,))
    values, size = movement.reshape(src, (-1,)), x.numel()
    if reduce == "add":
        return x + movement.in_shape(apply(ops.scatter_add, values, flat, length=size), x.shape)
    if not index.numel():  # nothing is put there; it has a gradient all the same, an empty one
        both = apply(ops.cat, movement.reshape(x, (-1,)), values, dim=0)
        return movement.reshape(both, x.shape)
    winner, hit = _last_of_each(flat, size)
    chosen = apply(ops.where, hit, apply(ops.take, values, winner), movement.reshape(x, (-1,)))
    return movement.in_shape(chosen, x.shape)


def _last_of_each(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """For each of `size` positions the last entry that names it, and whether there is one.

    In the order of a stable sort the entries of a place are a run; running counts say where it
    ends.
    """
    one = apply(ops.full, shape=positions.shape, value=1, dtype=DEFAULT_INT)
    counts = apply(ops.scatter_add, one, positions, length=size)
    order = apply(ops.argsort, positions, dim=0, descending=False)
    ends = apply(ops.cumsum, counts, dim=0) - 1
    hit = apply(ops.ne, counts, 0)
    return apply(ops.take, order, apply(ops.where, hit, ends, 0)), hit


def put_gradient(g: Tensor, x_shape: Shape, index: Tensor, dim: int, reduce: str) -> Tensor:
    """The gradient of `scatter` for src: that of its place; of several put there, the last has it.

    Args:
        g: the gradient of the result, of `x_shape`.
        index, dim, reduce: those of `scatter`.
    """
    taken = apply(ops.gather, g, index, dim=dim)
    is_large = max(index.numel(), math.prod(x_shape)) >= LARGE
    if reduce == "add" or (is_large and holds(index, _are_distinct, dim, traced=False)):
        return taken
    order = movement.in_shape(_counted(index.numel()), index.shape)
    nowhere = apply(ops.full, shape=x_shape, value=-1, dtype=DEFAULT_INT)
    last = apply(ops.scatter, nowhere, index, order, dim=dim, reduce=reduce)
    is_last = apply(ops.eq, apply(ops.gather, last, index, dim=dim), order)
    return apply(ops.where, is_last, taken, 0.0)


def _are_distinct(data: Array, dim: int) -> bool:
    """Whether an index is seen to name no place twice: one line, spread, in which all differ.

    Only where that is cheap to see: a long line must be in ascending order.
    """
    if any(d != dim and n > 1 and data.strides[d] for d, n in enumerate(data.shape)):
        return False
    line = data[(0,) * dim + (slice(None),) + (0,) * (data.ndim - dim - 1)]
    if line.size < LARGE:
        line = np.sort(line)
    return bool((line[1:] > line[:-1]).all())


@decomposition
def partial_argsort(a: Tensor, *, dim: int, descending: bool, start: int, length: int) -> Tensor:
    """The indices at the places start, ..., start + length - 1 of `argsort`.

    The first few are those of `topk`; a single one is that of an order statistic.

    Returns:
        int64, of a's shape but along `dim`.

    Source: C. Hoare, "Algorithm 65: find", 1961 (selection, which need not sort the others).
    """
    order = apply(ops.argsort, a, dim=dim, descending=descending)
    return movement.narrow(order, dim, start, length)


@decomposition
def running_argmax(a: Tensor, *, dim: int) -> Tensor:
    """The index of the largest element up to each along `dim`: of equal ones, and of NaN, the last.

    Returns:
        int64, of a's shape.
    """
    return scans.running_index(a, dim, elementwise.ge)


@decomposition
def running_argmin(a: Tensor, *, dim: int) -> Tensor:
    """The index of the smallest element up to each along `dim`, as `running_argmax`."""
    return scans.running_index(a, dim, elementwise.le)


@decomposition
def prod(x: Tensor, *, dim: int, keepdim: bool) -> Tensor:
    """The product along `dim`, of halves again and again; gradients are right where x is 0."""
    if x.shape[dim] == 0:
        return apply(ops.sum, x, dims=(dim,), keepdim=keepdim) + 1
    if x.shape[dim] == 1:
        x = apply(ops.copy, x)
    while (n := x.shape[dim]) > 1:
        half = n // 2
        rest = movement.narrow(x, dim, 2 * half, n - 2 * half)
        x = movement.narrow(x, dim, 0, half) * movement.narrow(x, dim, half, half)
        x = movement.cat([x, rest], dim) if n % 2 else x
    return x if keepdim else movement.squeeze(x, dim)


@decomposition
def cumprod(x: Tensor, *, dim: int) -> Tensor:
    """The products of ever longer stretches along `dim`; gradients are right where x is 0."""
    return scans.scanned((x,), dim, lambda before, now: (before[0] * now[0],))[0]


@decomposition
def cumprod_backward(g: Tensor, x: Tensor, *, dim: int) -> Tensor:
    """The gradient of `cumprod` for x, without a division: right where x is 0, or products are.

    That of x[i] is the product of all before it times s[i] = g[i] + x[i + 1] * s[i + 1], where the
    s are the values of a linear recurrence from the end.

    Args:
        g: the gradient of the result.
        x: as for `cumprod`, and of the shape of g, which is that of the result.

    Source: G. Blelloch, "Prefix sums and their applications", 1990, section 1.4.1 (recurrences as
    scans).
    """
    if x.ndim == 0 or not x.shape[dim]:
        return g * 1.0
    n, backwards = x.shape[dim] - 1, movement.flip(x, dim)
    edge = movement.narrow(x, dim, 0, 1).shape
    zero, one = (apply(ops.full, shape=edge, value=v, dtype=x.dtype) for v in (0.0, 1.0))
    factors = movement.cat([zero, movement.narrow(backwards, dim, 0, n)], dim)
    sums = scans.scanned(
        (factors, movement.flip(g, dim)),
        dim,
        lambda before, now: (before[0] * now[0], now[1] + now[0] * before[1]),
    )[1]
    products = movement.narrow(apply(ops.cumprod, x, dim=dim), dim, 0, n)
    return movement.cat([one, products], dim) * movement.flip(sums, dim)


@decomposition
def softmax(x: Tensor, *, dim: int) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along `dim`. The shift by the maximum prevents overflow.

    The shift changes nothing in the result, so its gradient is nothing to compute: it is detached.

    Args:
        x: of any shape; a 0-d x gives 1, an empty `dim` an empty result.
        dim: along which the result adds up to 1.

    Returns:
        Of x's shape.

    Source: P. Blanchard, D. Higham, N. Higham, "Accurately computing the log-sum-exp and softmax
    functions", 2021.
    """
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = (x - x.amax(dim, keepdim=True).detach()).exp()
    return e / e.sum(dim, keepdim=True)


@decomposition
def log_softmax(x: Tensor, *, dim: int) -> Tensor:
    """x - max - log(sum(exp(x - max))) along `dim`: log(softmax(x)) that never takes log(0).

    Args and result are those of `softmax`; a 0-d x gives 0.
    """
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0
    shifted = x - x.amax(dim, keepdim=True).detach()
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@decomposition
def softmax_backward(g: Tensor, out: Tensor, *, dim: int) -> Tensor:
    """out * (g - sum(g * out))"""
    if g.ndim == 0:
        return g * 0
    return out * (g - (g * out).sum(dim, keepdim=True))


@decomposition
def log_softmax_backward(g: Tensor, out: Tensor, *, dim: int) -> Tensor:
    """g - softmax(x) * sum(g)"""
    if g.ndim == 0:
        return g * 0
    return g - out.exp() * g.sum(dim, keepdim=True)


@decomposition
def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Mean over the rows of -log_softmax(x)[target].

    Args:
        x: logits (n, classes).
        target: the right class of each row, int64 (n,).

    Returns:
        A 0-d tensor.
    """
    logp = apply(ops.log_softmax, x, dim=1)
    return 0.0 - indexing.gather(logp, 1, target.unsqueeze(1)).mean()  # 0, not -0


@decomposition
def cross_entropy_backward(g: Tensor, x: Tensor, target: Tensor) -> Tensor:
    """g / n * (softmax(x) - one_hot(target)): the gradient of `cross_entropy` for x.

    Args:
        g: the gradient of the loss, 0-d.
        x, target: as for `cross_entropy`.

    Returns:
        (n, classes), in the dtype of x.
    """
    probabilities = apply(ops.softmax, x, dim=1)
    target_row = indexing.one_hot(target, x.shape[1]).to(x.dtype)
    return (probabilities - target_row) * (g / x.shape[0])


@decomposition
def cross(a: Tensor, b: Tensor, *, dim: int) -> Tensor:
    """The cross product of vectors of three components along `dim`."""
    a0, a1, a2, b0, b1, b2 = (movement.narrow(t, dim, i, 1) for t in (a, b) for i in range(3))
    return movement.cat([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim)


@decomposition
def gelu(x: Tensor, *, approximate: str) -> Tensor:
    """x times the normal distribution function at x, or its approximation with tanh.

        x / 2 * (1 + erf(x * SQRT_HALF))
        x / 2 * (1 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x^3)))

    Args:
        x: of any shape, and so the result.
        approximate: "none" for the first formula, "tanh" for the second.

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016, section 2.
    """
    if approximate == "tanh":
        inner = (x + x * x * x * GELU_CUBIC) * SQRT_2_OVER_PI
        return x * 0.5 * (inner.tanh() + 1.0)
    return x * 0.5 * ((x * SQRT_HALF).erf() + 1.0)


@decomposition
def gelu_backward(g: Tensor, x: Tensor, *, approximate: str) -> Tensor:
    """g times the derivative of gelu at x."""
    if approximate == "tanh":
        t = ((x + x * x * x * GELU_CUBIC) * SQRT_2_OVER_PI).tanh()
        slope = (x * x * (3 * GELU_CUBIC) + 1.0) * SQRT_2_OVER_PI
        return g * 0.5 * (t + 1.0 + x * (1.0 - t * t) * slope)
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (((x * SQRT_HALF).erf() + 1.0) * 0.5 + x * density)


# -- normalization: the ops differ in which dimensions they average over, and where w meets x ------


def _of_rows(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions averaged over, and the shape in which weight and bias meet x."""
    return (x.ndim - 1,), (x.shape[-1],)


def _of_channels(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = tuple(i for i in range(x.ndim) if i != 1)
    return dims, (x.shape[1], *(1,) * (x.ndim - 2))


def _in_groups(x: Tensor, groups: int) -> Tensor:
    """(n, channels, ...) as (n, groups, channels of a group, positions)."""
    n, channels, *places = x.shape
    return x.reshape(n, groups, channels // groups, math.prod(places))


def _of_groups(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As `_of_rows`, of what `_in_groups` gives."""
    return (2, 3), (*x.shape[1:3], 1)


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps), and 1 / sqrt(var + eps), over some dimensions.

    The variance is the mean of (x - mean)^2.

    Returns:
        As x; and with sizes of 1 in the dimensions averaged over.
    """
    centred = x - x.mean(dims, keepdim=True)
    scale = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    return centred * scale, scale


def _normalize(
    x: Tensor, w: Tensor, b: Tensor, eps: float, dims: tuple[int, ...], shape: tuple[int, ...]
) -> Tensor:
    return _standardized(x, dims, eps)[0] * w.reshape(shape) + b.reshape(shape)


def _normalize_backward(
    g: Tensor, x: Tensor, w: Tensor, eps: float, dims: tuple[int, ...], shape: tuple[int, ...]
) -> Tensor:
    xhat, scale = _standardized(x, dims, eps)
    gw = g * w.reshape(shape)
    along = (gw * xhat).mean(dims, keepdim=True)
    return (gw - gw.mean(dims, keepdim=True) - xhat * along) * scale


def _normalize_weight(
    g: Tensor, x: Tensor, eps: float, dims: tuple[int, ...], others: tuple[int, ...]
) -> Tensor:
    """`others`: the dimensions that a weight is shared by."""
    return apply(ops.sum, g * _standardized(x, dims, eps)[0], dims=others, keepdim=False)


@decomposition
def layer_norm(x: Tensor, w: Tensor, b: Tensor, *, eps: float) -> Tensor:
    """Normalize each row to mean 0 and variance 1, then compute w * x + b.

    Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016.
    """
    return _normalize(x, w, b, eps, *_of_rows(x))


@decomposition
def layer_norm_backward(g: Tensor, x: Tensor, w: Tensor, *, eps: float) -> Tensor:
    """Gradient of `layer_norm` for x."""
    return _normalize_backward(g, x, w, eps, *_of_rows(x))


@decomposition
def layer_norm_weight(g: Tensor, x: Tensor, *, eps: float) -> Tensor:
    """Gradient of `layer_norm` for w."""
    return _normalize_weight(g, x, eps, _of_rows(x)[0], tuple(range(x.ndim - 1)))


@decomposition
def batch_norm(x: Tensor, w: Tensor, b: Tensor, *, eps: float) -> Tensor:
    """Normalize each channel to mean 0 and variance 1 over the batch, then w * x + b.

    Source: S. Ioffe, C. Szegedy, "Batch normalization", 2015, algorithm 1.
    """
    return _normalize(x, w, b, eps, *_of_channels(x))


@decomposition
def batch_norm_backward(g: Tensor, x: Tensor, w: Tensor, *, eps: float) -> Tensor:
    """Gradient of `batch_norm` for x."""
    return _normalize_backward(g, x, w, eps, *_of_channels(x))


@decomposition
def batch_norm_weight(g: Tensor, x: Tensor, *, eps: float) -> Tensor:
    """Gradient of `batch_norm` for w."""
    dims, _ = _of_channels(x)
    return _normalize_weight(g, x, eps, dims, dims)


@decomposition
def group_norm(x: Tensor, w: Tensor, b: Tensor, *, groups: int, eps: float) -> Tensor:
    """Normalize each group of channels of each sample, then w * x + b.

    Source: Y. Wu, K. He, "Group normalization", 2018.
    """
    rows = _in_groups(x, groups)
    return _normalize(rows, w, b, eps, *_of_groups(rows)).reshape(x.shape)


@decomposition
def group_norm_backward(g: Tensor, x: Tensor, w: Tensor, *, groups: int, eps: float) -> Tensor:
    """Gradient of `group_norm` for x."""
    upper, rows = _in_groups(g, groups), _in_groups(x, groups)
    return _normalize_backward(upper, rows, w, eps, *_of_groups(rows)).reshape(x.shape)


@decomposition
def group_norm_weight(g: Tensor, x: Tensor, *, groups: int, eps: float) -> Tensor:
    """Gradient of `group_norm` for w."""
    upper, rows = _in_groups(g, groups), _in_groups(x, groups)
    return _normalize_weight(upper, rows, eps, (2, 3), (0, 3)).reshape(x.shape[1])
