"""Strided views: the bytes they cover, and how they are seen in a shape they broadcast to."""

from __future__ import annotations

from tinytorch.dtypes import Shape
from tinytorch.graph.layout import StridedView


def extent(view: StridedView) -> tuple[int, int]:
    """The bytes that a view covers: from, and up to."""
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    low = view.offset + sum(min(0, r) for r in reach)
    high = view.offset + sum(max(0, r) for r in reach) + view.dtype.itemsize
    return low, high


def disjoint_extents(a: StridedView, b: StridedView) -> bool:
    """Two views share no memory. (Inputs that are written are nobody else's.)"""
    if a.buffer != b.buffer or not (a.size and b.size):
        return True
    (a0, a1), (b0, b1) = extent(a), extent(b)
    return a1 <= b0 or b1 <= a0


def aligned_strides(view: StridedView, shape: Shape) -> tuple[int, ...]:
    """The strides with which a view is seen in a shape that it broadcasts to."""
    missing = len(shape) - len(view.shape)
    own = [
        0 if n == 1 and wide != 1 else stride
        for n, stride, wide in zip(view.shape, view.strides, shape[missing:], strict=True)
    ]
    return (0,) * missing + tuple(own)
