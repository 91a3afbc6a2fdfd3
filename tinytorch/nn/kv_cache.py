"""Keys and values of the tokens so far, so that a new token is one step and not a new pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, write
from tinytorch.dtypes import DType, float32
from tinytorch.errors import ShapeError
from tinytorch.tensor import Tensor


class KVCache:
    """Room for `length` tokens, made once; a step writes its own into it and reads all before.

    A cache that grows by concatenation would copy itself at every token, and give every step a new
    shape. Its memory is 2 batch heads length width elements in each layer.

    Args:
        heads: of keys and values, for each layer.
        batch, length, width: sizes.
        starts: for each sequence of the batch the first position that is no padding.

    Attributes:
        used: how many positions are written.

    Source: R. Pope et al., "Efficiently Scaling Transformer Inference", 2022, section 3.3.
    """

    def __init__(
        self,
        heads: Sequence[int],
        batch: int,
        length: int,
        width: int,
        starts: list[int] | None = None,
        dtype: DType = float32,
    ) -> None:
        self.length, self.used = length, 0
        self.starts = np.zeros(batch, np.int64) if starts is None else np.asarray(starts, np.int64)
        shapes = [(batch, n, length, width) for n in heads]
        self.keys, self.values = (
            [Tensor.from_numpy(np.zeros(shape, dtype.dtype)) for shape in shapes] for _ in "kv"
        )

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))

    def reach(self, count: int) -> int:
        """How many tokens the longest sequence has with the next ones.

        Raises:
            ShapeError: there is no room for so many.
        """
        if self.used + count > self.length:
            raise ShapeError(
                f"{self.used} tokens and {count} more do not fit into a cache of {self.length}: "
                f"make it longer, or cut the prompt"
            )
        return int(self.used + count - self.starts.min(initial=self.used))

    def positions(self, count: int) -> Tensor:
        """(batch, count): the positions of the next tokens in their own sequences."""
        places = np.arange(self.used, self.used + count) - self.starts[:, None]
        return Tensor.from_numpy(np.maximum(places, 0))

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (batch, heads, count, width) behind what is there; return all of it, as views.

        `used` grows when every layer has written: call `advance`.
        """
        end = self.used + key.shape[2]
        keys, values = self.keys[layer].numpy(), self.values[layer].numpy()
        keys[:, :, self.used : end] = _values(key)
        values[:, :, self.used : end] = _values(value)
        return Tensor.from_numpy(keys[:, :, :end]), Tensor.from_numpy(values[:, :, :end])

    def advance(self, count: int) -> None:
        """Count `count` tokens as written, once every layer has written them."""
        self.used += count

    def rewind(self, used: int) -> None:
        """Drop the tokens from position `used` on.

        Raises:
            ValueError: so many were never written.
        """
        if not 0 <= used <= self.used:
            raise ValueError(f"a cache of {self.used} tokens cannot go back to {used}")
        self.used = used

    def mask(self, count: int, window: int | None = None) -> Tensor | None:
        """(batch, 1, count, used + count), true where one of the next tokens may look.

        None if they may look everywhere: a single token, without padding or window.
        """
        if count == 1 and not self.starts.any() and window is None:
            return None
        is_token = np.arange(self.used + count) >= self.starts[:, None, None]
        return Tensor.from_numpy(_seen(self.used, count, window) & is_token)[:, None]


class CacheAt:
    """A cache whose next position is a tensor: one trace of a step serves all positions.

    What is read is all of the cache, and a mask that hides what is not written yet; attention
    leaves out the blocks that a mask hides. What is written is a slice, in place.

    Args:
        cache: with room for the tokens; `used` is neither looked at nor changed.
        position: 0-d int64, the number of tokens that it has.
    """

    def __init__(self, cache: KVCache, position: Tensor) -> None:
        self.cache, self.position = cache, position

    def _places(self, count: int) -> Tensor:
        return Tensor.from_numpy(np.arange(count)) + self.position

    def positions(self, count: int) -> Tensor:
        """As of a `KVCache`."""
        places = self._places(count) - Tensor.from_numpy(self.cache.starts[:, None])
        return apply(ops.maximum, places, 0)

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (batch, heads, count, width) where the position says; return all of the cache."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        write(keys, ops.dynamic_update_slice, keys, key, self.position, dim=2)
        write(values, ops.dynamic_update_slice, values, value, self.position, dim=2)
        return keys, values

    def advance(self, count: int) -> None:
        """Nothing: the position is the caller's."""

    def mask(self, count: int, window: int | None = None) -> Tensor:
        """(batch or 1, 1, count, length), true where one of the next tokens may look."""
        keys = Tensor.from_numpy(np.arange(self.cache.length))
        queries = self._places(count).unsqueeze(-1)
        shown = apply(ops.le, keys, queries)
        if window is not None:
            shown = apply(ops.logical_and, shown, apply(ops.lt, queries - window, keys))
        if self.cache.starts.any():
            first = Tensor.from_numpy(self.cache.starts[:, None, None, None])
            return apply(ops.logical_and, shown, apply(ops.le, first, keys))
        return shown[None, None]


def split_heads(parts: Tensor, sizes: Sequence[int], *, as_ops: bool) -> list[Tensor]:
    """(batch, length, sum of sizes, width) as tensors (batch, size, length, width), views of it.

    Args:
        as_ops: so that gradients go through and a trace sees them. What is cached has no gradient,
            and for one token the ops would take as long as its attention.
    """
    if as_ops:
        return list(parts.transpose(1, 2).split(list(sizes), 1))
    array, ends = _values(parts).swapaxes(1, 2), accumulate(sizes)
    return [Tensor.from_numpy(array[:, end - n : end]) for n, end in zip(sizes, ends, strict=True)]


def _values(x: Tensor) -> np.ndarray:
    return (x.detach() if x.requires_grad else x).numpy()


def causal_mask(length: int, window: int | None) -> Tensor | None:
    """(length, length), true where a token may look; None where all before it may be seen."""
    if window is None or window >= length:
        return None
    return Tensor.from_numpy(_seen(0, length, window))


def _seen(used: int, count: int, window: int | None) -> np.ndarray:
    """(count, used + count): which tokens each of the last `count` sees, itself included."""
    query, keys = np.arange(used, used + count)[:, None], np.arange(used + count)[None]
    return np.asarray((keys <= query) & (True if window is None else keys > query - window))
