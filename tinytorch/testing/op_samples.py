"""How to draw inputs and parameters for each op of the table; all tests of ops draw from here.

    sample = draw_sample("matmul", random, style="edges")
    apply(OPS["matmul"], *sample.tensors(), **sample.params)

A new op needs one function here, under its name; an elementwise op none, where every number will
do. The line above it, `@samples`, also says the op in PyTorch, for tests of values and gradients.
Styles:

    smooth  float64, away from ties and kinks, in the op's domain: for finite differences
    edges   any dtype and memory layout; empty and 0-d; ties, zeros, -0.0, infinities, NaN
    finite  as edges, without infinities and NaN
"""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import Any

import numpy as np

from tinytorch.dtypes import DTYPES, as_dtype
from tinytorch.op import OPS, Op
from tinytorch.tensor import Tensor
from tinytorch.testing import (  # they enter theirs
    attention_samples as attention_samples,
    ctc_samples as ctc_samples,
    quantized_samples as quantized_samples,
    window_samples as window_samples,
)
from tinytorch.testing.source import SAMPLERS, Sample, Sampler, Source, samples


def draw_sample(name: str, random: Random, style: str, dtype: str = "float64") -> Sample:
    """Arguments for the op of this name.

    Raises:
        LookupError: there is no sampler; the message says where to write one.
    """
    sampler, op = SAMPLERS.get(name), OPS.get(name)
    if sampler is None and op is not None and op.kind == "elementwise":
        sampler = _elementwise(op)
    if sampler is None:
        raise LookupError(
            f"the op {name!r} has no sample generator: add one to tinytorch/testing/op_samples.py, "
            f"below a line @samples({name!r}), so that the conformance and gradient tests can "
            f"draw inputs for it"
        )
    return sampler(Source(random, style, dtype))


def admitted_dtypes(name: str) -> list[str]:
    """The dtypes that an op takes, by its own rule."""
    from tinytorch.errors import DTypeError

    found = []
    for dtype in (d for d in DTYPES if d != "bfloat16"):  # NumPy has none: see test_dtypes.py
        sample = draw_sample(name, Random(0), "finite", dtype)
        operands = [t.meta if isinstance(t, Tensor) else type(t) for t in sample.tensors()]
        try:
            OPS[name].plan(operands, sample.params)
        except DTypeError:
            continue
        found.append(dtype)
    return found


# -- elementwise -----------------------------------------------------------------------------------

# Where a function is defined.
LOWEST = {**dict.fromkeys(("log", "log2", "log10", "sqrt"), 0.0), "log1p": -1.0}


def _elementwise(op: Op) -> Sampler:
    """Of one input or several, where every number will do."""
    if len(op.inputs) > 1:
        return lambda s: Sample(tuple(map(s.array, s.broadcast_shapes(len(op.inputs)))), {})
    return lambda s: Sample((s.array(s.shape(), low=LOWEST.get(op.name, -math.inf)),), {})


@samples(
    *("add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le"),
    *("logical_and", "logical_or"),
)
def _binary(s: Source) -> Sample:
    a, b = map(s.array, s.broadcast_shapes(2))
    if s.smooth or s.random.random() < 0.8:
        return Sample((a, b), {})
    scalar = s.pick((0, 2, 3)) if s.dtype.kind in "iu" else s.pick((True, 1, 0.1, -2.5))
    if s.dtype.kind == "b":
        scalar = s.flag()
    return Sample(s.pick([(a, scalar), (scalar, a)]), {})


@samples("atan2", "bitwise_and", "bitwise_or", "bitwise_xor")
def _two(s: Source) -> Sample:
    low = 0.0 if s.smooth else -math.inf
    return Sample(tuple(s.array(shape, low=low) for shape in s.broadcast_shapes(2)), {})


@samples("asin", "acos")
def _within_one(s: Source) -> Sample:
    x = s.array(s.shape())
    return Sample((np.asarray(np.tanh(x) * 0.9) if s.smooth else x,), {})


@samples("div", "floor_divide", "remainder")
def _division(s: Source) -> Sample:
    first, second = s.broadcast_shapes(2)
    divisor = s.array(second, low=0.0)
    if s.dtype.kind in "iu":  # an integer division by zero raises; that is tested elsewhere
        divisor = np.where(divisor == 0, 2, divisor)
    return Sample((s.array(first), divisor.astype(s.dtype)), {})


@samples("pow")
def _pow(s: Source) -> Sample:
    first, second = s.broadcast_shapes(2)
    exponent = s.array(second)
    return Sample(
        (s.array(first, low=0.0), abs(exponent) if s.dtype.kind in "iu" else exponent), {}
    )


@samples("where")
def _where(s: Source) -> Sample:
    condition, a, b = s.broadcast_shapes(3)
    return Sample((s.array(condition, dtype=bool), s.array(a), s.array(b)), {})


@samples("clip")
def _clip(s: Source) -> Sample:
    x, low, high = s.broadcast_shapes(3)
    if s.smooth:
        bounds = np.asarray(s.array(low) - 3), np.asarray(s.array(high) + 3)
        return Sample((np.asarray(s.array(x) * 3), *bounds), {})
    return Sample((s.array(x), s.array(low), s.array(high)), {})


# -- reductions, scans, order ----------------------------------------------------------------------


def _some_dims(s: Source, ndim: int) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if s.flag())


@samples("sum")
def _sum(s: Source) -> Sample:
    shape = s.shape()
    params = {"dims": _some_dims(s, len(shape)), "keepdim": s.flag()}
    return Sample((s.array(shape),), params)


@samples("amax", "amin")
def _extremum(s: Source) -> Sample:
    shape = s.shape(extent=1)
    dims = _some_dims(s, len(shape))
    if not s.smooth and s.random.random() < 0.2:  # empty, but not where it is reduced
        shape = tuple(n if d in dims else 0 for d, n in enumerate(shape))
    return Sample((s.array(shape),), {"dims": dims, "keepdim": s.flag()})


@samples("argmax", "argmin")
def _arg(s: Source) -> Sample:
    shape = s.shape(1, extent=1)
    dim = s.integer(0, len(shape) - 1)
    if s.random.random() < 0.2:
        shape = tuple(n if d == dim else 0 for d, n in enumerate(shape))
    return Sample((s.array(shape),), {"dim": dim, "keepdim": s.flag()})


@samples("argsort")
def _argsort(s: Source) -> Sample:
    shape = s.shape(1)
    params = {"dim": s.integer(0, len(shape) - 1), "descending": s.flag()}
    return Sample((s.array(shape),), params)


def _torch_partial_argsort(torch: Any, a: Any, dim: int, **rest: Any) -> Any:
    order = torch.argsort(a, dim=dim, descending=rest["descending"], stable=True)
    return order.narrow(dim, rest["start"], rest["length"])


@samples("partial_argsort", torch=_torch_partial_argsort)
def _partial_argsort(s: Source) -> Sample:
    shape = s.shape(1)
    dim = s.integer(0, len(shape) - 1)
    start = s.integer(0, shape[dim])
    params = {"dim": dim, "descending": s.flag(), "start": start}
    return Sample((s.array(shape),), {**params, "length": s.integer(0, shape[dim] - start)})


@samples("prod", torch=lambda torch, x, dim, keepdim: torch.prod(x, dim, keepdim))
def _prod(s: Source) -> Sample:
    shape = s.shape(1)
    params = {"dim": s.integer(0, len(shape) - 1), "keepdim": s.flag()}
    return Sample((_factors(s, shape),), params)


def _factors(s: Source, shape: tuple[int, ...]) -> Any:
    """Numbers whose products do not overflow: then it would matter what is multiplied first."""
    x = s.array(shape)
    return x if x.dtype.kind != "f" else np.where(np.isinf(x), x, np.clip(x, -4, 4))


@samples("cumprod", torch=lambda torch, x, dim: torch.cumprod(x, dim))
def _cumprod(s: Source) -> Sample:
    shape = s.shape(1)
    return Sample((_factors(s, shape),), {"dim": s.integer(0, len(shape) - 1)})


def _torch_cumprod_backward(torch: Any, grad: Any, x: Any, dim: int) -> Any:
    """Each element's own product and sum; PyTorch's has no second derivative of one element."""
    if not x.shape[dim]:
        return grad * x
    grads, factors = grad.unbind(dim), x.unbind(dim)
    sums = [grads[-1]]
    for g, factor in zip(grads[-2::-1], factors[:0:-1], strict=True):
        sums.append(g + factor * sums[-1])
    before = [torch.ones_like(factors[0])]
    for factor in factors[:-1]:
        before.append(before[-1] * factor)
    return torch.stack([a * b for a, b in zip(before, reversed(sums), strict=True)], dim)


@samples("cumprod_backward", torch=_torch_cumprod_backward)
def _cumprod_backward(s: Source) -> Sample:
    shape = s.shape(1)
    # of infinity times 0 it depends on the order whether there is one
    arrays = tuple(np.clip(_factors(s, shape), -4, 4) for _ in range(2))
    return Sample(arrays, {"dim": s.integer(0, len(shape) - 1)})


@samples("running_argmax", torch=lambda torch, a, dim: torch.cummax(a, dim).indices)
@samples("running_argmin", torch=lambda torch, a, dim: torch.cummin(a, dim).indices)
@samples("cumsum")
def _cumsum(s: Source) -> Sample:
    shape = s.shape(1)
    return Sample((s.array(shape),), {"dim": s.integer(0, len(shape) - 1)})


# -- movement --------------------------------------------------------------------------------------


@samples("reshape")
def _reshape(s: Source) -> Sample:
    shape = s.shape()
    merged = [*shape[2:], math.prod(shape[:2])] if s.flag() else [math.prod(shape)]
    return Sample((s.array(shape),), {"shape": (*(1,) * s.integer(0, 2), *merged)})


@samples("permute")
def _permute(s: Source) -> Sample:
    shape = s.shape()
    dims = s.random.sample(range(len(shape)), len(shape))
    return Sample((s.array(shape),), {"dims": tuple(dims)})


@samples("expand")
def _expand(s: Source) -> Sample:
    narrow, wide = s.broadcast_shapes(2)
    return Sample((s.array(narrow),), {"shape": np.broadcast_shapes(narrow, wide)})


def _bounds(s: Source, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    def bound(extent: int) -> tuple[int, int, int]:
        def edge() -> int | None:
            return None if s.flag() else s.integer(-extent, extent)

        return slice(edge(), edge(), s.pick((1, 1, 2, 3, -1, -2))).indices(extent)

    return tuple(map(bound, shape))


@samples("slice")
def _slice(s: Source) -> Sample:
    shape = s.shape()
    return Sample((s.array(shape),), {"bounds": _bounds(s, shape)})


@samples("unslice")
def _unslice(s: Source) -> Sample:
    shape = s.shape()
    bounds = _bounds(s, shape)
    inside = tuple(len(range(*bound)) for bound in bounds)
    return Sample((s.array(inside),), {"shape": shape, "bounds": bounds})


@samples("unfold")
def _unfold(s: Source) -> Sample:
    shape = (*s.shape(0, 2), s.extent(1))
    return Sample((s.array(shape),), {"size": s.integer(1, shape[-1]), "step": s.integer(1, 3)})


@samples("fold")
def _fold(s: Source) -> Sample:
    windows, size, step = s.integer(1, 4), s.integer(1, 4), s.integer(1, 3)
    length = (windows - 1) * step + size + s.integer(0, step - 1)
    values = s.array((*s.shape(0, 2), windows, size))
    return Sample((values,), {"length": length, "step": step})


@samples("cat")
def _cat(s: Source) -> Sample:
    shape = s.shape(1)
    dim = s.integer(0, len(shape) - 1)
    shapes = [(*shape[:dim], s.extent(), *shape[dim + 1 :]) for _ in range(s.integer(1, 4))]
    return Sample(tuple(map(s.array, shapes)), {"dim": dim})


@samples("detach", "copy")
def _same(s: Source) -> Sample:
    return Sample((s.array(s.shape()),), {})


@samples("cast")
def _cast(s: Source) -> Sample:
    target = (
        "float64" if s.smooth else s.pick([d for d in DTYPES if d not in ("uint8", "bfloat16")])
    )
    # what an infinity or NaN is as an integer, no standard says
    finite = target.startswith("int")
    return Sample((s.array(s.shape(), finite=finite),), {"dtype": as_dtype(target)})


# -- indexing and creation -------------------------------------------------------------------------


@samples("take")
def _take(s: Source) -> Sample:
    rows = s.extent(1)
    return Sample((s.array((rows, *s.shape(0, 2))), s.index(s.shape(0, 2), rows)), {})


@samples("gather", torch=lambda torch, x, index, dim: torch.gather(x, dim, index))
def _gather(s: Source) -> Sample:
    shape = s.shape(1, extent=1)
    dim = s.integer(0, len(shape) - 1)
    wanted = tuple(s.extent() if d == dim else s.integer(0, n) for d, n in enumerate(shape))
    return Sample((s.array(shape), s.index(wanted, shape[dim])), {"dim": dim})


def _torch_scatter(torch: Any, x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    return (torch.scatter_add if reduce == "add" else torch.scatter)(x, dim, index, src)


@samples("scatter", torch=_torch_scatter)
def _scatter(s: Source) -> Sample:
    shape = s.shape(1, extent=1)
    dim = s.integer(0, len(shape) - 1)
    wanted = tuple(s.extent() if d == dim else s.integer(0, n) for d, n in enumerate(shape))
    if s.flag():
        index, reduce = s.index(wanted, shape[dim]), "add"
    else:  # PyTorch says not which of several values for one place wins; that is tested elsewhere
        wanted = tuple(min(n, m) for n, m in zip(wanted, shape, strict=True))
        order = np.argsort(s.rng.random(shape), axis=dim)
        index, reduce = order[tuple(slice(n) for n in wanted)], "none"
    return Sample((s.array(shape), index, s.array(wanted)), {"dim": dim, "reduce": reduce})


@samples("scatter_add")
def _scatter_add(s: Source) -> Sample:
    length = s.extent(1)
    index = s.index(s.shape(0, 2), length)
    return Sample((s.array((*index.shape, *s.shape(0, 2))), index), {"length": length})


@samples("dynamic_update_slice")
def _dynamic_update_slice(s: Source) -> Sample:
    shape = s.shape(1, 3)
    dim = s.integer(0, len(shape) - 1)
    count = s.integer(0, shape[dim])
    start = np.array(s.integer(0, shape[dim] - count))
    part = (*shape[:dim], count, *shape[dim + 1 :])
    return Sample((s.array(shape), s.array(part), start), {"dim": dim})


@samples("full")
def _full(s: Source) -> Sample:
    value = {"b": True, "u": 3, "i": -3, "f": s.pick((0.1, -math.inf, math.nan))}[s.dtype.kind]
    return Sample((), {"shape": s.shape(), "value": value, "dtype": as_dtype(s.dtype)})


@samples("arange")
def _arange(s: Source) -> Sample:
    dtype = as_dtype("int64" if s.dtype.kind == "b" else s.dtype)
    if dtype.dtype.kind == "u":
        start, stop, step = s.integer(0, 5), s.integer(0, 9), s.pick((1, 2))
    else:
        step = s.pick((1, 2, -3)) * (0.25 if dtype.is_floating_point else 1)
        start, stop = s.integer(-5, 5), s.integer(-9, 9)
    return Sample((), {"start": start, "stop": stop, "step": step, "dtype": dtype})


@samples("uniform")
def _uniform(s: Source) -> Sample:
    seed = np.array(s.random.getrandbits(64) - (1 << 63), np.int64)
    return Sample((seed,), {"shape": s.shape(), "dtype": as_dtype(s.pick(("float32", "float64")))})


# -- contractions ----------------------------------------------------------------------------------


@samples("matmul")
def _matmul(s: Source) -> Sample:
    m, k, n = s.extent(), s.extent(), s.extent()
    if not s.smooth and s.random.random() < 0.1:
        m, k, n = s.integer(30, 70), s.integer(30, 300), s.integer(30, 70)
    batch_a, batch_b = s.pick([((), ()), ((2,), (2,)), ((2, 1), (3,)), ((), (2,)), ((0,), ())])
    return Sample((s.array((*batch_a, m, k)), s.array((*batch_b, k, n))), {})


@samples("linear")
def _linear(s: Source) -> Sample:
    inner, outer = s.extent(), s.extent()
    inputs = (s.array((*s.shape(0, 2), inner)), s.array((outer, inner)), s.array((outer,)))
    return Sample(inputs[: s.integer(2, 3)], {})


@samples("linear_weight")
def _linear_weight(s: Source) -> Sample:
    front, inner, outer = s.shape(0, 2), s.extent(), s.extent()
    return Sample((s.array((*front, outer)), s.array((*front, inner))), {})


# -- fused -----------------------------------------------------------------------------------------


@samples("softmax", "log_softmax")
def _softmax(s: Source) -> Sample:
    shape = s.shape(1)
    return Sample((s.array(shape),), {"dim": s.integer(0, len(shape) - 1)})


@samples("softmax_backward", "log_softmax_backward")
def _softmax_backward(s: Source) -> Sample:
    shape = s.shape(1)
    dim = s.integer(0, len(shape) - 1)
    e = np.exp(s.array(shape, finite=True).astype(np.float64))
    y = e / e.sum(dim, keepdims=True)
    return Sample((s.array(shape, finite=True), y.astype(s.dtype)), {"dim": dim})


def _logits(s: Source) -> tuple[Any, Any]:
    n, classes = s.extent(1), s.extent(1)
    return s.array((n, classes), finite=True), s.index((n,), classes)


@samples("cross_entropy")
def _cross_entropy(s: Source) -> Sample:
    return Sample(_logits(s), {})


@samples("cross_entropy_backward")
def _cross_entropy_backward(s: Source) -> Sample:
    return Sample((s.array((), finite=True), *_logits(s)), {})


@samples("cross", torch=lambda torch, a, b, dim: torch.linalg.cross(a, b, dim=dim))
def _cross(s: Source) -> Sample:
    shape = list(s.shape(1))
    dim = s.integer(0, len(shape) - 1)
    shape[dim] = 3
    is_real = s.dtype.kind == "f"  # a difference of products: no special values, no ties
    draw = s.normal if is_real else s.array
    return Sample((draw(tuple(shape)), draw(tuple(shape))), {"dim": dim})


@samples("gelu")
def _gelu(s: Source) -> Sample:
    return Sample((s.array(s.shape()),), {"approximate": s.pick(("none", "tanh"))})


@samples("gelu_backward")
def _gelu_backward(s: Source) -> Sample:
    shape = s.shape()
    # an infinite gradient times a slope that rounds to 0 in one precision and not in another
    g = s.array(shape, finite=True)
    return Sample((g, s.array(shape)), {"approximate": s.pick(("none", "tanh"))})


def _normalized(s: Source, dim: int, inputs: str, grouped: bool) -> Sample:
    shape = s.shape(1, 3, 2) if dim < 0 else s.shape(2, 4, 2)
    if not s.smooth and s.random.random() < 0.1:
        shape = (0, *shape[1:]) if len(shape) > 1 else shape
    vector = (shape[dim],)
    arrays = tuple(s.normal(shape if name in "gx" else vector) for name in inputs)
    params: dict[str, Any] = {"eps": s.pick((1e-5, 1e-3))}
    if grouped:
        params["groups"] = s.pick([n for n in range(1, vector[0] + 1) if vector[0] % n == 0])
    return Sample(arrays, params)


def _enter_normalized(dim: int, name: str, grouped: bool = False) -> None:
    for suffix, inputs in (("", "xwb"), ("_backward", "gxw"), ("_weight", "gx")):
        SAMPLERS[name + suffix] = partial(_normalized, dim=dim, inputs=inputs, grouped=grouped)


_enter_normalized(-1, "layer_norm")
_enter_normalized(1, "batch_norm")
_enter_normalized(1, "group_norm", grouped=True)
