"""`Windows`: what a language model learns from, pieces of a long text and the same one token on."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.dataset import Dataset
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.tensor import Tensor


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """(input, target) windows of a text's ids: the target is the input one token later.

    In random order by a loader: `DataLoader(Windows(ids, 64), batch_size=12, shuffle=True,
    generator=0)`.

    Args:
        ids: of shape (tokens,).
        length: of a window.
        stride: from the beginning of a window to that of the next. By default the length: each
            token is a target once.

    Raises:
        ShapeError: ids is not of one dimension, or has no window.
        ValueError: a length or stride below 1.
        DTypeError: ids are no integers.

    >>> inputs, targets = Windows([5, 6, 7, 8, 9], length=2).get_batch([0, 1])
    >>> inputs.tolist(), targets.tolist()
    ([[5, 6], [7, 8]], [[6, 7], [8, 9]])
    """

    def __init__(self, ids: Any, length: int, stride: int | None = None) -> None:
        self.ids = np.asarray(ids)
        self.length = length
        self.stride = length if stride is None else stride
        if operator.index(self.length) < 1 or operator.index(self.stride) < 1:
            raise ValueError(f"length and stride must be at least 1: {length}, {stride}")
        if self.ids.ndim != 1 or self.ids.size <= length:
            raise ShapeError(
                f"windows of {length} need ids of shape (tokens,) with at least {length + 1} "
                f"tokens, got shape {self.ids.shape}"
            )
        if self.ids.dtype.kind not in "iu":
            raise DTypeError(f"windows need ids, which are integers, got {self.ids.dtype.name}")

    def __len__(self) -> int:
        return (self.ids.size - 1 - self.length) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """The window at `index`: two int64 tensors of shape (length,)."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        inputs, targets = self.get_batch([index % len(self)])
        return inputs[0], targets[0]

    def get_batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The windows at `indices`: two int64 tensors of shape (windows, length).

        Raises:
            IndexError: there is no such window; those from 0 to len(self) - 1 are.
        """
        wanted = np.asarray(indices, np.int64)
        if (wrong := (wanted < 0) | (wanted >= len(self))).any():
            raise IndexError(f"window {wanted[wrong][0]} of {len(self)}")
        starts = wanted[:, None] * self.stride
        rows = self.ids[starts + np.arange(self.length + 1)].astype(np.int64)
        return from_numpy(rows[:, :-1].copy()), from_numpy(rows[:, 1:].copy())
