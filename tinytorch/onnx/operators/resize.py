"""ONNX's Resize: every axis is resized on its own, by a matrix of interpolation weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.functions import elementwise as e, indexing, linalg, movement as m
from tinytorch.onnx.operators.movement import constant
from tinytorch.onnx.operators.registry import ints, operator, refuse
from tinytorch.tensor import Tensor


@operator("Resize", since=11, static=["roi", "scales", "sizes"])
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:
    """Nearest, linear or cubic interpolation at coordinates of the input.

    Source: the reference implementation of ONNX operator set 19.
    """
    resized = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    factors, lengths = _sizes(x, resized, scales, sizes, keep_aspect_ratio_policy)
    outside = constant(np.zeros((1,) * x.ndim, np.bool_))
    y = x
    for i, axis in enumerate(resized):
        length = x.shape[axis]
        region = (0.0, 1.0)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            region = (float(roi[i]), float(roi[i + len(resized)]))
        elif length == lengths[i] and factors[i] == 1.0:
            continue
        at = _coordinates(length, lengths[i], factors[i], coordinate_transformation_mode, region)
        if mode == "nearest":
            y = indexing.index_select(y, axis, constant(_nearest(at, length, nearest_mode)))
        else:
            scale = min(factors[i], 1.0) if antialias else 1.0
            weights = _weights(at, length, mode, scale, cubic_coeff_a, bool(exclude_outside))
            y = _apply(y, axis, weights)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            beyond = (at < 0) | (at > length - 1)
            outside = outside | constant(beyond.reshape([-1 if a == axis else 1
                                                         for a in range(x.ndim)]))  # fmt: skip
    if coordinate_transformation_mode == "tf_crop_and_resize":
        y = e.where(outside, extrapolation_value, y)
    return y


@operator("Upsample", since=9, static=["scales"])
def upsample(x: Tensor, scales: Any, *, mode: str = "nearest") -> Any:
    """Resize, as it was called before operator set 10."""
    way = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(x, scales=scales, mode=mode, **way)


def _sizes(
    x: Tensor, axes: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    """For each axis the factor, and the length of the result."""
    if sizes is None or np.size(sizes) == 0:
        factors = [float(s) for s in np.ravel(scales)]
        return factors, [math.floor(f * x.shape[a]) for f, a in zip(factors, axes, strict=True)]
    lengths = list(ints(np.asarray(sizes)))
    factors = [n / x.shape[a] for n, a in zip(lengths, axes, strict=True)]
    if policy != "stretch":
        factor = min(factors) if policy == "not_larger" else max(factors)
        factors = [factor] * len(axes)
        lengths = [math.floor(factor * x.shape[a] + 0.5) for a in axes]
    return factors, lengths


def _coordinates(
    length: int, wanted: int, factor: float, mode: str, region: tuple[float, float]
) -> Array:
    """Where in the input the elements of the result are."""
    i = np.arange(wanted, dtype=np.float64)
    exact = factor * length
    half = (i + 0.5) / factor - 0.5
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if exact != 1 else np.full(wanted, -0.5)
    if mode == "half_pixel_symmetric":
        return half + length / 2 * (1 - wanted / exact)
    if mode == "asymmetric":
        return i / factor
    if mode == "align_corners":
        return i * (length - 1) / (exact - 1) if exact != 1 else np.zeros(wanted)
    if mode == "tf_crop_and_resize":
        start, end = region
        span = (end - start) * (length - 1)
        steps = i * span / (exact - 1) if exact != 1 else np.full(wanted, span / 2)
        return np.asarray(steps + start * (length - 1))
    raise refuse(f"Resize with coordinate_transformation_mode {mode!r}")


def _nearest(at: Array, length: int, mode: str) -> Array:
    rounded = {
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
        "floor": np.floor(at),
        "ceil": np.ceil(at),
    }
    if mode not in rounded:
        raise refuse(f"Resize with nearest_mode {mode!r}")
    return np.clip(rounded[mode], 0, length - 1).astype(np.int64)


def _weights(
    at: Array, length: int, mode: str, scale: float, a: float, exclude_outside: bool
) -> Array:
    """(results, inputs): what each input counts for; the input goes on beyond its edges."""
    reach = {"linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        raise refuse(f"Resize with mode {mode!r}")
    half = -(math.floor(-reach / scale) + 1) + 1  # neighbours on each side
    weights = np.zeros((len(at), length))
    for row, x in zip(weights, at, strict=True):
        near = np.arange(math.ceil(x) - half, math.ceil(x) + half)
        distance = np.abs(near - x) * scale
        counts = np.clip(1 - distance, 0, 1) if mode == "linear" else _cubic(distance, a)
        if exclude_outside:
            counts = np.where((near >= 0) & (near < length), counts, 0.0)
        np.add.at(row, np.clip(near, 0, length - 1), counts / counts.sum())
    return weights


def _cubic(x: Array, a: float) -> Array:
    """The kernel of cubic convolution, at distances x.

    Source: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _apply(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Weighted sums along an axis."""
    if not x.dtype.is_floating_point:
        raise refuse(f"Resize of {x.dtype.name} by interpolation")
    matrix = constant(np.ascontiguousarray(weights.T.astype(x.dtype.dtype)))
    return m.transpose(linalg.matmul(m.transpose(x, axis, -1), matrix), axis, -1)
