"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinytorch.creation import from_numpy, full
from tinytorch.dtypes import Array
from tinytorch.errors import ShapeError
from tinytorch.functions.indexing import take_rows
from tinytorch.functions.movement import cat, pad as pad_with, reshape, stack, transpose
from tinytorch.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences without padding: first all first elements, then all second ones, and so on.

    The longest sequence is first. `pack_padded_sequence` and `pack_sequence` make it, recurrent
    layers take it and give it.

    Attributes:
        data: (sum of lengths, ...)
        batch_sizes: (longest,), int64: how many sequences have an element at each position.
        sorted_indices: where in the batch each packed sequence was; None if in this order.
        unsorted_indices: the inverse; None likewise.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequence with its data converted, as by `Tensor.to`."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """The sequence itself: there is one device."""
        return self


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Take the padding out of a batch.

    Args:
        input: (longest, n, ...), or (n, longest, ...) with batch_first.
        lengths: of the n sequences, each at least 1: a list or a tensor.
        enforce_sorted: the lengths must fall from first to last; else the batch is sorted.

    Raises:
        ValueError: lengths that do not fit, or are not sorted although they are to be.
    """
    sizes = _lengths(lengths)
    x = transpose(input, 0, 1) if batch_first else input
    if sizes.shape != x.shape[1:2] or sizes.min(initial=1) < 1 or sizes.max(initial=0) > x.shape[0]:
        raise ValueError(
            f"pack_padded_sequence: lengths {sizes.tolist()} must be {x.shape[1]} numbers from 1 "
            f"to {x.shape[0]}, for input {input.shape} (batch_first={batch_first})"
        )
    order = np.argsort(-sizes, kind="stable")
    if enforce_sorted and (np.diff(sizes) > 0).any():
        raise ValueError(
            f"pack_padded_sequence: lengths {sizes.tolist()} are not sorted in decreasing order; "
            f"pass enforce_sorted=False, and pad_packed_sequence puts the batch back in order"
        )
    batch_sizes = (sizes[None] > np.arange(sizes.max(initial=0))[:, None]).sum(1)
    flat = reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    index = np.concatenate(
        [t * x.shape[1] + order[:count] for t, count in enumerate(batch_sizes)] or [order]
    )
    data = take_rows(flat, from_numpy(index.astype(np.int64)))
    counts = from_numpy(batch_sizes.astype(np.int64))
    if enforce_sorted:
        return PackedSequence(data, counts)
    return PackedSequence(data, counts, from_numpy(order), from_numpy(_inverse(order)))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch, in its first order, and the lengths.

    Args:
        padding_value: the value after the end of a sequence.
        total_length: pad to it; at least the longest length.

    Raises:
        ValueError: total_length is too small.
    """
    counts = np.asarray(sequence.batch_sizes)
    longest = len(counts)
    if total_length is not None and total_length < longest:
        raise ValueError(
            f"pad_packed_sequence: total_length {total_length} is below the longest, {longest}"
        )
    n = int(counts[0]) if longest else 0
    lengths = (counts[:, None] > np.arange(n)).sum(0)
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    inside = counts[:, None] > np.arange(n)
    index = np.where(inside, starts[:, None] + np.arange(n), len(sequence.data))
    rest = sequence.data.shape[1:]
    filler = full((1, *rest), padding_value, dtype=sequence.data.dtype)
    if sequence.unsorted_indices is not None:
        back = np.asarray(sequence.unsorted_indices)
        index, lengths = index[:, back], lengths[back]
    if total_length is not None and total_length > longest:
        missing = np.full((total_length - longest, n), len(sequence.data))
        index = np.concatenate([index, missing])
    if batch_first:
        index = index.T
    padded = take_rows(cat([sequence.data, filler]), from_numpy(index.astype(np.int64)))
    return padded, from_numpy(lengths.astype(np.int64))


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (length, ...) as one batch, (longest, n, ...) or with batch_first (n, longest, ...).

    Raises:
        ValueError: there are none, or another side.
        ShapeError: they differ in more than their length.
    """
    items = list(sequences)
    if not items or padding_side not in ("left", "right"):
        raise ValueError(
            f"pad_sequence: {len(items)} sequences with padding_side={padding_side!r}; there must "
            f"be one, and the side be 'left' or 'right'"
        )
    longest = max(len(s) for s in items)
    if len({s.shape[1:] for s in items}) > 1:
        raise ShapeError(f"pad_sequence: shapes {[s.shape for s in items]} differ behind the first")
    padded = []
    for s in items:
        more = longest - len(s)
        border = (0, 0) * (s.ndim - 1) + ((0, more) if padding_side == "right" else (more, 0))
        padded.append(pad_with(s, border, value=padding_value) if more else s)
    return stack(padded, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors (length, ...) as one packed sequence; arguments as for `pack_padded_sequence`."""
    lengths = [len(s) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of `pad_sequence`."""
    x = padded_sequences if batch_first else transpose(padded_sequences, 0, 1)
    return [x[i, :length] for i, length in enumerate(_lengths(lengths).tolist())]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _lengths(lengths: Any) -> Array:
    array: Array = np.asarray([int(n) for n in lengths], np.int64)
    return array


def _inverse(order: Array) -> Array:
    return np.argsort(order, kind="stable")
