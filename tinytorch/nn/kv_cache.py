"""Keys and values of the tokens so far, so that a new token is one step and not a new pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tinytorch.dtypes import DType, float32
from tinytorch.errors import ShapeError
from tinytorch.tensor import Tensor


class KVCache:
    """Room for `length` tokens, made once; a step writes its own into it and reads all before.

    A cache that grows by concatenation would copy itself at every token, and give every step a new
    shape. Its memory is 2 layers batch heads length width elements.

    Args:
        layers, batch, heads, length, width: heads are those of keys and values.
        starts: for each sequence of the batch the first position that is no padding.

    Attributes:
        used: how many positions are written.

    Source: R. Pope et al., "Efficiently Scaling Transformer Inference", 2022, section 3.3.
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        length: int,
        width: int,
        starts: list[int] | None = None,
        dtype: DType = float32,
    ) -> None:
        self.length, self.used = length, 0
        self.starts = np.zeros(batch, np.int64) if starts is None else np.asarray(starts, np.int64)
        self._arrays = np.zeros((layers, 2, batch, heads, length, width), dtype.dtype)

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return self._arrays.nbytes

    def positions(self, count: int) -> np.ndarray:
        """(batch, count): the positions of the next tokens in their own sequences.

        Raises:
            ShapeError: there is no room for so many.
        """
        if self.used + count > self.length:
            raise ShapeError(
                f"{self.used} tokens and {count} more do not fit into a cache of {self.length}: "
                f"make it longer, or cut the prompt"
            )
        places = np.arange(self.used, self.used + count) - self.starts[:, None]
        return np.asarray(np.maximum(places, 0))

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (batch, heads, count, width) behind what is there; return all of it, as views.

        `used` grows when every layer has written: call `advance`.
        """
        end = self.used + key.shape[2]
        arrays = self._arrays[layer]
        arrays[0, :, :, self.used : end] = _values(key)
        arrays[1, :, :, self.used : end] = _values(value)
        return Tensor.from_numpy(arrays[0, :, :, :end]), Tensor.from_numpy(arrays[1, :, :, :end])

    def advance(self, count: int) -> None:
        """Every layer has written `count` tokens."""
        self.used += count

    def rewind(self, used: int) -> None:
        """Forget the tokens from position `used` on.

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
