"""Convolution and pooling as calls of symbols, with the records that say how an image is walked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tinytorch.backends.optimized.conv.conv2d import plan_conv2d
from tinytorch.backends.optimized.conv.conv2d_input import plan_conv2d_input
from tinytorch.backends.optimized.conv.conv2d_weight import dots_together, plan_conv2d_weight
from tinytorch.backends.optimized.conv.plan import SLACK, Correlation, Walk, whole_vectors
from tinytorch.backends.optimized.symbols.records import (
    ConvDotsRecord,
    ConvRecord,
    ConvWeightRecord,
    PoolRecord,
)
from tinytorch.graph.compiler.native.code import Code, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous, copy
from tinytorch.graph.layout import StridedView
from tinytorch.op import Params

T = TypeVar("T")
LINE = 64  # bytes of a cache line


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def _sizes(x: StridedView, out: StridedView) -> dict[str, Any]:
    """The first words of the records of convolutions."""
    names = ("images", "channels", "height", "width", "out_channels", "out_height", "out_width")
    return dict(zip(names, (*x.shape, *out.shape[1:]), strict=True))


def _plan(make: Callable[..., T], x: StridedView, w: StridedView, params: Params) -> T:
    """The plan of a convolution of x with w, or of its gradient to one of them."""
    names = ("stride", "padding", "dilation", "groups")
    return make(x.dtype.itemsize, x.shape, w.shape, *(params[name] for name in names))


def conv2d(code: Code, inputs: list[Any], out: StridedView, params: Params) -> None:
    """Write a convolution, by the algorithm that the backend's `conv2d` chooses."""
    x, w, *bias = [contiguous(code, view) for view in inputs]
    start = code.address(bias[0]) if bias else "0"
    if not out.size:
        return
    groups = params["groups"]
    plan = _plan(plan_conv2d, x, w, params)
    _sum(code, plan.walk, x, code.address(w), w.shape, start, out, groups, plan.in_place, False)


def conv2d_input(code: Code, inputs: list[Any], out: StridedView, params: Params) -> None:
    """Write the gradient to the input, by the algorithm that the backend chooses."""
    g, w = (contiguous(code, view) for view in inputs)
    groups, (channels, own) = params["groups"], w.shape[:2]
    if not out.size:
        return
    if not g.size:
        copy(code, 0.0, out)
        return
    plan = _plan(plan_conv2d_input, out, w, params)
    weights: StridedView = w
    if isinstance(plan.walk, Correlation):
        weights = contiguous(code, _exchanged(w, groups))
    shape, address = (groups * own, channels // groups, *w.shape[2:]), code.address(weights)
    _sum(code, plan.walk, g, address, shape, "0", out, groups, plan.in_place, True)


def _exchanged(w: StridedView, groups: int) -> StridedView:
    """Weights (groups * o, own, area) seen as (groups, own, o, area)."""
    channels, own, *size = w.shape
    per, (s0, s1, _, s3) = channels // groups, w.strides
    return view_at(w, (groups, own, per, size[0] * size[1]), (s0 * per, s1, s0, s3))


def _sum(
    code: Code,
    walk: Walk,
    x: StridedView,
    w: str,
    w_shape: tuple[int, ...],
    bias: str,
    out: StridedView,
    groups: int,
    in_place: bool,
    is_gradient: bool,
) -> None:
    """A sum over taps of x, weighted by w, by the loops that the walk is for.

    Args:
        w_shape: (channels of out, channels of a group of x, rows, columns).
        is_gradient: the weights are those of the forward convolution.
    """
    own, area = w_shape[1], w_shape[2] * w_shape[3]
    zero, nbytes = walk.scratch(x.shape, out.shape, in_place)
    room = _lines(nbytes)
    arranged = not isinstance(walk, Correlation)
    channels = groups * whole_vectors(w_shape[0] // groups, out.dtype.itemsize)
    packed = _lines(channels * own * area * out.dtype.itemsize) if arranged else 0
    record = code.record(
        ConvRecord(
            **_sizes(x, out),
            groups=groups,
            in_place=int(in_place),
            packed=packed,
            room=room,
            zeroed=zero,
            table=walk.table,
            taps=walk.table.size,
            walk=walk.walk,
            walk_rows=walk.walk.shape[0],
            walk_columns=walk.walk.shape[1],
            geometry=walk.geometry,
            geometry_size=walk.geometry.size,
            is_gradient=int(is_gradient),
            group_channels=own,
            area=area,
        )
    )
    addresses = (code.address(x), w, bias, code.address(out))
    scratch = code.workspace(packed + room)
    code.call(f"conv2d_by_{walk.kernels}", real_of(out), record, *addresses, scratch)


def conv2d_weight(code: Code, inputs: list[Any], out: StridedView, params: Params) -> None:
    """Write the gradient to the weights, by the algorithm that the backend chooses."""
    x, g = (contiguous(code, view) for view in inputs)
    if not out.size:
        return
    if not g.size:
        copy(code, 0.0, out)
        return
    real, size, groups = real_of(out), out.dtype.itemsize, params["groups"]
    channels = out.shape[0]
    plan = _plan(plan_conv2d_weight, x, out, params)
    sums = _lines(channels * plan.runs.size * plan.vectors * size)
    room = _lines(plan.image + SLACK)
    record = code.record(
        ConvWeightRecord(
            **_sizes(x, g),
            groups=groups,
            kernel_height=out.shape[2],
            kernel_width=out.shape[3],
            sums=sums,
            room=room,
            zeroed=plan.image,
            runs=plan.runs,
            runs_size=plan.runs.size,
            vectors=plan.vectors,
            geometry=plan.geometry,
        )
    )
    addresses = [code.address(view) for view in (x, g, out)]
    if plan.correlation is None:
        scratch = code.workspace(sums + room)
        code.call("conv2d_weight_by_products", real, record, *addresses, scratch)
        return
    walk = plan.correlation
    together, nbytes = dots_together(walk, x.shape, g.shape)
    both = _lines(nbytes + SLACK)
    dots = code.record(
        ConvDotsRecord(
            table=walk.table,
            taps=walk.table.size,
            geometry=walk.geometry,
            geometry_size=walk.geometry.size,
            length=walk.length,
            together=together,
            room=both,
        )
    )
    scratch = code.workspace(max(both, sums + room))
    code.call("conv2d_weight_by_dots", real, record, dots, *addresses, scratch)


# -- pooling ---------------------------------------------------------------------------------------

PAIRS = ("kernel_size", "stride", "padding", "dilation")


def _is_2x2(params: Params) -> bool:
    usual = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    return all(params[name] == value for name, value in usual.items())


def pool(
    code: Code,
    name: str,
    inputs: list[Any],
    out: StridedView,
    images: StridedView,
    windows: StridedView,
    params: Params,
) -> None:
    """A pooling symbol. `images` has the full size, `windows` the pooled one."""
    if not out.size:
        return
    views = [contiguous(code, view) for view in inputs]
    n, c, h, w = images.shape
    if name in ("max_pool2d", "max_pool2d_backward") and _is_2x2(params):
        name += "_2x2"
    pairs = [value for pair in PAIRS if pair in params for value in params[pair]]
    record = code.record(PoolRecord(n * c, h, w, *windows.shape[2:], *pairs))
    addresses = [code.address(view) for view in (*views, out)]
    code.call(name, real_of(out), record, *addresses)
