"""ATen's operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch import creation
from tinytorch.dtypes import int64
from tinytorch.functions import indexing, movement as m
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor

aten("permute")(m.permute)
aten("transpose.int")(m.transpose)
aten("t")(m.t)
aten("unsqueeze")(m.unsqueeze)
aten("squeeze", "squeeze.dim", "squeeze.dims")(m.squeeze)
aten("flip")(m.flip)
aten("repeat")(m.repeat)
aten("unfold")(m.unfold)


@aten("view", "reshape", "_unsafe_view")
def view(a: Tensor, size: Sequence[int]) -> Tensor:
    return m.reshape(a, tuple(size))


@aten("alias", "lift_fresh_copy")
def alias(a: Tensor) -> Tensor:
    return a


@aten("detach")
def detach(a: Tensor) -> Tensor:
    return a.detach()


@aten("clone", "contiguous")
def clone(a: Tensor, *, memory_format: Any = None) -> Tensor:
    return a.clone()


@aten("as_strided")
def as_strided(
    a: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A strided view of a tensor whose memory is its elements in order; others are refused."""
    index = creation.full((), storage_offset or 0, dtype=int64)
    for extent, step in zip(size, stride, strict=True):
        index = m.unsqueeze(index, -1) + creation.arange(extent) * step
    return indexing.take_rows(m.reshape(a, (-1,)), index)


@aten("expand")
def expand(a: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    return m.expand(a, tuple(size))


@aten("slice.Tensor")
def slice_(
    a: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    dim %= a.ndim
    return a[(slice(None),) * dim + (slice(start, end, step),)]


@aten("select.int")
def select(a: Tensor, dim: int, index: int) -> Tensor:
    dim %= a.ndim
    return a[(slice(None),) * dim + (index,)]


@aten("cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    # PyTorch allows an empty vector beside anything
    kept = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    return m.cat(kept, dim)


@aten("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return m.stack(tensors, dim)


@aten("split_with_sizes")
def split_with_sizes(a: Tensor, sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    return m.split(a, list(sizes), dim)


@aten("split.Tensor")
def split(a: Tensor, size: int, dim: int = 0) -> tuple[Tensor, ...]:
    return m.split(a, size, dim)


@aten("constant_pad_nd")
def constant_pad_nd(a: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Negative amounts cut off."""
    for i, dim in enumerate(range(a.ndim - 1, a.ndim - 1 - len(pad) // 2, -1)):
        before, after = pad[2 * i : 2 * i + 2]
        cut = max(-before, 0), max(-after, 0)
        if any(cut):
            a = m.narrow(a, dim, cut[0], a.shape[dim] - sum(cut))
    fill = value if a.dtype.is_floating_point else int(value)
    return m.pad(a, [max(amount, 0) for amount in pad], value=fill)


@aten("_assert_tensor_metadata")
def assert_tensor_metadata(a: Tensor, *expected: Any, **named: Any) -> None:
    """A check that export puts into graphs; here shapes and dtypes are known before a run."""
