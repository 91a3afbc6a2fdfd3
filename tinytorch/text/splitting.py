"""How text is cut into pieces before byte pairs are merged: no token reaches across a cut.

Without cuts the most frequent pairs would be ends of words with what happens to follow them, and a
word would be another token after a comma than after a space.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tinytorch.text.classes import compile_pattern


class Splitting(NamedTuple):
    r"""A pattern, and what tells it from the others.

    Attributes:
        pattern: the regular expression; its matches, one after another, are the pieces.
        words: a piece of letters may begin with any one character that is neither letter, number
            nor newline, and newlines end what is before them (GPT-4); else only with a space.
        end: whitespace at the end of the text is one piece, with the newlines in it.
    """

    pattern: str
    words: bool
    end: bool


def _gpt4_family(end: str) -> str:
    return (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
        rf" ?[^\s\p{{L}}\p{{N}}]++[\r\n]*+|{end}\s*[\r\n]|\s+(?!\S)|\s"
    )


#: The splittings by name. Source of gpt2 and gpt4: tiktoken's `openai_public.py` (r50k_base and
#: cl100k_base); of llama3: the `tokenizer.json` of Llama 3. All are written with possessive
#: quantifiers, and match what the originals match.
SPLITTINGS = {
    "gpt2": Splitting(
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s",
        words=False,
        end=True,
    ),
    "gpt4": Splitting(_gpt4_family(r"\s++\Z|"), words=True, end=True),
    "llama3": Splitting(_gpt4_family(""), words=True, end=False),
}


def get_splitting(name: str) -> Splitting:
    """The splitting of this name.

    Raises:
        ValueError: there is none; the message lists them.
    """
    if name not in SPLITTINGS:
        raise ValueError(f"there is no splitting {name!r}; there are {', '.join(SPLITTINGS)}")
    return SPLITTINGS[name]


def split(data: bytes, name: str = "gpt4") -> Iterator[bytes]:
    """The pieces of a text, in order; joined they are the text.

    A byte that belongs to no character of UTF-8 counts as a character that is neither letter,
    number nor whitespace.

    Args:
        data: UTF-8, or any bytes.
        name: of `SPLITTINGS`.

    Raises:
        ValueError: there is no such splitting.

    >>> list(split(b"You'll see 1234 things!", "gpt4"))
    [b'You', b"'ll", b' see', b' ', b'123', b'4', b' things', b'!']
    """
    text = data.decode("utf-8", "surrogateescape")
    for match in compile_pattern(get_splitting(name).pattern).finditer(text):
        yield match[0].encode("utf-8", "surrogateescape")
