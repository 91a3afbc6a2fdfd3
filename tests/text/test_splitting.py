from __future__ import annotations

import random

import pytest
import regex

from tinytorch.text.splitting import SPLITTINGS, split

# As their owners publish them; `$` of tiktoken's engine is the end of the text.
ORIGINALS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\Z|\s+(?!\S)|\s",
    "gpt4": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
ALPHABET = "aZsStTlLvVeErRdDmM'’ſK0129   \n\r\t\u00a0\u2028\x85\x1c.,!é中文ß٣½😀\u0300_-"  # noqa: RUF001


@pytest.mark.parametrize("name", SPLITTINGS)
def test_pieces_are_those_of_the_original_patterns(name: str) -> None:
    original = regex.compile(ORIGINALS[name])
    letters = random.Random(name)
    for _ in range(3000):
        text = "".join(letters.choices(ALPHABET, k=letters.randrange(20)))
        pieces = list(split(text.encode(), name))
        assert pieces == [piece.encode() for piece in original.findall(text)], repr(text)
        assert b"".join(pieces) == text.encode()


def test_what_tells_them_apart() -> None:
    text = b"I'M (not) 12345\n \n"
    assert list(split(text, "gpt2")) == [b"I", b"'", b"M", b" (", b"not", b")", b" 12345", b"\n \n"]
    both = [b"I", b"'M", b" (", b"not", b")", b" ", b"123", b"45"]
    assert list(split(text, "gpt4")) == [*both, b"\n \n"]
    assert list(split(b"a\n  ", "gpt4")) == [b"a", b"\n  "]
    assert list(split(b"a\n  ", "llama3")) == [b"a", b"\n", b"  "]


def test_bytes_that_are_no_characters_are_pieces_too() -> None:
    assert list(split(b"ab\xff\xe4\xb8cd\xc3\xa9", "gpt2")) == [
        b"ab",
        b"\xff\xe4\xb8",
        b"cd\xc3\xa9",
    ]


def test_an_unknown_splitting_lists_the_known() -> None:
    with pytest.raises(ValueError, match="no splitting 'gpt5'; there are gpt2, gpt4, llama3"):
        list(split(b"a", "gpt5"))
