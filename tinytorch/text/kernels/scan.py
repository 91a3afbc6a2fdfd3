"""Where a piece ends: the patterns of `splitting`, by hand, one look at each character."""

from __future__ import annotations

from tinytorch.dtypes import Array
from tinytorch.text.classes import LETTER, NEWLINE, NUMBER, OTHER, SPACE
from tinytorch.text.kernels.words import inline, inner, load_word, trailing_zeros

APOSTROPHE, BLANK = ord("'"), ord(" ")
# A character is class + 8 * (number of bytes).
_ONE_OTHER = OTHER + 8
_EACH = 0x0101010101010101


@inner
def wide_character(text: Array, i: int, classes: Array) -> int:
    """The character at i, which is not ASCII; a byte that begins none is one that is OTHER."""
    first = text[i]
    second = text[i + 1] ^ 0x80  # what is 64 or more continues no character
    if first < 0xC2 or first > 0xF4 or second >= 64:
        return _ONE_OTHER
    if first < 0xE0:
        return classes[(first & 31) << 6 | second] + 16
    third = text[i + 2] ^ 0x80
    if third >= 64:
        return _ONE_OTHER
    if first < 0xF0:
        code = (first & 15) << 12 | second << 6 | third
        return _ONE_OTHER if code < 0x800 or code >> 11 == 27 else classes[code] + 24
    fourth = text[i + 3] ^ 0x80
    code = (first & 7) << 18 | second << 12 | third << 6 | fourth
    if fourth >= 64 or code < 0x10000 or code > 0x10FFFF:
        return _ONE_OTHER
    return classes[code] + 32


@inline
def character(text: Array, i: int, classes: Array) -> int:
    """The character at i."""
    return classes[text[i]] + 8 if text[i] < 128 else wide_character(text, i, classes)


@inline
def ascii_letters(text: Array, i: int) -> int:
    """How many of the eight bytes at i, from the first on, are letters of ASCII.

    The highest bit of a byte tells whether a sum of seven bits has passed 127.
    """
    word = load_word(text, i) | _EACH * 0x20  # lower case
    low = word & _EACH * 0x7F
    beyond = ~(low + _EACH * (0x80 - ord("a"))) | low + _EACH * (0x7F - ord("z")) | word
    return trailing_zeros(beyond & ~(_EACH * 0x7F)) >> 3


@inline
def skip_letters(text: Array, i: int, classes: Array) -> int:
    """The end of the run of letters that begins at i."""
    while True:
        count = ascii_letters(text, i)
        i += count
        if count < 8:
            if text[i] < 128:
                return i
            found = wide_character(text, i, classes)
            if found & 7 != LETTER:
                return i
            i += found >> 3


@inline
def skip(text: Array, i: int, length: int, classes: Array, wanted: int) -> int:
    """The end of the run of characters of one class that begins at i."""
    while i < length:
        found = character(text, i, classes)
        if found & 7 != wanted:
            break
        i += found >> 3
    return i


@inner
def contraction(text: Array, i: int, words: bool) -> int:
    """The end of 's, 't, 're and the like at i; 0 if there is none. With `words` in any case."""
    case = 32 if words else 0
    first, second = text[i + 1] | case, text[i + 2] | case
    if first == 115 or first == 100 or first == 109 or first == 116:  # s d m t
        return i + 2
    if (second == 108 and first == 108) or (second == 101 and (first == 118 or first == 114)):
        return i + 3  # ll, ve, re
    if words and text[i + 1] == 0xC5 and text[i + 2] == 0xBF:
        return i + 3  # the long s, whose capital is S
    return 0


@inline
def space_end(text: Array, i: int, length: int, classes: Array, words: bool, end: bool) -> int:
    """The end of the piece of whitespace that begins at i."""
    j, last, after_newline = i, i, 0
    while j < length:
        found = character(text, j, classes)
        if found & 7 < SPACE:
            break
        last = j
        j += found >> 3
        if found & 7 == NEWLINE:
            after_newline = j
    if end and j == length:
        return j
    if words and after_newline:
        return after_newline
    return j if j == length or last == i else last


@inline
def piece_end(text: Array, i: int, length: int, classes: Array, words: bool, end: bool) -> int:
    """The end of the piece that begins at i.

    Args:
        text: see `padded`; `length` without the padding.
        classes: `class_table()`.
        words, end: see `Splitting`.
    """
    found = character(text, i, classes)
    kind, j = found & 7, i + (found >> 3)
    if text[i] == APOSTROPHE:
        short = contraction(text, i, words)
        if short:
            return short
    start = kind  # the class of the run that the piece is, but for its first character
    if words and kind in (OTHER, SPACE):
        after = character(text, j, classes) & 7
        if after == LETTER or (after == OTHER and text[i] == BLANK and j < length):
            start = after
    elif text[i] == BLANK and j < length:
        after = character(text, j, classes) & 7
        if after < SPACE:
            start = after
    if start == LETTER:
        return skip_letters(text, j, classes)
    if start == NUMBER:
        if not words:
            return skip(text, j, length, classes, NUMBER)
        for _ in range(2):
            found = character(text, j, classes)
            if found & 7 == NUMBER:
                j += found >> 3
        return j
    if start == OTHER:
        j = skip(text, j, length, classes, OTHER)
        while words and (text[j] == 10 or text[j] == 13):
            j += 1
        return j
    return space_end(text, i, length, classes, words, end)
