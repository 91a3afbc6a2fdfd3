"""`Encoder`: text to ids, piece by piece, each found in a cache or merged and put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit.library import warm_up
from tinytorch.text.bpe import Pair, Vocabulary
from tinytorch.text.classes import class_table
from tinytorch.text.kernels.merging import ID, merge_piece
from tinytorch.text.kernels.scan import piece_end
from tinytorch.text.kernels.tables import SHORT, find_pair, find_piece, piece_key
from tinytorch.text.kernels.words import inner, int64, kernel, padded
from tinytorch.text.splitting import get_splitting

ROWS = 1 << 17
POOL = 1 << 20  # bytes of longer pieces, and ids of pieces with more than two
LONGEST = 1024  # bytes; longer pieces are not kept
SCRATCH = 256  # bytes of a piece that needs no larger scratch space
_LOW = 0xFFFFFFFF
# What a kernel leaves in `Cache.state`.
_IDS, _USED, _POOL_BYTES, _POOL_IDS, _PIECE = range(5)


class Cache(NamedTuple):
    """The ids of pieces. A row's number is how many; its fourth word one or two of them, or where
    they are in `ids`."""

    table: Array
    pool: Array
    ids: Array
    state: Array

    def copy(self) -> Cache:
        """A cache of its own with the same pieces."""
        used = int(self.state[_POOL_BYTES])
        pool = np.empty_like(self.pool)
        pool[:used] = self.pool[:used]
        return Cache(self.table.copy(), pool, np.empty_like(self.ids), self.state.copy())

    def evict(self, fresh: Cache) -> None:
        """Go back to the pieces of another cache. Where the ids of a text go on stays."""
        self.table[:] = fresh.table
        self.state[_USED:_PIECE] = fresh.state[_USED:_PIECE]


@inner
def store(
    cache: Cache, text: Array, i: int, length: int, row: int, key: tuple[int, int], count: int
) -> None:
    """Fill a row for a piece of `count` ids: the caller writes the fourth word."""
    table, state = cache.table, cache.state
    table[row, 0], table[row, 1] = key
    table[row, 2] = length | count << 32
    state[_USED] += 1
    if length > SHORT:
        table[row, 1] = state[_POOL_BYTES]
        for k in range(length):
            cache.pool[state[_POOL_BYTES] + k] = text[i + k]
        state[_POOL_BYTES] += length


@kernel
def add_tokens(cache: Cache, text: Array, ends: Array, numbers: Array) -> None:
    """Put tokens into a cache that has room for them; they are text[ends[k] : ends[k + 1]]."""
    for k in range(numbers.size):
        i, length = ends[k], ends[k + 1] - ends[k]
        key = piece_key(text, i, length)
        row = find_piece(cache.table, cache.pool, text, i, length, key[0], key[1])
        store(cache, text, i, length, row, key, int64(1))
        cache.table[row, 3] = numbers[k]


@kernel
def add_splits(tokens: Cache, text: Array, ends: Array, pairs: Array, fill: bool) -> int:
    """Put each two tokens whose joined bytes are a token into a table of pairs; how many.

    Args:
        tokens: where all tokens are found.
        text, ends: the tokens, text[ends[k] : ends[k + 1]].
        fill: write to `pairs`, else only count.
    """
    count = 0
    for k in range(ends.size - 1):
        i, after = ends[k], ends[k + 1]
        for j in range(i + 1, after):
            left, right = _token(tokens, text, i, j), _token(tokens, text, j, after)
            if left >= 0 and right >= 0:
                count += 1
                if fill:
                    row = find_pair(pairs, left << 32 | right)
                    joined = _token(tokens, text, i, after)
                    pairs[row, 0], pairs[row, 1] = left << 32 | right, joined << 32 | joined
    return count


@inner
def _token(tokens: Cache, text: Array, i: int, j: int) -> int:
    key = piece_key(text, i, j - i)
    row = find_piece(tokens.table, tokens.pool, text, i, j - i, key[0], key[1])
    return -1 if tokens.table[row, 2] == 0 else tokens.table[row, 3]


@kernel
def encode(
    text: Array,
    i: int,
    length: int,
    classes: Array,
    words: bool,
    end: bool,
    cache: Cache,
    byte_ids: Array,
    pairs: Array,
    scratch: Array,
    heap: Array,
    out: Array,
) -> int:
    """Write the ids of the text from i on to `out`, from cache.state[_IDS] on.

    Returns:
        Where it has got to: `length`, or the beginning of a piece, of cache.state[_PIECE] bytes,
        for which the cache or the scratch space has no room.
    """
    table, pool, known, state = cache.table, cache.pool, cache.ids, cache.state
    m = state[_IDS]
    while i < length:
        j = piece_end(text, i, length, classes, words, end)
        size = j - i
        first, second = piece_key(text, i, size)
        row = find_piece(table, pool, text, i, size, first, second)
        count, value = table[row, 2] >> 32, table[row, 3]
        if table[row, 2] == 0:
            state[_PIECE] = size
            if size > scratch.shape[1] or (
                2 * state[_USED] >= table.shape[0]
                or state[_POOL_BYTES] + LONGEST > pool.size
                or state[_POOL_IDS] + LONGEST > known.size
            ):
                break
            count = merge_piece(text, i, size, byte_ids, pairs, scratch, heap)
            if size > LONGEST:
                for k in range(count):
                    out[m + k] = scratch[ID, k]
                m += count
                i = j
                continue
            store(cache, text, i, size, row, (first, second), count)
            value = scratch[ID, 0] | scratch[ID, min(1, count - 1)] << 32
            if count > 2:
                value = state[_POOL_IDS]
                for k in range(count):
                    known[value + k] = scratch[ID, k]
                state[_POOL_IDS] += count
            table[row, 3] = value
        if count <= 2:
            out[m], out[m + 1] = value & _LOW, value >> 32
        else:
            for k in range(count):
                out[m + k] = known[value + k]
        m += count
        i = j
    state[_IDS] = m
    return i


@kernel
def add_pairs(pairs: Array, keys: Array, merges: Array) -> None:
    """Fill a table of pairs; of a pair that occurs twice the first counts."""
    for k in range(keys.size):
        row = find_pair(pairs, keys[k])
        if pairs[row, 0] == -1:
            pairs[row, 0], pairs[row, 1] = keys[k], merges[k]


def _pair_table(entries: int) -> Array:
    return np.full((_power_of_two(2 * entries + 2), 2), -1, np.int64)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


class Encoder:
    """A vocabulary as tables.

    Args:
        vocabulary: the id of each token.
        merges: the pairs that may be merged, or None; see `BytePairTokenizer`.
        split: name of the splitting.
        whole: a piece that is a token is that token.
    """

    def __init__(
        self, vocabulary: Vocabulary, merges: Sequence[Pair] | None, split: str, whole: bool
    ) -> None:
        self._words, self._end = get_splitting(split)[1:]
        self._byte_ids = np.array([vocabulary[bytes([b])] for b in range(256)], np.int64)
        tokens = _cache(vocabulary)
        self._fresh = tokens if whole else _cache({})
        self._free: list[Cache] = []  # one for each thread that is at work; taken and given back
        if merges is None:
            text, ends = _joined(vocabulary)
            entries = add_splits(tokens, text, ends, _pair_table(0), False)
            self._pairs = _pair_table(entries)
            add_splits(tokens, text, ends, self._pairs, True)
        else:
            self._pairs = _pair_table(len(merges))
            ids = [(vocabulary[a], vocabulary[b], vocabulary[a + b]) for a, b in merges]
            left, right, joined = np.array(ids, np.int64).reshape(-1, 3).T
            rank = np.arange(len(merges), dtype=np.int64)
            add_pairs(self._pairs, left << 32 | right, rank << 32 | joined)

    def encode(self, data: bytes) -> Array:
        """The ids of a text: int32 of shape (tokens,)."""
        text = padded(data)
        out = np.empty(len(data) + 2, np.int32)  # the kernel writes two at a time
        cache = self._free.pop() if self._free else self._fresh.copy()
        cache.state[_IDS] = 0
        i, width = 0, SCRATCH
        while True:
            scratch, heap = np.empty((4, width), np.int64), np.empty((3 * width, 2), np.int64)
            i = encode(
                text, i, len(data), class_table(), self._words, self._end, cache, self._byte_ids,
                self._pairs, scratch, heap, out,
            )  # fmt: skip
            if i == len(data):
                break
            if cache.state[_PIECE] > width:
                width = int(cache.state[_PIECE])
            else:
                cache.evict(self._fresh)
        ids = out[: cache.state[_IDS]].copy()
        self._free.append(cache)
        return ids


def _joined(vocabulary: Vocabulary) -> tuple[Array, Array]:
    """All tokens, one after another, and 0 and where each ends."""
    ends = np.cumsum([0, *map(len, vocabulary)], dtype=np.int64)
    return padded(b"".join(vocabulary)), ends


def _cache(vocabulary: Vocabulary) -> Cache:
    """A cache in which these tokens are."""
    text, ends = _joined(vocabulary)
    cache = Cache(
        np.zeros((max(ROWS, _power_of_two(4 * len(vocabulary) + 1)), 4), np.int64),
        np.empty(POOL + text.size, np.uint8),
        np.empty(POOL, np.int32),
        np.zeros(5, np.int64),
    )
    add_tokens(cache, text, ends, np.fromiter(vocabulary.values(), np.int64, len(vocabulary)))
    return cache


@warm_up
def encodings() -> None:
    """Text to ids."""
    vocabulary = {bytes([byte]): byte for byte in range(256)}
    for merges in (None, [(b"a", b"b")]):
        Encoder({**vocabulary, b"ab": 256}, merges, "gpt4", True).encode(b"ab")
