"""`StridedView`: where a value is stored; and what an op that only moves does to that.

A view op computes nothing. Its result is another view of the same buffer: another offset, other
strides. The rules here say which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod

import numpy as np

from tinytorch.backends import reference
from tinytorch.dtypes import Array, DType, Shape, TensorMeta
from tinytorch.graph.ir import GraphError
from tinytorch.op import Op, Params
from tinytorch.shapes import contiguous_strides


class Memory(Enum):
    """The owner of a buffer."""

    INPUT = "input"  # the caller: a parameter, a batch; buffer i is input i
    CONSTANT = "constant"  # the schedule, for good
    ARENA = "arena"  # the compiled function, from call to call; there is one
    OWN = "own"  # nobody yet: each call allocates it, and may give it away


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory: whose it is, and its number among those."""

    memory: Memory
    index: int = 0

    def __repr__(self) -> str:
        return f"{self.memory.value}{'' if self.memory is Memory.ARENA else self.index}"


@dataclass(frozen=True, slots=True)
class StridedView:
    """The storage of a value.

    Attributes:
        buffer: the memory.
        offset: of the first element in it, in bytes.
        shape: of the value.
        strides: for each dimension the bytes from one element to the next; 0 where one element is
            seen many times, negative where the view runs backwards.
        dtype: of the elements.
    """

    buffer: Buffer
    offset: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """The elements follow each other, the last dimension fastest."""
        expected = self.dtype.itemsize
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != expected and self.size:
                return False
            expected *= n
        return True

    def __repr__(self) -> str:
        layout = "" if self.is_contiguous else f" strides {list(self.strides)}"
        return f"{self.buffer}+{self.offset}: {self.dtype.name}{list(self.shape)}{layout}"


def contiguous_view(buffer: Buffer, offset: int, meta: TensorMeta) -> StridedView:
    """The view of a value in C order."""
    strides = contiguous_strides(meta.shape, meta.dtype.itemsize)
    return StridedView(buffer, offset, meta.shape, strides, meta.dtype)


# -- the strided view that a view op makes ---------------------------------------------------------

View = Callable[[StridedView, Params], StridedView | None]


def view_of(op: Op, source: StridedView, params: Params) -> StridedView | None:
    """The layout of a view op's result; None if no strides can say it, and it must be copied.

    Raises:
        GraphError: an op that has no rule here and no NumPy kernel; the message says where to add
            one.
    """
    rule = _VIEWS.get(op.name)
    return rule(source, params) if rule else _view_of_numpy(op, source, params)


def has_layout(op: Op) -> bool:
    """Whether `view_of` knows this view op; a user's own op may have neither rule nor kernel."""
    return op.name in _VIEWS or reference.find_kernel(op) is not None


def _view_of_numpy(op: Op, source: StridedView, params: Params) -> StridedView | None:
    """What NumPy's kernel makes of an array with this layout, whose values nobody reads."""
    kernel = reference.find_kernel(op)
    if kernel is None:
        raise GraphError(
            f"the layout of the view {op.name} is not known: add its rule to _VIEWS in "
            f"tinytorch/graph/layout.py, or its NumPy kernel to tinytorch/backends/reference.py"
        )
    reach = [s * max(n - 1, 0) for n, s in zip(source.shape, source.strides, strict=True)]
    before = -sum(r for r in reach if r < 0)
    memory = np.empty(before + sum(r for r in reach if r > 0) + source.dtype.itemsize, np.uint8)
    array: Array = np.ndarray(source.shape, source.dtype.dtype, memory, before, source.strides)
    view = kernel(array, **params)
    if view.size and not np.may_share_memory(view, memory):
        return None
    moved = view.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    return StridedView(source.buffer, source.offset + moved, view.shape, view.strides, source.dtype)


def _detach(source: StridedView, params: Params) -> StridedView:
    return source


def _permute(source: StridedView, params: Params) -> StridedView:
    dims: Sequence[int] = params["dims"]
    shape, strides = (tuple(v[d] for d in dims) for v in (source.shape, source.strides))
    return replace(source, shape=shape, strides=strides)


def _expand(source: StridedView, params: Params) -> StridedView:
    shape: Shape = params["shape"]
    front = len(shape) - len(source.shape)
    kept = [
        0 if n != wide else stride
        for n, stride, wide in zip(source.shape, source.strides, shape[front:], strict=True)
    ]
    return replace(source, shape=shape, strides=(0,) * front + tuple(kept))


def _slice(source: StridedView, params: Params) -> StridedView:
    bounds: Sequence[tuple[int, int, int]] = params["bounds"]
    shape = tuple(len(range(*bound)) for bound in bounds)
    starts = [b[0] * s for b, s in zip(bounds, source.strides, strict=True)]
    strides = tuple(b[2] * s for b, s in zip(bounds, source.strides, strict=True))
    offset = source.offset + (sum(starts) if prod(shape) else 0)
    return replace(source, offset=offset, shape=shape, strides=strides)


def _unfold(source: StridedView, params: Params) -> StridedView:
    size, step = params["size"], params["step"]
    *front, last = source.shape
    shape = (*front, (last - size) // step + 1, size)
    stride = source.strides[-1]
    return replace(source, shape=shape, strides=(*source.strides[:-1], stride * step, stride))


def _reshape(source: StridedView, params: Params) -> StridedView | None:
    shape: Shape = params["shape"]
    if not source.size or source.is_contiguous:
        return replace(
            source, shape=shape, strides=contiguous_strides(shape, source.dtype.itemsize)
        )
    strides = _reshaped_strides(source, shape)
    return None if strides is None else replace(source, shape=shape, strides=strides)


def _reshaped_strides(source: StridedView, shape: Shape) -> tuple[int, ...] | None:
    """Strides with which the elements are seen in `shape` in the same order, if there are.

    The old dimensions fall into runs through which memory is walked with one stride. Each run must
    be split up by some of the new dimensions exactly.
    """
    runs: list[tuple[int, int]] = []  # elements, and the stride of the innermost
    for n, stride in zip(source.shape, source.strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * stride:
            runs[-1] = (runs[-1][0] * n, stride)
        else:
            runs.append((n, stride))
    strides: list[int] = []
    left, stride = runs.pop() if runs else (1, source.dtype.itemsize)
    for n in reversed(shape):
        if left == 1 and n != 1 and runs:
            left, stride = runs.pop()
        if left % n:
            return None
        strides.append(stride)
        left, stride = left // n, stride * n
    return tuple(reversed(strides))


_VIEWS: dict[str, View] = {
    "detach": _detach,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "unfold": _unfold,
    "reshape": _reshape,
}
