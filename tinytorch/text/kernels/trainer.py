"""Byte-pair training: pairs are counted once, and then only what a merge changes.

Every byte of every piece is a position. A merge keeps the left position and drops the right one; of
each pair there is the list of its positions. A pair's count only falls after it was pushed to the
heap, unless a merge adds to it, which pushes it again; so what is popped with a count that is no
longer true goes back with the true one. The next merge is the reference's: `bpe.train`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit.library import warm_up
from tinytorch.text.bpe import Vocabulary
from tinytorch.text.kernels.counting import Pieces, count
from tinytorch.text.kernels.heap import pop, push, replace_root
from tinytorch.text.kernels.tables import (
    SHORT,
    find_pair,
    find_piece,
    piece_key,
    rehash_pairs,
    rehash_pieces,
)
from tinytorch.text.kernels.words import inline, inner, int64, kernel

ROWS = 1 << 16  # of the table of pairs, at first, at the least
MOST_POSITIONS = 1 << 29  # three links for each are numbered by int32
_LOW = 0xFFFFFFFF
# Columns of the positions: the token there (-1: none), its neighbours, and the piece.
TOKEN, NEXT, PREVIOUS, PIECE = range(4)
# Columns of the pairs: left << 32 | right, the count, the list of positions (its length << 32 | its
# first link + 1), and the last merge that added to it.
PAIR, COUNT, LINKS, ADDED_BY = range(4)
# What the kernels leave in `state`: merges done, ids given, pairs, entries of the heap, links.
_MERGES, _IDS, _PAIRS, _HEAP, _LINKS = range(5)


@inline
def add_pair(
    pairs: Array, links: Array, state: Array, left: int, right: int, i: int, times: int
) -> int:
    """Count a pair of tokens at position i; its row."""
    pair = left << 32 | right
    row = find_pair(pairs, pair)
    if pairs[row, PAIR] == -1:
        pairs[row, PAIR], pairs[row, COUNT] = pair, 0
        pairs[row, LINKS], pairs[row, ADDED_BY] = 0, -1
        state[_PAIRS] += 1
    link = state[_LINKS]
    links[link, 0], links[link, 1] = i, pairs[row, LINKS] & _LOW
    pairs[row, LINKS] = ((pairs[row, LINKS] >> 32) + 1) << 32 | link + 1
    pairs[row, COUNT] += times
    state[_LINKS] += 1
    return row


@kernel
def begin(
    text: Array,
    ends: Array,
    times: Array,
    at: Array,
    pairs: Array,
    links: Array,
    heap: Array,
    state: Array,
) -> None:
    """Count the pairs of bytes."""
    for piece in range(times.size):
        for i in range(ends[piece], ends[piece + 1]):
            at[i, TOKEN], at[i, PIECE] = text[i], piece
            at[i, PREVIOUS] = i - 1 if i > ends[piece] else -1
            at[i, NEXT] = i + 1 if i + 1 < ends[piece + 1] else -1
            if i > ends[piece]:
                add_pair(
                    pairs, links, state, int64(text[i - 1]), int64(text[i]), i - 1,
                    times[piece],
                )  # fmt: skip
    for row in range(pairs.shape[0]):
        if pairs[row, PAIR] != -1:
            state[_HEAP] = push(heap, state[_HEAP], -pairs[row, COUNT], pairs[row, PAIR])


@inner
def id_of(tokens: Array, text: Array, i: int, length: int, state: Array, out: Array) -> int:
    """The id of the token text[i : i + length], a new one if there is none yet."""
    first, second = piece_key(text, i, length)
    row = find_piece(tokens, text, text, i, length, first, second)
    if tokens[row, 2] == 0:
        tokens[row, 0], tokens[row, 1] = first, i if length > SHORT else second
        tokens[row, 2], tokens[row, 3] = length, state[_IDS]
        out[state[_IDS], 0], out[state[_IDS], 1] = i, length
        state[_IDS] += 1
    return tokens[row, 3]


@inline
def merge_at(
    i: int,
    new: int,
    at: Array,
    times: Array,
    pairs: Array,
    links: Array,
    touched: Array,
    added: int,
    state: Array,
) -> int:
    """Join the tokens at i and behind it to `new`; how many pairs have been added to by now."""
    right = at[i, NEXT]
    before, after, weight = at[i, PREVIOUS], at[right, NEXT], times[at[i, PIECE]]
    left_token, right_token = int64(at[i, TOKEN]), int64(at[right, TOKEN])
    at[i, TOKEN], at[right, TOKEN], at[i, NEXT] = new, -1, after
    if before >= 0:
        token = int64(at[before, TOKEN])
        pairs[find_pair(pairs, token << 32 | left_token), COUNT] -= weight
        row = add_pair(pairs, links, state, token, new, int64(before), weight)
        if pairs[row, ADDED_BY] != state[_MERGES]:
            pairs[row, ADDED_BY] = state[_MERGES]
            touched[added] = row
            added += 1
    if after >= 0:
        at[after, PREVIOUS] = i
        token = int64(at[after, TOKEN])
        pairs[find_pair(pairs, right_token << 32 | token), COUNT] -= weight
        row = add_pair(pairs, links, state, new, token, i, weight)
        if pairs[row, ADDED_BY] != state[_MERGES]:
            pairs[row, ADDED_BY] = state[_MERGES]
            touched[added] = row
            added += 1
    return added


@kernel
def merge_pairs(
    text: Array,
    times: Array,
    at: Array,
    tokens: Array,
    pairs: Array,
    links: Array,
    heap: Array,
    touched: Array,
    state: Array,
    out: Array,
) -> bool:
    """Merge until `out` has all its ids.

    Args:
        out: of each id, where the token's bytes are in `text`, and how many.

    Returns:
        Whether it is done; else a larger table of pairs is needed, or a larger heap.
    """
    while state[_IDS] < out.shape[0] and state[_HEAP] > 0:
        counted, pair = -heap[0, 0], heap[0, 1]
        row = find_pair(pairs, pair)
        present = pairs[row, COUNT]
        if present != counted:
            if 0 < present < counted:
                replace_root(heap, state[_HEAP], -present, pair)
            else:
                state[_HEAP] = pop(heap, state[_HEAP])
            continue
        if counted == 0:
            state[_HEAP] = pop(heap, state[_HEAP])
            continue
        positions = pairs[row, LINKS] >> 32
        if (
            2 * (state[_PAIRS] + 2 * positions) > pairs.shape[0]
            or state[_HEAP] + 2 * positions > heap.shape[0]
        ):
            return False
        state[_HEAP] = pop(heap, state[_HEAP])
        left, right = pair >> 32, pair & _LOW
        link, new, added = pairs[row, LINKS] & _LOW, int64(-1), int64(0)
        while link > 0:
            i = int64(links[link - 1, 0])
            link = links[link - 1, 1]
            if at[i, TOKEN] != left:
                continue
            while left == right and at[i, PREVIOUS] >= 0 and at[at[i, PREVIOUS], TOKEN] == left:
                i = int64(at[i, PREVIOUS])  # a run is merged from its beginning
            while i >= 0 and at[i, TOKEN] == left:
                j = at[i, NEXT]
                if j < 0 or at[j, TOKEN] != right:
                    break
                if new < 0:
                    length = out[left, 1] + out[right, 1]
                    new = id_of(tokens, text, i, length, state, out)
                added = merge_at(i, new, at, times, pairs, links, touched, added, state)
                i = int64(at[i, NEXT])
        pairs[row, COUNT], pairs[row, LINKS] = 0, 0
        for k in range(added):
            r = touched[k]
            if pairs[r, COUNT] > 0:
                state[_HEAP] = push(heap, state[_HEAP], -pairs[r, COUNT], pairs[r, PAIR])
        state[_MERGES] += 1
    return True


def train(texts: Iterable[bytes], size: int, split: str) -> Vocabulary:
    """Train on the pieces of texts, with the result of `bpe.train`."""
    pieces = count(texts, split)
    out = _merge(pieces, size)
    data = pieces.text.tobytes()
    vocabulary = {bytes([byte]): byte for byte in range(256)}
    for number, (i, length) in enumerate(out[256:].tolist(), 256):
        vocabulary[data[i : i + length]] = number
    return vocabulary


def _merge(pieces: Pieces, size: int) -> Array:
    """Of each id where its bytes are, and how many."""
    text, ends, times = pieces
    positions = int(ends[-1])
    if positions > MOST_POSITIONS:
        raise ValueError(
            f"the pieces that differ have {positions} bytes, and training takes {MOST_POSITIONS}: "
            f"learn from a part of the texts"
        )
    at = np.empty((positions, 4), np.int32)
    links = np.empty((3 * positions + 1, 2), np.int32)
    tokens = np.zeros((1 << (2 * size).bit_length(), 4), np.int64)
    rows = max(ROWS, 4 * min(positions, 256 * 256))
    pairs = np.full((1 << (rows - 1).bit_length(), 4), -1, np.int64)
    heap, touched = np.empty((len(pairs), 2), np.int64), np.empty(len(pairs), np.int64)
    state = np.array([0, 256, 0, 0, 0], np.int64)
    out = np.ones((size, 2), np.int64)
    begin(text, ends, times, at, pairs, links, heap, state)
    while not merge_pairs(text, times, at, tokens, pairs, links, heap, touched, state, out):
        old, pairs = pairs, np.full((2 * len(pairs), 4), -1, np.int64)
        rehash_pairs(old, pairs)
        heap = np.append(heap, np.empty_like(heap), axis=0)
        touched = np.empty(len(pairs), np.int64)
    return out[: state[_IDS]]


@warm_up
def trainings() -> None:
    """Texts to a vocabulary."""
    train([b"ab ab"], 257, "gpt4")
    table, pairs = np.zeros((1, 4), np.int64), np.full((1, 4), -1, np.int64)
    rehash_pieces(table, table)
    rehash_pairs(pairs, pairs)
