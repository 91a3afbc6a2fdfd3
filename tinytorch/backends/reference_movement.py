"""Movement ops as NumPy functions: views where NumPy gives one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinytorch.backends.reference_elementwise import quiet, silence
from tinytorch.dtypes import Array, DType, Shape, bfloat16, bfloat16_values, bits_of_bfloat16

Dims = tuple[int, ...]

BLOCK = 2**18  # bytes that a cache holds
LARGE_FILL, FILL_BLOCK = 2**18, 2**15  # bytes


@lru_cache(4096)
def slices(bounds: tuple[tuple[int, int, int], ...]) -> tuple[slice, ...]:
    """The slices that a slice op's bounds stand for."""
    # a negative stop means "past the first element", which a Python slice writes as None
    return tuple(
        slice(start, stop if stop >= 0 else None, step)
        if len(range(start, stop, step))
        else slice(0, 0)
        for start, stop, step in bounds
    )


def reshape(a: Array, *, shape: Shape) -> Array:
    return a.reshape(shape)


def permute(a: Array, *, dims: Dims) -> Array:
    return a.transpose(dims)


def expand(a: Array, *, shape: Shape) -> Array:
    new = len(shape) - a.ndim
    strides = [0 if a.shape[i] == 1 != n else a.strides[i] for i, n in enumerate(shape[new:])]
    return _read_only_view(a, shape, (*(0,) * new, *strides))


def _read_only_view(a: Array, shape: Shape, strides: tuple[int, ...]) -> Array:
    """`as_strided`, whose Python takes many times as long as the view."""
    if not a.flags.forc:  # in C or Fortran order
        return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=False)
    memory = a if a.flags.c_contiguous else a.T
    view: Array = np.ndarray(shape, a.dtype, memory, 0, strides)
    view.setflags(write=False)
    return view


def view_maker(
    shape: Shape, strides: Sequence[int], start: int, otherwise: Callable[..., Array]
) -> Callable[..., Array]:
    """A function that makes read-only views of arrays in C order, with these strides and from so
    many bytes on; of other arrays, `otherwise` makes them."""

    def view_of(a: Array, **params: Any) -> Array:
        if not a.flags.c_contiguous:
            return otherwise(a, **params)
        view: Array = np.ndarray(shape, a.dtype, a, start, strides)
        view.setflags(write=False)
        return view

    return view_of


def slice_(a: Array, *, bounds: tuple[tuple[int, int, int], ...]) -> Array:
    key: Any = (*slices(bounds), ...)
    return a[key]


def unslice(a: Array, *, shape: Shape, bounds: tuple[tuple[int, int, int], ...]) -> Array:
    """Zeros of `shape` in which `slice` with the same bounds finds `a`."""
    out = np.zeros(shape, a.dtype)
    out[(*slices(bounds), ...)] = a  # type: ignore[index]
    return out


def unfold(a: Array, *, size: int, step: int) -> Array:
    *before, each = a.strides
    count = (a.shape[-1] - size) // step + 1
    return _read_only_view(a, (*a.shape[:-1], count, size), (*before, step * each, each))


@quiet
def fold(a: Array, *, length: int, step: int) -> Array:
    """Windows added back to where `unfold` took them.

    The result is stored in the order of the windows, so that both are walked along memory.
    """
    count, size = a.shape[-2:]
    part = a[..., 0, :] if count <= size else a[..., 0]
    out = np.empty_like(part, shape=(*a.shape[:-2], length))
    fill_array(out, 0)
    # whatever the blocks, what meets at one place is added in the order of the windows
    for windows, sums in [(a, out)] if a.nbytes <= BLOCK else _blocks(a, out, step):
        last = windows.shape[-2] - 1
        if last < size:
            for i in range(last + 1):
                sums[..., i * step : i * step + size] += windows[..., i, :]
        else:
            for j in reversed(range(size)):
                sums[..., j : j + last * step + 1 : step] += windows[..., j]
    return out


def _blocks(a: Array, out: Array, step: int) -> Iterator[tuple[Array, Array]]:
    """Parts of windows (..., count, size) that a cache holds, and to what they are added."""
    axis = max(range(a.ndim - 1), key=lambda d: abs(a.strides[d]))
    rows, whole = max(1, BLOCK * a.shape[axis] // a.nbytes), (slice(None),) * axis
    for i in range(0, a.shape[axis], rows):
        some = (*whole, slice(i, i + rows))
        yield a[some], out[some] if axis < a.ndim - 2 else out[..., i * step :]


def cat(*arrays: Array, dim: int) -> Array:
    """In row-major order, as PyTorch's; NumPy keeps the order of parts that have another one."""
    return np.ascontiguousarray(np.concatenate(arrays, axis=dim))


def detach(a: Array) -> Array:
    return a.view()


def copy(a: Array) -> Array:
    return np.array(a, order="C", copy=True)


def cast(a: Array, *, dtype: DType) -> Array:
    if a.dtype == bfloat16.dtype:  # no other dtype of ours is stored so
        a = np.asarray(bfloat16_values(a))
    return bits_of_bfloat16(a) if dtype is bfloat16 else silence.run(a.astype, dtype.dtype)


cast.gives_arrays = True  # type: ignore[attr-defined]


def fill_array(out: Array, value: Any) -> None:
    """The same number everywhere. A large array takes copies of its first bytes, which NumPy makes
    by whole vectors, where its own `fill` stores one number after the other."""
    if out.nbytes < LARGE_FILL or not out.flags.c_contiguous:
        out.fill(value)
        return
    flat = out.reshape(-1)
    first = flat[: FILL_BLOCK // out.itemsize]
    first.fill(value)
    if not first[:1].tobytes().strip(b"\0"):
        flat.view(np.uint8).fill(0)
        return
    whole = flat.size // first.size * first.size
    flat[:whole].reshape(-1, first.size)[1:] = first
    flat[whole:] = first[: flat.size - whole]
