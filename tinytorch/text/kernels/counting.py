"""How often each piece of a text occurs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.text.classes import class_table
from tinytorch.text.kernels.scan import piece_end
from tinytorch.text.kernels.tables import SHORT, find_piece, piece_key, rehash_pieces
from tinytorch.text.kernels.words import PADDING, kernel, padded
from tinytorch.text.splitting import get_splitting

ROWS = 1 << 17  # of the table, at first


class Pieces(NamedTuple):
    """Pieces, each once.

    Attributes:
        text: their bytes, one after another, and `PADDING` more.
        ends: 0, and where each ends.
        times: how often each occurs.
    """

    text: Array
    ends: Array
    times: Array


@kernel
def count_pieces(
    text: Array,
    i: int,
    length: int,
    classes: Array,
    words: bool,
    end: bool,
    table: Array,
    pool: Array,
    ends: Array,
    state: Array,
) -> int:
    """Count the pieces from i on.

    Args:
        table: of pieces: from bit 32 of the third word on the number of a piece, in the fourth how
            often it occurs.
        pool, ends: `text` and `ends` of `Pieces`, filled as far as state[0] pieces.

    Returns:
        Where it has got to: `length`, or where the table is half full or the pool's end is near.
    """
    number, filled = state[0], ends[state[0]]
    while i < length:
        j = piece_end(text, i, length, classes, words, end)
        size = j - i
        first, second = piece_key(text, i, size)
        row = find_piece(table, pool, text, i, size, first, second)
        if table[row, 2] == 0:
            if 2 * number >= table.shape[0] or filled + size > pool.size:
                break
            table[row, 0], table[row, 1] = first, filled if size > SHORT else second
            table[row, 2], table[row, 3] = size | number << 32, 0
            for k in range(size):
                pool[filled + k] = text[i + k]
            filled += size
            number += 1
            ends[number] = filled
        table[row, 3] += 1
        i = j
    state[0] = number
    return i


def count(texts: Iterable[bytes], split: str) -> Pieces:
    """The pieces of texts; memory grows with the pieces that differ, not with the texts."""
    words, end = get_splitting(split)[1:]
    table, pool = np.zeros((ROWS, 4), np.int64), np.empty(16 * ROWS, np.uint8)
    ends, state = np.zeros(ROWS // 2 + 1, np.int64), np.zeros(1, np.int64)
    for data in texts:
        text, i = padded(data), 0
        while i < len(data):
            i = count_pieces(
                text, i, len(data), class_table(), words, end, table, pool, ends, state
            )
            if i < len(data):
                pool = np.append(pool, np.empty(pool.size + len(data) - i, np.uint8))
                old, table = table, np.zeros((2 * len(table), 4), np.int64)
                rehash_pieces(old, table)
                ends = np.append(ends, np.zeros(ends.size - 1, np.int64))
    number = int(state[0])
    used = table[table[:, 2] != 0]
    times = np.empty(number, np.int64)
    times[used[:, 2] >> 32] = used[:, 3]
    text = np.append(pool[: ends[number]], np.zeros(PADDING, np.uint8))
    return Pieces(text, ends[: number + 1], times)
