"""Byte-pair encoding, to be read: training counts neighbours and merges the most frequent.

A token is a string of bytes. The vocabulary begins with the 256 single bytes, so that anything can
be encoded, and training adds, again and again, the two neighbours that are most often seen together
as one new token. The id of a token says when it was added; encoding merges in the same order.

`kernels/` does the same compiled, for the `optimized` backend.

Source: P. Gage, "A new algorithm for data compression", 1994; R. Sennrich, B. Haddow, A. Birch,
"Neural machine translation of rare words with subword units", 2016; on bytes: A. Radford et al.,
"Language models are unsupervised multitask learners", 2019 (GPT-2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise

Pair = tuple[bytes, bytes]
Vocabulary = dict[bytes, int]


def count_pairs(words: Mapping[tuple[bytes, ...], int]) -> Counter[Pair]:
    """Count how often each two tokens are neighbours.

    Args:
        words: words as tuples of tokens, and how often each occurs. Neighbours in a word that
            occurs n times are counted n times; neighbours do not reach from one word to the next.

    >>> sorted(count_pairs({(b"a", b"b", b"b"): 2, (b"b", b"b"): 1}).items())
    [((b'a', b'b'), 2), ((b'b', b'b'), 3)]
    """
    counts: Counter[Pair] = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


def merge_pair(word: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    """The word with every occurrence of the pair joined into one token, from left to right.

    >>> merge_pair((b"a", b"a", b"a", b"b"), (b"a", b"a"))
    (b'aa', b'a', b'b')
    """
    merged: list[bytes] = []
    i = 0
    while i < len(word):
        step = 2 if word[i : i + 2] == pair else 1
        merged.append(b"".join(word[i : i + step]))
        i += step
    return tuple(merged)


def train(pieces: Mapping[bytes, int], size: int) -> Vocabulary:
    """Learn a vocabulary: merge the most frequent pair of neighbours until there are enough tokens.

    Of pairs that are equally frequent the one with the smallest ids is merged: the smaller id of
    the first token, then of the second. A merge that gives a token that is there already joins the
    neighbours and adds nothing.

    Args:
        pieces: each piece of the text (see `split`), and how often it occurs.
        size: how many tokens to have, at least 256. There are fewer where all pieces are joined.

    Returns:
        The id of each token, in the order in which they were added: first the 256 bytes.

    >>> list(train({b"low": 5, b"lower": 2, b"newest": 6}, 259).items())[256:]
    [(b'we', 256), (b'lo', 257), (b'ewe', 258)]
    """
    vocabulary = {bytes([byte]): byte for byte in range(256)}
    words = {tuple(bytes([byte]) for byte in piece): n for piece, n in pieces.items()}
    while len(vocabulary) < size:
        counts = count_pairs(words)
        if not counts:
            break
        pair = min(counts, key=lambda p: (-counts[p], vocabulary[p[0]], vocabulary[p[1]]))
        vocabulary.setdefault(pair[0] + pair[1], len(vocabulary))
        words = {merge_pair(word, pair): n for word, n in words.items()}
    return vocabulary


def encode_piece(piece: bytes, vocabulary: Mapping[bytes, int]) -> list[int]:
    """The ids of a piece.

    Of all neighbours that joined are a token, those whose token has the smallest id are joined, the
    leftmost first, until there are none. A piece that is a token as a whole is that token.

    Args:
        piece: one piece of a text, not empty.
        vocabulary: the id of each token, every single byte among them.

    >>> encode_piece(b"lower", train({b"low": 5, b"lower": 2, b"newest": 6}, 259))
    [257, 256, 114]
    """
    if piece in vocabulary:
        return [vocabulary[piece]]
    parts = join_by_rank(piece, lambda left, right: vocabulary.get(left + right, math.inf))
    return [vocabulary[part] for part in parts]


def join_by_rank(piece: bytes, rank: Callable[[bytes, bytes], float]) -> list[bytes]:
    """The bytes of a piece, joined where the rank is smallest, the leftmost first.

    Args:
        piece: not empty.
        rank: of two neighbours; infinity for those that are not to be joined.

    >>> join_by_rank(b"abc", lambda left, right: {b"bc": 1, b"ab": 2}.get(left + right, math.inf))
    [b'a', b'bc']
    """
    parts = [bytes([byte]) for byte in piece]
    while len(parts) > 1:
        ranks = [rank(left, right) for left, right in pairwise(parts)]
        if min(ranks) == math.inf:
            break
        i = ranks.index(min(ranks))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts
