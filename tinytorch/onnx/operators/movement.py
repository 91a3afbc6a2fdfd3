"""ONNX operators that move elements, and those that speak of shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch import creation
from tinytorch.dispatch import wrap
from tinytorch.dtypes import DEFAULT_INT, bool_, meta_of_array
from tinytorch.functions import diagonals, elementwise as e, indexing, movement as m
from tinytorch.onnx.operators.registry import ints, operator, refuse
from tinytorch.tensor import Tensor


def constant(values: Any) -> Tensor:
    """A tensor of values that are known."""
    array = np.asarray(values)
    return wrap(array, meta_of_array(array))


@operator("Reshape", since=5, static=["shape"])
def reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Tensor:
    """A 0 stands for the size that the dimension had."""
    sizes = [
        x.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(ints(shape))
    ]
    return m.reshape(x, tuple(sizes))


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis % x.ndim if axis < 0 else axis
    return m.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def transpose(x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    return m.permute(x, perm or tuple(reversed(range(x.ndim))))


@operator("Squeeze", static=["axes"])
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    return m.squeeze(x, None if axes is None else ints(axes))


@operator("Unsqueeze", static=["axes"])
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    chosen = ints(axes)
    ndim = x.ndim + len(chosen)
    for dim in sorted(d % ndim for d in chosen):
        x = m.unsqueeze(x, dim)
    return x


@operator("Concat")
def concat(*tensors: Tensor, axis: int) -> Tensor:
    return m.cat(tensors, axis)


@operator("Split", static=["split"])
def split(x: Tensor, split: Any = None, *, num_outputs: int, axis: int = 0) -> tuple[Tensor, ...]:
    if split is not None:
        return m.split(x, ints(split), axis)
    size = math.ceil(x.shape[axis] / num_outputs)
    rest = x.shape[axis] - size * (num_outputs - 1)
    return m.split(x, [size] * (num_outputs - 1) + [rest], axis)


@operator("Slice", since=10, static=["starts", "ends", "axes", "steps"])
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    dims = range(len(starts)) if axes is None else ints(axes)
    strides = (1,) * len(starts) if steps is None else ints(steps)
    for dim, start, end, step in zip(dims, ints(starts), ints(ends), strides, strict=True):
        extent = x.shape[dim]
        if step < 0:  # the same elements, counted from the other end
            x, start, end, step = m.flip(x, dim), *_mirrored(start, end, extent), -step
        chosen: list[Any] = [slice(None)] * x.ndim
        chosen[dim] = slice(start, end, step)
        x = x[tuple(chosen)]
    return x


def _mirrored(start: int, end: int, extent: int) -> tuple[int, int]:
    """Bounds of a slice with a negative step, in the flipped dimension."""
    first = min(start if start >= 0 else start + extent, extent - 1)
    last = max(end if end >= 0 else end + extent, -1)
    return max(extent - 1 - first, 0), extent - 1 - last


@operator("Expand", static=["shape"])
def expand(x: Tensor, shape: Any) -> Tensor:
    """To the shape that x and `shape` broadcast to."""
    return m.expand(x, np.broadcast_shapes(x.shape, ints(shape)))


@operator("Tile", static=["repeats"])
def tile(x: Tensor, repeats: Any) -> Tensor:
    return m.repeat(x, ints(repeats))


@operator("Pad", since=11, static=["pads", "axes"])
def pad(
    x: Tensor,
    pads: Any,
    constant_value: Tensor | None = None,
    axes: Any = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """`pads` has what comes before each axis, then what comes after; negative ones cut off."""
    amounts, dims = ints(pads), range(x.ndim) if axes is None else ints(axes)
    half = len(amounts) // 2
    inside = creation.ones(x.shape, dtype=bool_)
    for dim, before, after in zip(dims, amounts[:half], amounts[half:], strict=True):
        x = _pad_one(x, dim % x.ndim, before, after, mode)
        inside = _pad_one(inside, dim % x.ndim, before, after, mode)
    if constant_value is None or mode != "constant":
        return x
    return e.where(inside, x, m.reshape(constant_value, ()))


def _pad_one(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    extent = x.shape[dim]
    x = m.narrow(x, dim, max(-before, 0), extent - max(-before, 0) - max(-after, 0))
    before, after, extent = max(before, 0), max(after, 0), x.shape[dim]
    if mode == "constant":
        amounts = (0, 0) * (x.ndim - 1 - dim) + (before, after)
        return m.pad(x, amounts)
    positions = np.arange(-before, extent + after)
    if mode == "edge":
        positions = positions.clip(0, extent - 1)
    elif mode == "wrap":
        positions = positions % extent
    elif mode == "reflect":
        period = max(2 * (extent - 1), 1)
        positions = (extent - 1) - np.abs(positions % period - (extent - 1))
    else:
        raise refuse(f"Pad with mode {mode!r}")
    return indexing.index_select(x, dim, constant(positions))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        blocks = m.permute(m.reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        blocks = m.permute(m.reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return m.reshape(blocks, (n, c // b**2, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    blocks = m.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return m.reshape(m.permute(blocks, order), (n, c * b**2, h // b, w // b))


@operator("Trilu", static=["k"])
def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else ints(k)[0]
    return diagonals.triu(x, diagonal) if upper else diagonals.tril(x, diagonal)


# -- shapes, and tensors made of them --------------------------------------------------------------


@operator("Shape", of_shapes=True)
def shape_(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return constant(np.array(x.shape[start:end], np.int64))


@operator("Size", of_shapes=True)
def size(x: Tensor) -> Tensor:
    return constant(np.array(x.numel(), np.int64))


@operator("Constant")
def constant_(
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
) -> Tensor:
    if value is not None:
        return constant(value)
    if value_float is not None or value_floats is not None:
        given = value_float if value_floats is None else value_floats
        return constant(np.array(given, np.float32))
    if value_int is not None or value_ints is not None:
        return constant(np.array(value_int if value_ints is None else value_ints, np.int64))
    raise refuse("a Constant that is neither tensor, float nor int")


@operator("ConstantOfShape", static=["shape"])
def constant_of_shape(shape: Any, *, value: Any = None) -> Tensor:
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return constant(np.full(ints(shape), fill.reshape(()), fill.dtype))


@operator("Range", static=["start", "limit", "delta"])
def range_(start: Any, limit: Any, delta: Any) -> Tensor:
    values = np.arange(*(np.asarray(v).reshape(()).item() for v in (start, limit, delta)))
    return constant(values.astype(np.asarray(start).dtype))


@operator("EyeLike", of_shapes=True)
def eye_like(x: Tensor, *, dtype: Any = None, k: int = 0) -> Tensor:
    kind = x.dtype if dtype is None else dtype
    return constant(np.eye(x.shape[0], x.shape[1], k=k, dtype=kind.dtype))


@operator("OneHot", static=["depth"])
def one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """values[1] where the index points, values[0] elsewhere; nowhere for an index out of range."""
    (count,) = ints(depth)
    indices = indices.to(DEFAULT_INT)
    indices = e.where(e.lt(indices, 0), indices + count, indices)
    ndim = indices.ndim + 1
    classes = [1] * ndim
    classes[axis] = count
    hot = e.eq(m.unsqueeze(indices, axis % ndim), m.reshape(creation.arange(count), tuple(classes)))
    return e.where(hot, values[1], values[0])
