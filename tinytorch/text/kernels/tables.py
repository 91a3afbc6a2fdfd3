"""Hash tables with open addressing: pieces of text, and pairs of tokens.

A table of pieces has four words in a row: the first two are the piece itself where it has at most
16 bytes; of a longer one its hash, and where its bytes are in `pool`. The third is its length (0:
the row is empty) and, from bit 32 on, a number that belongs to the fourth, which is the user's.
"""

from __future__ import annotations

from tinytorch.dtypes import Array
from tinytorch.text.kernels.words import inline, inner, int64, kernel, load_word

SHORT = 16
_LOW = 0xFFFFFFFF
# Odd, with bits everywhere: the fractions of the golden ratio and of the square root of 3.
_A, _B = int64(-7046029254386353131), int64(-4942790177534073029)


@inline
def _first_bytes(word: int, count: int) -> int:
    """The first `count` bytes of a word, 1 to 8, moved up; no other word with as many gives it."""
    return word << (64 - 8 * count)


@inner
def _long_hash(text: Array, i: int, length: int) -> int:
    value = int64(length)
    while length > 0:
        word = load_word(text, i)
        value = (value ^ (word if length >= 8 else _first_bytes(word, length))) * _A
        value ^= value >> 29
        i += 8
        length -= 8
    return value


@inline
def piece_key(text: Array, i: int, length: int) -> tuple[int, int]:
    """The first two words of a piece's row (of a longer one the second is 0)."""
    if length > SHORT:
        return _long_hash(text, i, length), 0
    if length > 8:
        return load_word(text, i), _first_bytes(load_word(text, i + 8), length - 8)
    return _first_bytes(load_word(text, i), length), 0


@inner
def _same(pool: Array, at: int, text: Array, i: int, length: int) -> bool:
    for k in range(length):  # noqa: SIM110 - `all` of a generator is no loop to numba
        if pool[at + k] != text[i + k]:
            return False
    return True


@inline
def _row_of(first: int, second: int, rows: int) -> int:
    mixed = (first ^ second * _B) * _A
    return ((mixed >> 32) ^ mixed >> 47) & (rows - 1)


@inline
def find_piece(
    table: Array, pool: Array, text: Array, i: int, length: int, first: int, second: int
) -> int:
    """The row of the piece text[i : i + length], whose key is given; else the empty one for it."""
    row = _row_of(first, second, table.shape[0])
    while table[row, 2] != 0:
        if table[row, 0] == first and table[row, 2] & _LOW == length:
            if length > SHORT:
                if _same(pool, table[row, 1], text, i, length):
                    break
            elif table[row, 1] == second:
                break
        row = (row + 1) & (table.shape[0] - 1)
    return row


@kernel
def rehash_pieces(old: Array, new: Array) -> None:
    """Put all rows into a larger table, which is empty."""
    for k in range(old.shape[0]):
        if old[k, 2] != 0:
            second = 0 if old[k, 2] & _LOW > SHORT else old[k, 1]
            row = _row_of(old[k, 0], second, new.shape[0])
            while new[row, 2] != 0:
                row = (row + 1) & (new.shape[0] - 1)
            for c in range(4):
                new[row, c] = old[k, c]


@inline
def find_pair(table: Array, pair: int) -> int:
    """The row whose first word is the pair, or the empty one for it: its first word is -1."""
    mixed = pair * _A
    row = (mixed >> 40 ^ mixed >> 20) & (table.shape[0] - 1)
    while table[row, 0] != pair and table[row, 0] != -1:
        row = (row + 1) & (table.shape[0] - 1)
    return row


@kernel
def rehash_pairs(old: Array, new: Array) -> None:
    """Put all rows into a larger table, whose first words are -1."""
    for k in range(old.shape[0]):
        if old[k, 0] != -1:
            row = find_pair(new, old[k, 0])
            for c in range(old.shape[1]):
                new[row, c] = old[k, c]
